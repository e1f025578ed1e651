"""Measures what a target that is away for minutes does to the others that read the same topic.

    python -m load_tests.benches.connect.outage_bench --target postgresql --away 600
    python -m load_tests.benches.connect.outage_bench --target http-hangs --away 600

A worker has two connectors on topic `location`: one whose target goes away and comes back, and a
FileStreamSink, which goes on. A resolver, in a process of its own, reads the topic too. While fixes
come at a constant rate, this tells before the outage, during it, while the first connector catches
up, and afterwards: how long a fix takes until it is in the file, and until its address is in topic
`address`; the worker's processor time and memory. At the end each acknowledged fix has to be in the
target.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import psycopg
from confluent_kafka import Consumer, Producer, TopicPartition

from load_tests.benches.connect.files_bench import Worker, broker_process, worker_process
from load_tests.benches.connect.targets import answering_server, postgres_process
from waylog.kafka.clients import consumer_config, ensure_topics, producer_config
from waylog.kafka.topics import ADDRESS, LOCATION, TOPICS
from waylog.malformed import MALFORMED
from waylog.messages import Fix, encode, fix_id

_TARGETS: Final = ("postgresql", "http-refuses", "http-hangs")
_DEVICES: Final = 1000
_STEP_S: Final = 0.05
_LOOK_S: Final = 0.01
_CATCH_UP_S: Final = 1200.0
_MEMORY_S: Final = 60.0
_NAME: Final = "measured"


class _Times(msgspec.Struct):
    received: int


class _Resolved(msgspec.Struct):
    time: int


class Latencies:
    """How long records took, and when they came."""

    def __init__(self) -> None:
        self._at: list[float] = []  # seconds of time.time(), ascending
        self._ms: list[float] = []

    def add(self, sent_ms: int) -> None:
        """Take note of a record that is there now."""
        now = time.time()
        self._at.append(now)
        self._ms.append(now * 1000 - sent_ms)

    def between(self, since: float, until: float) -> dict[str, float]:
        """Return the 50th and 99th percentile, and the longest, in ms."""
        found = sorted(self._ms[bisect_left(self._at, since) : bisect_left(self._at, until)])
        if not found:
            return {}
        return {
            "p50_ms": round(found[len(found) // 2], 1),
            "p99_ms": round(found[len(found) * 99 // 100], 1),
            "max_ms": round(found[-1], 1),
        }


class Target:
    """What goes away: how it stops and starts, its connector, and which ids it has."""

    def __init__(
        self,
        config: dict[str, str],
        stop: Callable[[], None],
        start: Callable[[], None],
        ids: Callable[[], set[str]],
        count: Callable[[], int],
    ) -> None:
        self.config: Final = config
        self.stop: Final = stop
        self.start: Final = start
        self.ids: Final = ids
        #: About how many records it has, at least; cheap.
        self.count: Final = count


def main(argv: list[str] | None = None) -> int:
    """Run the measurement; print a line of JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m load_tests.benches.connect.outage_bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--target", choices=_TARGETS, required=True)
    parser.add_argument("--rate", type=int, default=2000, help="fixes a second: %(default)s")
    parser.add_argument("--away", type=float, default=600.0, help="seconds: %(default)s")
    parser.add_argument(
        "--calm", type=float, default=60.0, help="seconds before and afterwards: %(default)s"
    )
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="waylog-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        servers = stack.enter_context(broker_process(folder))
        ensure_topics(servers, TOPICS)
        worker = stack.enter_context(worker_process(folder, servers))
        make = _postgresql if arguments.target == "postgresql" else _http
        target = stack.enter_context(make(arguments.target, folder))
        stack.enter_context(_resolver(servers))
        print(json.dumps(_measure(arguments, folder, servers, worker, target)), flush=True)
    return 0


def _measure(
    arguments: Any, folder: Path, servers: str, worker: Worker, target: Target
) -> dict[str, Any]:
    ending = threading.Event()
    live, addresses = Latencies(), Latencies()
    load = _Load(servers, arguments.rate)
    lines = folder / "live.txt"
    common = {"topics": LOCATION, "value.converter": "StringConverter"}
    file_sink = {"connector.class": "FileStreamSink", "file": str(lines)}
    worker.ask("POST", "/connectors", {"name": "live", "config": common | file_sink})
    worker.ask("POST", "/connectors", {"name": _NAME, "config": common | target.config})
    threads = [
        threading.Thread(target=load.run, args=(ending,)),
        threading.Thread(target=_follow_file, args=(lines, live, ending)),
        threading.Thread(target=_follow_addresses, args=(servers, addresses, ending)),
    ]
    for each in threads:
        each.start()
    phases: dict[str, tuple[float, float]] = {}
    figures: dict[str, dict[str, float]] = {}
    memory: list[int] = []

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        began, cpu_s, count = time.time(), worker.cpu_s(), target.count()
        yield
        phases[name] = began, time.time()
        seconds = time.time() - began
        figures[name] = {
            "seconds": round(seconds, 1),
            "worker_cores": round((worker.cpu_s() - cpu_s) / seconds, 2),
            "worker_mb": round(worker.memory_now_mb()),
            "records_per_s": round((target.count() - count) / seconds) if count >= 0 else 0,
        }

    try:
        _await(lambda: target.count() > 10 * arguments.rate, "the connectors have begun")
        with phase("before"):
            time.sleep(arguments.calm)
        target.stop()
        with phase("away"):
            end = time.monotonic() + arguments.away
            while (left_s := end - time.monotonic()) > 0:
                memory.append(round(worker.memory_now_mb()))
                time.sleep(min(left_s, _MEMORY_S))
        target.start()
        with phase("catching-up"):
            _await(
                lambda: load.sent - target.count() < 3 * arguments.rate, "the target has caught up"
            )
        with phase("after"):
            time.sleep(arguments.calm)
    finally:
        ending.set()
        for each in threads:
            each.join()
    _await(lambda: len(target.ids()) >= load.sent, "all fixes are there")
    lost = len(load.ids - target.ids())
    found: dict[str, Any] = {"target": arguments.target, "sent": load.sent, "lost": lost}
    for name, (since, until) in phases.items():
        found[name] = figures[name] | {
            "file": live.between(since, until),
            "address": addresses.between(since, until),
        }
    found["worker_mb_while_away"] = memory
    found["worker_mb_max"] = round(worker.memory_mb())
    return found


