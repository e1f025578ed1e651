"""`make bench`: what the platform does a second, and what a fix costs, as a table.

    python -m load_tests.benches.bench                    the usual shapes, about three minutes
    python -m load_tests.benches.bench --only mqtt-5000   one of them
    python -m load_tests.benches.bench --json             for programs

Generator and platform share the machine, so rates say what both do together; processor time per fix
says what each part needs. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from load_tests.benches import broker_bench
from load_tests.benches.broker_processes import default_jars
from load_tests.benches.connect.targets import postgres_programs
from load_tests.benches.filling import produce
from load_tests.own_platform import OwnPlatform, environment
from load_tests.processor_time import Sampler, parts_below
from load_tests.verify import Log
from waylog.extras import is_installed
from waylog.kafka.clients import producer_config
from waylog.kafka.topics import LOCATION
from waylog.messages import Fix, encode, fix_id

_LOG_DEVICES: Final = 10_000
_CATCH_UP_S: Final = 300.0

#: Name, protocol, devices, fixes per second, seconds.
_SHAPES: Final = (
    ("mqtt-1000", "mqtt", 1_000, 1_000, 20),
    ("mqtt-5000", "mqtt", 5_000, 5_000, 20),
    ("http-500", "http", 500, 500, 20),
    ("batch-5000", "batch", 500, 5_000, 20),
)


def main(argv: list[str] | None = None) -> int:
    """Run the benchmarks; return 1 when one of them lost anything."""
    parser = argparse.ArgumentParser(
        prog="python -m load_tests.benches.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ["broker", "cluster", "log", "geo", "connect", *(shape[0] for shape in _SHAPES)]
    parser.add_argument("--only", choices=names, action="append", help="may be repeated")
    parser.add_argument(
        "--records",
        type=int,
        default=300_000,
        help="for the log, the resolver, the history and connectors",
    )
    parser.add_argument(
        "--geo", metavar="INDEX", help="for the geocoder's rows (default: the embedded world)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = parser.parse_args(argv)
    wanted = arguments.only or names
    passed = True
    if not arguments.json:
        print("| benchmark | a second | ack p50 / p99 ms | end to end p50 / p99 ms | CPU us each |")
        print("|---|---|---|---|---|", flush=True)
    for name in names:
        if name not in wanted:
            continue
        for result in _runs(arguments.records, arguments.geo)[name]():
            passed = passed and result["passed"]
            print(
                msgspec.json.encode(result).decode() if arguments.json else _row(result),
                flush=True,
            )
    return 0 if passed else 1


def _runs(records: int, geo: str | None) -> dict[str, Callable[[], list[dict[str, Any]]]]:
    def end_to_end(shape: tuple[str, str, int, int, int]) -> Callable[[], list[dict[str, Any]]]:
        return lambda: [_end_to_end(*shape)]

    return {
        "broker": lambda: _broker(records, 1),
        "cluster": lambda: _broker(records, 3),
        "log": lambda: _log(records),
        "geo": lambda: _geo(geo),
        "connect": lambda: _connect(records),
        **{shape[0]: end_to_end(shape) for shape in _SHAPES},
    }


def _connect(records: int) -> list[dict[str, Any]]:
    """Measure connectors, each in a worker of its own; see docs/connect.md."""
    rows: list[dict[str, Any]] = []
    benches = (
        ("files_bench", "--records", str(records)),
        ("sinks_bench", "--kind", "postgresql", "--records", str(records)),
        ("sinks_bench", "--kind", "http", "--records", str(max(records // 5, 1))),
    )
    for name, *words in benches:
        if "postgresql" in words and not (postgres_programs() and is_installed("postgresql")):
            continue
        process = subprocess.run(
            [sys.executable, "-m", f"load_tests.benches.connect.{name}", *words],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if process.returncode != 0:
            raise SystemExit(f"connect: {process.stderr.strip()}")
        for line in process.stdout.splitlines():
            found = msgspec.json.decode(line)
            rows.append(
                {
                    "name": f"connect, {found['kind']} ({found['worker_mb']} MB)",
                    "part": "connect",
                    "rate": found["records_per_s"],
                    "passed": True,
                    "cpu_us_per_fix": {"worker": found["us_cpu_per_record"]},
                }
            )
    return rows


def _broker(records: int, brokers: int) -> list[dict[str, Any]]:
    """Measure one broker or three, and Apache Kafka if `make test-kafka` has installed its jars."""
    wanted = [
        case
        for case in broker_bench.cases()
        if case.codec in {"none", "lz4"}
        and (brokers == 1 or (case.acks, case.size) == ("all", 120))
    ]
    rows: list[dict[str, Any]] = []
    for result in broker_bench.measure(
        records, jars=default_jars(), rounds=1, wanted=wanted, brokers=brokers
    ):
        if result["kind"] == "throughput":
            for verb, what in (("produced", "produce"), ("consumed", "consume")):
                row = _of_a_broker(f"{result['name']}, {what}", result, result[f"{verb}_per_s"])
                row["cpu_us_per_fix"] = {"broker": result[f"{what}_cpu_s"]}
                rows.append(row)
        elif result["kind"] == "latency":
            row = _of_a_broker(f"{result['name']}, paced", result, result["rate"])
            row["push_p50_ms"], row["push_p99_ms"] = result["p50_ms"], result["p99_ms"]
            row["cpu_us_per_fix"] = {"broker": round(result["cores"] * 1e6 / result["rate"], 2)}
            rows.append(row)
        else:
            memory = f"{result['rest_mib']} MiB at rest, {result['loaded_mib']} MiB loaded"
            row = _of_a_broker(f"{result['name']}: {memory}", result, 0)
            rows.append(row | {"cpu_us_per_fix": {}})
    return rows


def _of_a_broker(name: str, result: dict[str, Any], rate: int) -> dict[str, Any]:
    return {"name": name, "part": "broker", "rate": rate, "passed": result["passed"]}


def _geo(index: str | None) -> list[dict[str, Any]]:
    """Measure lookups on one core, and other geocoders that are installed."""
    process = subprocess.run(
        [
            *(sys.executable, "-m", "waylog.cli", "geo", "bench", "--json"),
            *(("--index", index) if index else ()),
        ],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode != 0:
        raise SystemExit(f"geo: {process.stderr.strip()}")
    rows = (msgspec.json.decode(line) for line in process.stdout.splitlines())
    return [
        {
            "name": row["name"],
            "rate": round(1e6 / row["cpu_us"]),
            "passed": True,
            "cpu_us_per_fix": {"geocoder": row["cpu_us"]},
        }
        for row in rows
    ]


def _end_to_end(name: str, protocol: str, users: int, rate: int, seconds: int) -> dict[str, Any]:
    words = ["--protocol", protocol, "--users", str(users), "--rate", str(rate)]
    process = subprocess.run(
        [sys.executable, "-m", "waylog.cli", "load", *words, "--duration", str(seconds), "--json"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    lines = process.stdout.splitlines()
    if not lines:
        raise SystemExit(f"{name}: {process.stderr.strip()}")
    result: dict[str, Any] = msgspec.json.decode(lines[-1])
    return {"name": name} | result


def _log(records: int) -> list[dict[str, Any]]:
    """Measure a producer with acks=all, the resolver catching up, a consumer, the history job."""
    from confluent_kafka import Producer

    messages = [_message(number) for number in range(records)]
    with (
        tempfile.TemporaryDirectory() as folder,
        OwnPlatform(brokers=1, gateway_workers=1, resolvers=1, history=False) as platform,
    ):
        log = Log(platform.bootstrap_servers)
        starts = log.ends((LOCATION,))
        producer = Producer(producer_config(platform.bootstrap_servers, "bench"))
        with Sampler(lambda processes: parts_below(platform.pid, processes)) as sampler:
            began = time.time()
            for key, value in messages:
                produce(producer, key, value)
            waiting = producer.flush(120)
            produced = time.time()
            ends = log.ends((LOCATION,))
            resolved = _await_resolver(platform.bootstrap_servers, ends)
            reading = time.time()
            read = sum(1 for _ in log.records(LOCATION, starts, ends))
            done = time.time()
        log.close()
        results = [
            _of_a_part("log: produce", "broker", records, records - waiting, began, produced),
            _of_a_part("resolver: catch up", "resolver", records, records, began, resolved),
            _of_a_part("log: consume", "broker", records, read, reading, done),
        ]
        for result, (start, end) in zip(
            results, ((began, produced), (began, resolved), (reading, done)), strict=True
        ):
            used = sampler.used(start, end).get(result["part"], 0.0)
            result["cpu_us_per_fix"] = {result["part"]: round(used * 1e6 / records, 2)}
        return [*results, _history(platform.bootstrap_servers, records, f"{folder}/history")]


def _message(number: int) -> tuple[bytes, bytes]:
    device = f"bench/d{number % _LOG_DEVICES:05d}"
    time_ms = 1_700_000_000_000 + number * 100
    lat, lon = 47.0 + (number % 977) * 1e-3, 9.0 + (number % 1_009) * 1e-3
    fix = Fix(
        id=fix_id(device, time_ms, lat, lon),
        device=device,
        user="bench",
        lat=lat,
        lon=lon,
        time=time_ms,
        received=time_ms,
        accuracy=5.0,
        battery=80.0,
        source="positions",
    )
    return device.encode(), encode(fix)


def _await_resolver(bootstrap_servers: str, ends: dict[tuple[str, int], int]) -> float:
    """Return when the resolver's group had committed everything (s since 1970)."""
    from confluent_kafka import Consumer, TopicPartition

    from waylog.kafka.clients import consumer_config

    consumer = Consumer(consumer_config(bootstrap_servers, "bench-lag", "resolver"))
    partitions = [TopicPartition(topic, number) for topic, number in ends]
    deadline = time.monotonic() + _CATCH_UP_S
    try:
        while time.monotonic() < deadline:
            committed = consumer.committed(partitions, timeout=10.0)
            if all(each.offset >= ends[(each.topic, each.partition)] for each in committed):
                return time.time()
            time.sleep(0.05)
    finally:
        consumer.close()
    raise SystemExit("the resolver did not catch up")


