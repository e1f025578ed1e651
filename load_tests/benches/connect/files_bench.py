"""Measures `waylog connect`: records a second, and CPU for a record, of files in and out.

    python -m load_tests.benches.connect.files_bench --records 1000000

A topic with small records of text is written to a file by FileStreamSink, then the file is read
into another topic by FileStreamSource, both with StringConverter. CPU is that of the worker's
process, librdkafka's threads included, from the connector's creation until the last record.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from load_tests.processor_time import read_process
from waylog.config import save_properties
from waylog.kafka.clients import consumer_config, ensure_topics, producer_config
from waylog.kafka.topics import Topic
from waylog.network.free_ports import free_ports

_FROM: Final = Topic("bench-from", 4, {})
_TO: Final = Topic("bench-to", 4, {})
_VALUE: Final = '{"lat":47.1412,"lon":9.5215,"time":%013d}'
_LINE_BYTES: Final = len(_VALUE % 0) + 1
_LOOK_S: Final = 0.02
_LIMIT_S: Final = 600.0


def main(argv: list[str] | None = None) -> int:
    """Run the measurements; print a line of JSON for each."""
    parser = argparse.ArgumentParser(
        prog="python -m load_tests.benches.connect.files_bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--records", type=int, default=1_000_000, help="default: %(default)s")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="waylog-bench-") as name:
        folder = Path(name)
        with broker_process(folder) as servers:
            ensure_topics(servers, [_FROM, _TO])
            _load(servers, arguments.records)
            with worker_process(folder, servers) as worker:
                print(json.dumps(_sink(worker, folder, arguments.records)), flush=True)
                print(json.dumps(_source(worker, folder, servers, arguments.records)), flush=True)
    return 0


@contextmanager
def broker_process(folder: Path) -> Iterator[str]:
    """Run a broker with its files in a folder; give its bootstrap servers."""
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    config = folder / "server.properties"
    properties = {"log.dirs": str(folder / "logs"), "listeners": f"PLAINTEXT://{address}"}
    save_properties(config, properties)
    process = subprocess.Popen(
        [sys.executable, "-m", "waylog.cli", "broker", "--config", str(config)],
        stderr=subprocess.DEVNULL,
    )
    try:
        yield address
    finally:
        process.terminate()
        process.wait()


def _load(servers: str, records: int) -> None:
    producer = Producer(producer_config(servers, "bench") | {"linger.ms": 100})
    for number in range(records):
        while True:
            try:
                producer.produce(_FROM.name, _VALUE % number)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(_LIMIT_S) == 0


class Worker:
    """A worker in a process of its own."""

    def __init__(self, pid: int, url: str) -> None:
        self.pid = pid
        self._url = url

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> None:
        """Ask for something over REST."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, method=method)  # noqa: S310
        if data is not None:
            request.add_header("Content-Type", "application/json")
        urllib.request.urlopen(request).close()  # noqa: S310 (it is a URL of ours)

    def cpu_s(self) -> float:
        """Return the processor time that the worker has used."""
        found = read_process(self.pid)
        assert found is not None
        return found.cpu_s

    def memory_mb(self) -> float:
        """Return the most memory that the worker has had."""
        return self._memory_mb("VmHWM")

    def memory_now_mb(self) -> float:
        """Return the memory that the worker has now."""
        return self._memory_mb("VmRSS")

    def _memory_mb(self, name: str) -> float:
        text = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        found = re.search(rf"{name}:\s+(\d+) kB", text)
        assert found is not None
        return int(found[1]) / 1024


@contextmanager
def worker_process(folder: Path, servers: str) -> Iterator[Worker]:
    """Run a worker with its files in a folder."""
    config = folder / "worker.properties"
    save_properties(
        config,
        {
            "bootstrap.servers": servers,
            "key.converter": "StringConverter",
            "value.converter": "StringConverter",
            "offset.storage.file.filename": str(folder / "offsets.json"),
            "offset.flush.interval.ms": "10000",
            "listeners": "http://127.0.0.1:0",
        },
    )
    lines = folder / "worker.log"
    with lines.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "waylog.cli", "connect", "standalone", str(config)], stderr=log
        )
    try:
        yield Worker(process.pid, _url(process, lines))
    finally:
        process.terminate()
        process.wait()


def _url(process: subprocess.Popen[bytes], lines: Path) -> str:
    """Return the URL of a worker's REST interface, once it is ready."""
    while process.poll() is None:
        if found := re.search(r"connect worker ready (\S+)", lines.read_text(encoding="utf-8")):
            return found[1]
        time.sleep(_LOOK_S)
    raise RuntimeError(f"the worker has not started: {lines.read_text(encoding='utf-8')}")


def measured(
    worker: Worker, kind: str, config: dict[str, str], records: int, done: Any
) -> dict[str, Any]:
    """Run a connector until `done()`; return what it has used."""
    name = f"bench-{kind}"
    cpu_s, began = worker.cpu_s(), time.monotonic()
    worker.ask("POST", "/connectors", {"name": name, "config": config})
    while not done():
        if time.monotonic() - began > _LIMIT_S:
            raise RuntimeError(f"{kind}: not done within {_LIMIT_S:.0f} s")
        time.sleep(_LOOK_S)
    seconds = time.monotonic() - began
    cpu_s = worker.cpu_s() - cpu_s
    worker.ask("DELETE", f"/connectors/{name}")
    return {
        "kind": kind,
        "records": records,
        "seconds": round(seconds, 2),
        "records_per_s": round(records / seconds),
        "us_cpu_per_record": round(1e6 * cpu_s / records, 2),
        "records_per_core_s": round(records / cpu_s),
        "worker_mb": round(worker.memory_mb()),
    }


def _sink(worker: Worker, folder: Path, records: int) -> dict[str, Any]:
    path = folder / "out.txt"
    config = {"connector.class": "FileStreamSink", "topics": _FROM.name, "file": str(path)}

    def done() -> bool:
        return path.exists() and path.stat().st_size >= records * _LINE_BYTES

    return measured(worker, "sink", config, records, done)


def _source(worker: Worker, folder: Path, servers: str, records: int) -> dict[str, Any]:
    path = folder / "out.txt"
    config = {"connector.class": "FileStreamSource", "topic": _TO.name, "file": str(path)}
    consumer = Consumer(consumer_config(servers, "bench", "bench"))

    def done() -> bool:
        ends = [
            consumer.get_watermark_offsets(TopicPartition(_TO.name, number), timeout=10.0)[1]
            for number in range(_TO.partitions)
        ]
        return sum(ends) >= records

    try:
        return measured(worker, "source", config, records, done)
    finally:
        consumer.close()


if __name__ == "__main__":
    raise SystemExit(main())
