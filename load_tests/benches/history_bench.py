"""The history job by itself: how far behind the log it is, how fast it catches up, what it costs.

    python -m load_tests.benches.history_bench live --engine spark --rate 20000 --seconds 60
    python -m load_tests.benches.history_bench catch-up --engine arrow --records 2000000

A fix is fresh for readers when its file has its name; the time of that renaming is in the file
system. Processor time is that of the job with its JVM and its workers.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from confluent_kafka import Producer

from load_tests.benches.broker_processes import WAYLOG, MeasuredBroker
from load_tests.benches.filling import produce
from load_tests.own_platform import environment
from load_tests.processor_time import LOAD, Process, Sampler, parts_below
from waylog.cli import CommandError
from waylog.kafka.clients import ensure_topics, producer_config
from waylog.messages import Fix, encode, fix_id

_DEVICES: Final = 100_000
_SLICE_S: Final = 0.02
# Live measurement: seconds of load before it, limit for the first batch, limit for the stop.
_WARM_UP_S: Final = 15.0
_START_S: Final = 180.0
_STOP_S: Final = 60.0


class LandedRows(NamedTuple):
    """The rows of a file, which become readable together."""

    readable: float  # s since 1970
    received: np.ndarray[Any, np.dtype[np.int64]]  # ms since 1970


def measure_live(
    rate: int, seconds: float, trigger_s: float, words: Sequence[str] = ()
) -> dict[str, Any]:
    """Append `rate` fixes per second, and measure their age when they become readable."""
    with (
        tempfile.TemporaryDirectory() as folder,
        MeasuredBroker(WAYLOG, Path(folder) / "broker", flush=True) as broker,
        _Job(broker, Path(folder), ("--trigger-seconds", str(trigger_s), *words)) as job,
    ):
        producer = Producer(producer_config(broker.bootstrap_servers, "bench"))
        sent = _send_paced(producer, rate, _WARM_UP_S)
        job.await_file()
        measured = time.time()
        before = len(job.batches_s())
        sent += _send_paced(producer, rate, seconds)
        ended = time.time()
        lost = producer.flush(60)
        job.await_rows(sent - lost)
        landed = [each for each in job.landed() if each.readable >= measured]
        ages = np.concatenate([each.readable * 1000 - each.received for each in landed])
        # Ignore fixes that waited for the job's start.
        ages = ages[np.concatenate([each.received for each in landed]) >= measured * 1000]
        used = job.cpu_s(measured, ended)
        return {
            "name": f"history: live, {trigger_s:g} s batches {' '.join(words)}".rstrip(),
            "part": "history",
            "rate": round(rate * seconds / (ended - measured)),
            "passed": not lost and job.rows() == sent,
            "push_p50_ms": round(float(np.percentile(ages, 50)), 1),
            "push_p95_ms": round(float(np.percentile(ages, 95)), 1),
            "push_p99_ms": round(float(np.percentile(ages, 99)), 1),
            "batch_p95_s": round(float(np.percentile(job.batches_s()[before + 1 :], 95)), 2),
            "cores": round(used / (ended - measured), 3),
            "files": len(landed),
            "cpu_us_per_fix": {"history": round(used * 1e6 / (rate * seconds), 2)},
        }


def measure_catch_up(records: int, words: Sequence[str] = ()) -> dict[str, Any]:
    """Let the job read an existing log; measure it with and without its start."""
    with (
        tempfile.TemporaryDirectory() as folder,
        MeasuredBroker(WAYLOG, Path(folder) / "broker") as broker,
    ):
        ensure_topics(broker.bootstrap_servers)
        producer = Producer(producer_config(broker.bootstrap_servers, "bench"))
        for key, value in _messages(range(records), 1_767_225_600_000):
            produce(producer, key, value)
        lost = producer.flush(120)
        began = time.time()
        with _Job(broker, Path(folder), ("--once", *words)) as job:
            job.wait()
            ended = time.time()
            landed = job.landed()
            rows = job.rows()
            used = job.cpu_s(began, ended)
            readable = sorted({each.readable for each in landed})
            first, last = readable[0], readable[-1]
            # The files of a batch are renamed together: the first batch ends within half a second.
            first_batch = sum(len(each.received) for each in landed if each.readable <= first + 0.5)
            warm, warm_cpu_us = 0.0, None
            if last > first + 0.5:
                warm = (rows - first_batch) / (last - first)
                warm_cpu_us = round(job.cpu_s(first, last) * 1e6 / (rows - first_batch), 2)
            return {
                "name": f"history: catch up {' '.join(words)}".rstrip(),
                "part": "history",
                "rate": round(rows / (ended - began)),
                # After the first batch, the JVM has started and compiled its code.
                "warm_rate": round(warm),
                "warm_cpu_us": warm_cpu_us,
                "passed": not lost and rows == records,
                "cpu_us_per_fix": {"history": round(used * 1e6 / records, 2)},
            }


class _Job:
    """`waylog history run` inside a `with` block."""

    def __init__(self, broker: MeasuredBroker, folder: Path, words: Sequence[str]) -> None:
        ensure_topics(broker.bootstrap_servers)
        self._out = folder / "history"
        self._log = folder / "history.log"
        self._words = [
            *(sys.executable, "-m", "waylog.cli", "history", "run", "--out", str(self._out)),
            *("--bootstrap-servers", broker.bootstrap_servers, *words),
        ]

    def __enter__(self) -> _Job:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._words, env=environment(), stdout=log, stderr=log, start_new_session=True
            )
        self._sampler = Sampler(self._parts)
        self._sampler.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._sampler.__exit__()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _parts(self, processes: dict[int, Process]) -> dict[int, str]:
        found = parts_below(self._process.pid, processes)
        return {pid: part for pid, part in found.items() if part != LOAD}

    def cpu_s(self, began: float, ended: float) -> float:
        return self._sampler.used(began, ended).get("history", 0.0)

    def wait(self) -> None:
        if self._process.wait() != 0:
            raise CommandError(f"history: {self._log.read_text(errors='replace')[-2000:]}")

    def await_file(self) -> None:
        self._await(lambda: bool(self._paths()), "the job wrote nothing")

    def await_rows(self, count: int) -> None:
        self._await(lambda: self.rows() >= count, "the job did not catch up")

    def _await(self, condition: Any, complaint: str) -> None:
        deadline = time.monotonic() + _START_S
        while not condition():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = self._log.read_text(errors="replace")[-2000:]
                raise CommandError(f"{complaint}: {said}")
            time.sleep(0.5)

    def batches_s(self) -> list[float]:
        """Return the seconds that each batch took to read and to write."""
        said = self._log.read_text(errors="replace")
        return [float(each) for each in re.findall(r" files, ([\d.]+) s", said)]

    def _paths(self) -> list[Path]:
        return sorted(self._out.glob("month=*/*.parquet"))

    def rows(self) -> int:
        import pyarrow.parquet as pq

        return sum(pq.read_metadata(path).num_rows for path in self._paths())

    def landed(self) -> list[LandedRows]:
        import pyarrow.parquet as pq

        from waylog.history.row_layout import to_rows

        return [
            LandedRows(
                path.stat().st_ctime_ns / 1e9,
                to_rows(pq.ParquetFile(path).read(["received"]))["received"].to_numpy(),
            )
            for path in self._paths()
        ]


def _messages(numbers: range, time_ms: int) -> Iterator[tuple[bytes, bytes]]:
    for number in numbers:
        index = number % _DEVICES
        device = f"bench/d{index:05d}"
        lat = 47.0 + (index * 7919 % 80_000) * 1e-4 + (number % 977) * 1e-6
        lon = 9.0 + (index * 104_729 % 60_000) * 1e-4 + (number % 1_009) * 1e-6
        fix = Fix(
            id=fix_id(device, time_ms, lat, lon),
            device=device,
            user="bench",
            lat=round(lat, 6),
            lon=round(lon, 6),
            time=time_ms - index % 500,
            received=time_ms,
            accuracy=float(5 + number % 20),
        )
        yield device.encode(), encode(fix)


def _send_paced(producer: Producer, rate: int, seconds: float) -> int:
    """Send on a fixed schedule; fixes that are sent late keep the time they were due."""
    started, sent = time.time(), 0
    slices = round(seconds / _SLICE_S)
    for number in range(slices):
        due = started + number * _SLICE_S
        if (pause := due - time.time()) > 0:
            time.sleep(pause)
        until = round((number + 1) * rate * _SLICE_S)
        for key, value in _messages(range(sent, until), round(due * 1000)):
            produce(producer, key, value)
        sent = until
    return sent


def main(argv: list[str] | None = None) -> int:
    """Measure once and print the figures as one JSON object."""
    parser = argparse.ArgumentParser(
        prog="python -m load_tests.benches.history_bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=("live", "catch-up"))
    parser.add_argument("--engine", choices=("spark", "arrow"), default="spark")
    parser.add_argument("--source", choices=("python", "jvm"), default="python")
    parser.add_argument("--jars", default="", help="of Spark's Kafka connector, for --source jvm")
    parser.add_argument("--rate", type=int, default=20_000, help="fixes a second (20000)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of measuring (60)")
    parser.add_argument("--trigger-seconds", type=float, default=2.0, help="between batches (2)")
    parser.add_argument("--records", type=int, default=2_000_000, help="to catch up (2000000)")
    arguments = parser.parse_args(argv)
    words = ["--engine", arguments.engine, "--source", arguments.source]
    if arguments.jars:
        words += ["--jars", arguments.jars]
    if arguments.what == "live":
        result = measure_live(arguments.rate, arguments.seconds, arguments.trigger_seconds, words)
    else:
        result = measure_catch_up(arguments.records, words)
    print(json.dumps(result))
    return 0 if result["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