def _history(bootstrap_servers: str, records: int, out: str) -> dict[str, Any]:
    """Measure the history job from a cold start to the end of the log, with the JVM's start."""
    from pyarrow import dataset

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.time()
    words = ["history", "run", "--once", "--bootstrap-servers", bootstrap_servers, "--out", out]
    process = subprocess.run(
        [sys.executable, "-m", "waylog.cli", *words],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    ended = time.time()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode != 0:
        raise SystemExit(f"history: {process.stderr.strip()[-2000:]}")
    rows = dataset.dataset(out, partitioning="hive").count_rows()
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    result = _of_a_part("history: cold start to end", "history", records, rows, began, ended)
    result["cpu_us_per_fix"] = {"history": round(cpu_s * 1e6 / records, 2)}
    return result


def _of_a_part(
    name: str, part: str, wanted: int, done: int, began: float, ended: float
) -> dict[str, Any]:
    return {
        "name": name,
        "part": part,
        "rate": round(done / (ended - began)),
        "passed": done == wanted,
    }


def _row(result: dict[str, Any]) -> str:
    def pair(name: str) -> str:
        values = (result.get(f"{name}_p50_ms"), result.get(f"{name}_p99_ms"))
        return " / ".join(
            "-" if value is None else f"{value:.{1 if value < 10 else 0}f}" for value in values
        )

    cpu = ", ".join(
        f"{part} {value:.1f}" for part, value in result["cpu_us_per_fix"].items() if value
    )
    name = result["name"] if result["passed"] else f"{result['name']} FAILED"
    return f"| {name} | {result['rate']:,.0f} | {pair('ack')} | {pair('push')} | {cpu} |"


if __name__ == "__main__":
    sys.exit(main())
