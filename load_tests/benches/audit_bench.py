"""Measures `waylog audit`: processor time for a record, and memory.

    python -m load_tests.benches.audit_bench --records 2000000 --devices 100000

Fixes of many devices are appended and copied to a history. Then the receipts of all devices, and of
one, are asked for, each by a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from load_tests.benches.connect.files_bench import broker_process
from load_tests.benches.filling import fill
from waylog.kafka.clients import ensure_topics
from waylog.messages import Fix, encode

_WAYLOG: Final = (sys.executable, "-m", "waylog.cli")


def main(argv: list[str] | None = None) -> int:
    """Run the measurements; print a line of JSON for each."""
    parser = argparse.ArgumentParser(
        prog="python -m load_tests.benches.audit_bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--records", type=int, default=2_000_000, help="default: %(default)s")
    parser.add_argument("--devices", type=int, default=100_000, help="default: %(default)s")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="waylog-bench-") as name:
        folder = Path(name)
        with broker_process(folder) as servers:
            ensure_topics(servers)
            fill(servers, _fixes(arguments.records, arguments.devices))
            history = str(folder / "history")
            where = ("--bootstrap-servers", servers)
            words = ("history", "run", "--once", "--engine", "arrow", "--out", history, *where)
            subprocess.run([*_WAYLOG, *words], check=True, stderr=subprocess.DEVNULL)
            for asked in (("day",), ("device", "user7/phone")):
                measured = _measured(("audit", *asked, "--history", history, *where))
                cpu_us = 1e6 * measured["cpu_s"] / arguments.records
                print(json.dumps({"asked": asked[0], **measured, "cpu_us": cpu_us}), flush=True)
    return 0


def _fixes(records: int, devices: int) -> Iterator[tuple[bytes, bytes]]:
    now_ms = time.time_ns() // 1_000_000
    for number in range(records):
        user = f"user{number % devices}"
        device = f"{user}/phone"
        fix = Fix(
            id=f"{number:024x}",
            device=device,
            user=user,
            lat=47.1412,
            lon=9.5215,
            time=now_ms - 1000,
            received=now_ms,
            accuracy=8.0,
            source="owntracks",
            attributes={"tid": "ab", "conn": "m"},
        )
        yield device.encode(), encode(fix)


def _measured(words: tuple[str, ...]) -> dict[str, Any]:
    """Run a command; return its processor time and the most memory that it has had."""
    began = time.monotonic()
    process = subprocess.Popen([*_WAYLOG, *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return {
        "status": process.returncode,
        "elapsed_s": round(time.monotonic() - began, 2),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
        "memory_mb": round(usage.ru_maxrss / 1024, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