def _await(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _CATCH_UP_S
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {_CATCH_UP_S:.0f} s: {what}")
        time.sleep(0.5)


class _Load:
    def __init__(self, servers: str, rate: int) -> None:
        self._producer = Producer(producer_config(servers, "bench") | {"linger.ms": 20})
        self._rate = rate
        self.ids: set[str] = set()
        self.sent = 0

    def run(self, ending: threading.Event) -> None:
        number, began = 0, time.monotonic()
        while not ending.wait(_STEP_S):
            due = int((time.monotonic() - began) * self._rate)
            while number < due:
                self._append(number)
                number += 1
            self._producer.poll(0)
        if self._producer.flush(_CATCH_UP_S):
            raise RuntimeError("the log has not taken all fixes")

    def _append(self, number: int) -> None:
        user = f"user{number % _DEVICES}"
        device, now_ms = f"{user}/phone", round(time.time() * 1000)
        lat, lon = 47.0 + number % 1000 / 1e4, 9.5 + number % 977 / 1e4
        new_id = fix_id(f"{device} {number}", now_ms, lat, lon)
        fix = Fix(
            id=new_id, device=device, user=user, lat=lat, lon=lon, time=now_ms, received=now_ms,
            accuracy=14.0, speed=6.4, battery=72.0, source="owntracks",
        )  # fmt: skip
        self._producer.produce(LOCATION, encode(fix), device, on_delivery=self._delivered)
        self.ids.add(new_id)

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            raise RuntimeError(str(error))
        self.sent += 1


def _follow_file(path: Path, latencies: Latencies, ending: threading.Event) -> None:
    decoder = msgspec.json.Decoder(_Times)
    while not path.exists() and not ending.wait(_LOOK_S):
        pass
    with path.open("rb") as lines:
        while not ending.wait(_LOOK_S):
            for line in lines.read().splitlines():
                try:
                    latencies.add(decoder.decode(line).received)
                except MALFORMED:
                    continue  # half a line


def _follow_addresses(servers: str, latencies: Latencies, ending: threading.Event) -> None:
    decoder = msgspec.json.Decoder(_Resolved)
    consumer = Consumer(consumer_config(servers, "bench", "bench"))
    partitions = consumer.list_topics(ADDRESS, timeout=30.0).topics[ADDRESS].partitions
    consumer.assign([TopicPartition(ADDRESS, number, 0) for number in partitions])
    while not ending.is_set():
        for message in consumer.consume(1000, _LOOK_S):
            value = message.value()
            if message.error() is None and value is not None:
                latencies.add(decoder.decode(value).time)
    consumer.close()


@contextmanager
def _resolver(servers: str) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "waylog.cli", "resolver", "--bootstrap-servers", servers],
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _postgresql(_target: str, _folder: Path) -> Iterator[Target]:
    with postgres_process() as server:

        def query(statement: str) -> list[tuple[Any, ...]]:
            try:
                with psycopg.connect(server.url, autocommit=True) as connection:
                    return connection.execute(statement.encode()).fetchall()
            except (psycopg.OperationalError, psycopg.errors.UndefinedTable):
                return []

        def count() -> int:
            # Counting rows would cost the server more than writing them.
            found = query("SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = 'fixes'")
            return int(found[0][0]) if found else -1

        yield Target(
            {
                "connector.class": "PostgreSqlSink",
                "connection.url": server.url,
                "table.name.format": "fixes",
                "insert.mode": "upsert",
                "pk.mode": "record_value",
                "pk.fields": "id",
                "auto.create": "true",
            },
            server.stop,
            server.start,
            lambda: {each for (each,) in query("SELECT id FROM fixes")},
            count,
        )


@contextmanager
def _http(target: str, folder: Path) -> Iterator[Target]:
    path = folder / "ids.txt"
    with answering_server(path) as server:

        def ids() -> set[str]:
            return set(path.read_text(encoding="ascii").splitlines())

        def count() -> int:
            return path.stat().st_size // (len(fix_id("", 0, 0.0, 0.0)) + 1) if path.exists() else 0

        stops = (server.stop, server.start)
        yield Target(
            {
                "connector.class": "HttpSink",
                "url": server.url,
                "batch.max.records": "100",
            },
            *(stops if target == "http-refuses" else (server.freeze, server.thaw)),
            ids,
            count,
        )


if __name__ == "__main__":
    sys.exit(main())
