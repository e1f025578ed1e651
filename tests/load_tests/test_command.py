from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from load_tests.own_platform import OwnPlatform, environment
from load_tests.processor_time import parts_below, read_processes
from load_tests.verify import Log
from waylog.cli import main
from waylog.kafka.topics import LOCATION


def load(*words: str) -> tuple[int, dict[str, Any], str]:
    process = subprocess.run(
        [sys.executable, "-m", "waylog.cli", "load", "--json", *words],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    lines = process.stdout.splitlines()
    return process.returncode, msgspec.json.decode(lines[-1]) if lines else {}, process.stderr


def test_a_platform_of_its_own_is_loaded_and_every_fix_accounted_for(tmp_path: Path) -> None:
    report = tmp_path / "report"
    status, result, errors = load(
        *("--users", "50", "--rate", "100", "--duration", "2", "--report", str(report))
    )
    assert status == 0, errors
    assert result["sent"] == result["acknowledged"] == result["stored"] >= 190
    assert result["lost"] == result["doubled"] == 0
    assert result["addresses"] == 50
    # The last ones may be acknowledged late.
    assert result["rate"] <= 120
    assert result["rate"] == pytest.approx(result["acknowledged"] / result["seconds"], abs=0.2)
    assert 0 < result["ack_p50_ms"] <= result["ack_p99_ms"]
    assert 0 < result["push_p50_ms"] <= result["push_p99_ms"]
    assert {"broker", "gateway", "resolver", "load"} <= result["cpu_us_per_fix"].keys()
    page = (report / "report.html").read_text()
    assert page.count("<svg") == 4
    assert "passed" in page
    assert (report / "acknowledgement.hgrm").stat().st_size > 0


@pytest.fixture(scope="module")
def platform() -> Any:
    with OwnPlatform(brokers=1, gateway_workers=1, resolvers=1, history=False) as own:
        yield own


# The rates are high enough for fixes to be due in the half second without a gateway.
@pytest.mark.long
@pytest.mark.parametrize(("protocol", "rate"), [("mqtt", "80"), ("batch", "2000")])
def test_nothing_is_lost_when_the_gateway_is_killed_meanwhile(
    platform: OwnPlatform, protocol: str, rate: str
) -> None:
    log = Log(platform.bootstrap_servers)
    before = sum(log.ends((LOCATION,)).values())

    def kill_gateway() -> None:
        while sum(log.ends((LOCATION,)).values()) < before + 100:
            time.sleep(0.05)
        processes = read_processes()
        for pid, part in parts_below(platform.pid, processes).items():
            if part == "gateway":
                os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_gateway)
    killer.start()
    status, result, errors = load(
        *("--protocol", protocol, "--users", "40", "--rate", rate, "--duration", "4"),
        *("--gateway", platform.http, "--mqtt", platform.mqtt),
        *("--bootstrap-servers", platform.bootstrap_servers),
    )
    killer.join()
    log.close()
    assert status == 0, errors
    assert result["failures"] > 0, "the gateway was to be missed"
    assert result["sent"] == result["acknowledged"] == result["stored"]
    assert result["lost"] == result["doubled"] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--mqtt", "127.0.0.1:1"], "give --bootstrap-servers"),
        (["--bootstrap-servers", "127.0.0.1:1"], "--mqtt or --gateway"),
        (["--bootstrap-servers", "127.0.0.1:1", "--gateway", "h:1"], "needs --mqtt"),
        (["--rate", "0.1", "--duration", "1"], "not a single fix"),
    ],
)
def test_options_that_contradict_each_other_are_wrong_usage(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["load", *words]) == 2
    assert message in capsys.readouterr().err
