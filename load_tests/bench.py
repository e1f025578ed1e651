"""`make bench`: what the platform does a second, and what a fix costs, as a table.

    python -m load_tests.bench                    the usual shapes, about three minutes
    python -m load_tests.bench --only mqtt-5000   one of them
    python -m load_tests.bench --json             for programs

Generator and platform share the machine, so rates say what both do together; processor time per fix
says what each part needs. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from load_tests.own_platform import OwnPlatform, environment
from load_tests.processor_time import Sampler, parts_below
from load_tests.verify import Log
from waylog.kafka import producer_config
from waylog.messages import Fix, encode, fix_id
from waylog.topics import LOCATION

_LOG_DEVICES: Final = 10_000

#: Name, protocol, devices, fixes a second, seconds.
_SHAPES: Final = (
    ("mqtt-1000", "mqtt", 1_000, 1_000, 20),
    ("mqtt-5000", "mqtt", 5_000, 5_000, 20),
    ("http-500", "http", 500, 500, 20),
    ("batch-5000", "batch", 500, 5_000, 20),
)


def main(argv: list[str] | None = None) -> int:
    """Run the benchmarks; 1 when one of them lost anything."""
    parser = argparse.ArgumentParser(prog="python -m load_tests.bench", description=__doc__)
    names = ["log", *(shape[0] for shape in _SHAPES)]
    parser.add_argument("--only", choices=names, action="append", help="may be repeated")
    parser.add_argument("--records", type=int, default=300_000, help="for the log alone")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = parser.parse_args(argv)
    wanted = arguments.only or names
    passed = True
    if not arguments.json:
        print("| benchmark | a second | ack p50 / p99 ms | address p50 / p99 ms | CPU us each |")
        print("|---|---|---|---|---|", flush=True)
    for name in names:
        if name not in wanted:
            continue
        for result in _runs(arguments.records)[name]():
            passed = passed and result["passed"]
            print(
                msgspec.json.encode(result).decode() if arguments.json else _row(result),
                flush=True,
            )
    return 0 if passed else 1


def _runs(records: int) -> dict[str, Callable[[], list[dict[str, Any]]]]:
    def end_to_end(shape: tuple[str, str, int, int, int]) -> Callable[[], list[dict[str, Any]]]:
        return lambda: [_end_to_end(*shape)]

    return {"log": lambda: _log(records)} | {shape[0]: end_to_end(shape) for shape in _SHAPES}


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
    """The log alone: one producer with acks=all, then one consumer."""
    from confluent_kafka import Producer

    values = [
        encode(
            Fix(
                id=fix_id(f"bench/d{number:05d}", number, 47.0, 9.0),
                device=f"bench/d{number:05d}",
                user="bench",
                lat=47.0 + number * 1e-5,
                lon=9.0 + number * 1e-5,
                time=1_700_000_000_000 + number,
                received=1_700_000_000_000 + number,
                accuracy=5.0,
                battery=80.0,
                source="positions",
            )
        )
        for number in range(_LOG_DEVICES)
    ]
    keys = [f"bench/d{number:05d}".encode() for number in range(_LOG_DEVICES)]
    with OwnPlatform(brokers=1, gateway_workers=1, resolvers=1, history=False) as platform:
        log = Log(platform.bootstrap_servers)
        starts = log.ends((LOCATION,))
        producer = Producer(producer_config(platform.bootstrap_servers, "bench"))
        with Sampler(lambda processes: parts_below(platform.pid, processes)) as sampler:
            began = time.time()
            for number in range(records):
                while True:
                    try:
                        producer.produce(
                            LOCATION, values[number % _LOG_DEVICES], keys[number % _LOG_DEVICES]
                        )
                        break
                    except BufferError:
                        producer.poll(0.05)
                producer.poll(0)
            waiting = producer.flush(120)
            produced = time.time()
            ends = log.ends((LOCATION,))
            reading = time.time()
            read = sum(1 for _ in log.records(LOCATION, starts, ends))
            done = time.time()
        log.close()
    return [
        _of_the_log("log: produce", records, records - waiting, began, produced, sampler),
        _of_the_log("log: consume", records, read, reading, done, sampler),
    ]


def _of_the_log(
    name: str, wanted: int, records: int, began: float, ended: float, sampler: Sampler
) -> dict[str, Any]:
    broker_s = sampler.used(began, ended).get("broker", 0.0)
    return {
        "name": name,
        "rate": round(records / (ended - began)),
        "cpu_us_per_fix": {"broker": round(broker_s * 1e6 / max(1, records), 2)},
        "passed": records >= wanted,
    }


def _row(result: dict[str, Any]) -> str:
    def pair(name: str) -> str:
        values = (result.get(f"{name}_p50_ms"), result.get(f"{name}_p99_ms"))
        return " / ".join("-" if value is None else f"{value:.0f}" for value in values)

    cpu = ", ".join(
        f"{part} {value:.1f}" for part, value in result["cpu_us_per_fix"].items() if value
    )
    name = result["name"] if result["passed"] else f"{result['name']} FAILED"
    return f"| {name} | {result['rate']:,.0f} | {pair('ack')} | {pair('push')} | {cpu} |"


if __name__ == "__main__":
    sys.exit(main())
