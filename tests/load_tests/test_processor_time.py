from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from load_tests.processor_time import (
    Process,
    Sampler,
    part_of,
    parts_below,
    parts_of_platform,
    read_processes,
)

CLI = ("python", "-m", "waylog.cli")


def test_a_command_line_tells_the_part() -> None:
    assert part_of((*CLI, "broker", "--config", "x")) == "broker"
    assert part_of(("/srv/.venv/bin/waylog", "geo", "serve")) == "geocoder"
    assert part_of(("/usr/bin/python3", "/srv/.venv/bin/waylog", "up")) == "supervisor"
    assert part_of((*CLI, "topics", "list")) is None
    assert part_of(("vim", "waylog")) is None
    assert part_of(()) is None


def test_helpers_count_for_the_part_that_started_them() -> None:
    processes = {
        each.pid: each
        for each in (
            Process(1, 0, 0.0, ("init",)),
            Process(10, 1, 0.0, (*CLI, "up")),
            Process(11, 10, 0.0, (*CLI, "gateway")),
            Process(12, 10, 0.0, (*CLI, "history", "run")),
            Process(13, 12, 0.0, ("java", "-Xmx512m")),
            Process(14, 1, 0.0, (*CLI, "gateway")),
        )
    }
    assert parts_below(10, processes) == {
        10: "supervisor",
        11: "gateway",
        12: "history",
        13: "history",
    }


def test_a_platform_is_known_by_its_brokers(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text("listeners=PLAINTEXT://127.0.0.1:9999\n")
    processes = {
        each.pid: each
        for each in (
            Process(1, 0, 0.0, (*CLI, "broker", "--config", str(config))),
            Process(2, 0, 0.0, (*CLI, "gateway", "--bootstrap-servers", "127.0.0.1:9999")),
            Process(3, 0, 0.0, (*CLI, "gateway", "--bootstrap-servers", "127.0.0.1:9998")),
            Process(4, 0, 0.0, (*CLI, "broker", "--config", str(tmp_path / "gone.properties"))),
        )
    }
    assert parts_of_platform("127.0.0.1:9999", processes) == {1: "broker", 2: "gateway"}


def test_time_is_attributed_while_a_process_runs_and_kept_when_it_is_gone() -> None:
    program = "import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass"
    with subprocess.Popen([sys.executable, "-c", program]) as busy:
        assert busy.pid in read_processes()
        began = time.time()
        with Sampler(lambda _: {busy.pid: "load"}) as sampler:
            while busy.poll() is None:
                time.sleep(0.01)
        used = sampler.used(began, time.time())
    assert 0.0 <= used["load"] <= 3.0
    assert sampler.used(began - 10, began - 9).get("load", 0.0) == 0.0
