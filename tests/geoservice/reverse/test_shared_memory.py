"""Worker processes share one index: each needs little memory in addition to it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

WORKERS = 4
KINDS = ("Pss", "Private_Dirty")

#: A program that opens the index and touches all of it with lookups, step by step on command.
WORKER = """
import random, sys
from array import array
from pathlib import Path
from geoservice.reverse.address_bytes import AddressBytes
from geoservice.reverse.geocoder import Geocoder
print("started", flush=True)
sys.stdin.readline()
geocoder = Geocoder.open(Path(sys.argv[1]))
chosen = random.Random(1)
for _ in range(100):  # few at a time: what asks for them is not the index's memory
    lats = array("d", [chosen.uniform(-60, 75) for _ in range(300)])
    lons = array("d", [chosen.uniform(-180, 180) for _ in range(300)])
    geocoder.index.world.reverse_batch(lats, lons)
del lats, lons
print("asked", flush=True)
sys.stdin.readline()
"""


@contextmanager
def worker(index: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(index)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def await_line(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline().strip() == line


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def memory(process: subprocess.Popen[str]) -> dict[str, int]:
    """Return bytes by kind; Pss is resident memory, with shared pages divided by the processes."""
    try:
        text = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError as error:
        pytest.skip(f"the system does not say how memory is shared: {error}")
    lines = (line.split() for line in text.splitlines()[1:])
    return {words[0].rstrip(":"): 1024 * int(words[1]) for words in lines}


def total(workers: Sequence[subprocess.Popen[str]], kind: str) -> int:
    return sum(memory(each)[kind] for each in workers)


def test_four_workers_hold_one_index_between_them(world_path: Path) -> None:
    size = world_path.stat().st_size
    with ExitStack() as stack:
        workers = [stack.enter_context(worker(world_path)) for _ in range(WORKERS)]
        for each in workers:
            await_line(each, "started")
        before = {kind: total(workers, kind) for kind in KINDS}
        for each in workers:
            go_on(each)
        for each in workers:
            await_line(each, "asked")
        grown = {kind: total(workers, kind) - before[kind] for kind in KINDS}
    own = grown["Private_Dirty"] / WORKERS
    print(
        f"{size:,} bytes of index, {grown['Pss']:,} bytes more resident in {WORKERS} workers, "
        f"of which {own:,.0f} are each one's own ({own / size:.1%} of the index)"
    )
    assert own < 0.05 * size
    # The rest is the touched part of the index, counted once for all workers.
    assert grown["Pss"] - grown["Private_Dirty"] < size
