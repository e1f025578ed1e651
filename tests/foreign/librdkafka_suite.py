"""Runs librdkafka's own tests, each number in a process of its own, in case one hangs."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

#: Seconds that one test may take, on a machine that does other work as well.
TIMEOUT_S: Final = int(os.environ.get("WAYLOG_FOREIGN_TIMEOUT_S", "600"))
#: Tests that run at the same time; most of their time is waiting.
_JOBS: Final = int(os.environ.get("WAYLOG_FOREIGN_JOBS", "2"))

#: A command prefix for each test, e.g. `nice -n 19`.
_PREFIX: Final = os.environ.get("WAYLOG_FOREIGN_PREFIX", "").split()

#: Tests that need three brokers (`replication factor 3`), as do all without automatic topics.
WANT_THREE_BROKERS: Final = frozenset({"0098", "0101", "0103", "0129"})

_STATES: Final = {"PASSED": "passed", "SKIPPED": "skipped"}


class Verdict(NamedTuple):
    """The outcome of a test."""

    name: str
    state: str
    seconds: float
    reason: str


def numbers(folder: Path, scenario: str) -> list[str]:
    """Return the numbers of a scenario's tests that need a broker.

    The runner selects tests by number only; several tests may share one.
    """
    text = (folder / "test.c").read_text(encoding="utf-8")
    table = text[text.index("struct test tests[]") :]
    found: set[str] = set()
    for entry in table[: table.index("{NULL}")].split("_TEST(")[1:]:
        given = re.search(r'\.scenario = "([^"]+)"', entry)
        wanted = given[1].split(",") if given else ["default"]
        if "TEST_F_LOCAL" not in entry and "TEST_F_MANUAL" not in entry and scenario in wanted:
            found.add(entry[:4])
    return sorted(found)


def run(
    folder: Path,
    asked: Collection[str],
    environment: dict[str, str],
    *,
    scenario: str,
    log: Path | None,
) -> list[Verdict]:
    """Run tests by number, some in parallel; their output is kept in the folder `log`."""

    def one(number: str) -> list[Verdict]:
        return list(_run_one(folder, number, environment, scenario=scenario, log=log))

    with ThreadPoolExecutor(_JOBS) as executor:
        return sorted(verdict for each in executor.map(one, asked) for verdict in each)


def _run_one(
    folder: Path, number: str, environment: dict[str, str], *, scenario: str, log: Path | None
) -> Iterator[Verdict]:
    began = time.monotonic()
    process = subprocess.Popen(
        [*_PREFIX, "./test-runner", "-L", "-p1", "-s", scenario],
        cwd=folder,
        env=os.environ | environment | {"TESTS": number},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    hung = ""
    try:
        printed, _ = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        printed, _ = process.communicate()
        hung = f"not done after {TIMEOUT_S} s"
    seconds = time.monotonic() - began
    text = re.sub(r"\x1b\[\d+m", "", printed.decode(errors="replace"))
    if log is not None:
        (log / f"{number}.log").write_text(text, encoding="utf-8")
    rows = re.findall(rf"^\| ({number}_\w+) +\| +(\w+) \| +([\d.]+)s \|(.*)", text, re.M)
    for name, state, took, reason in rows:
        if "Filtered due to" not in reason:
            yield Verdict(name, _STATES.get(state, "failed"), float(took), reason.strip())
    if not rows:
        last = text.strip().splitlines()[-1:] or [""]
        yield Verdict(number, "failed", seconds, hung or last[0])
