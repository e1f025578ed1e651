"""Measures the gateway's producer: CPU for a record, without security, with TLS, with TLS and SASL.

    python -m load_tests.benches.producer_bench --seconds 4 --rounds 3

One broker runs with a listener of each kind. Each measurement is a process of its own that appends
records at a steady rate, as a gateway does; what the broker costs is not in the figures. The kinds
take turns, since on a busy machine the figures of a minute are comparable, and those of an hour are
not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import trustme
import uvloop

from waylog.config import save_properties
from waylog.kafka.batch_producer import BatchProducer
from waylog.kafka.clients import ensure_topics
from waylog.kafka.connection.properties import ENVIRONMENT
from waylog.kafka.topics import Topic
from waylog.network.free_ports import free_ports

_TOPIC: Final = "bench"
_PARTITIONS: Final = 12
_TICK_S: Final = 0.02
_KEYS: Final = [b"user/device-%d" % number for number in range(1000)]
_VALUE: Final = b'{"lat":47.1412,"lon":9.5215,"time":1790000000000,"accuracy":5,"battery":80}' * 3
_LISTENERS: Final = {"plain": "PLAINTEXT", "tls": "SSL", "tls+sasl": "SASL_SSL"}


def main(argv: list[str] | None = None) -> int:
    """Run the measurements; print a line of JSON for each."""
    parser = argparse.ArgumentParser(
        prog="python -m load_tests.benches.producer_bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=4.0, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--rate", type=int, default=10_000, help="records a second")
    arguments = parser.parse_args(argv)
    with (
        tempfile.TemporaryDirectory(prefix="waylog-bench-") as folder,
        _broker(Path(folder)) as addresses,
    ):
        for _ in range(arguments.rounds):
            for kind, address in addresses.items():
                given = (Path(folder), kind, address, arguments.rate, arguments.seconds)
                print(json.dumps(_in_process(_append, *given)), flush=True)
    return 0


def _in_process(function: Any, *arguments: Any) -> Any:
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(function, arguments)


@contextmanager
def _broker(folder: Path) -> Iterator[dict[str, str]]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(folder / "broker.pem"))
    for kind, protocol in _LISTENERS.items():
        properties = {"security.protocol": protocol, "ssl.ca.location": str(folder / "ca.pem")}
        if "sasl" in kind:
            properties |= {"sasl.mechanism": "PLAIN"}
            properties |= {"sasl.username": "bench", "sasl.password": "bench"}
        save_properties(folder / kind, properties)
    addresses = {
        kind: f"127.0.0.1:{port}"
        for kind, port in zip(_LISTENERS, free_ports(len(_LISTENERS)), strict=True)
    }
    save_properties(
        folder / "server.properties",
        {
            "log.dirs": str(folder / "logs"),
            "listeners": ",".join(f"{_LISTENERS[each]}://{addresses[each]}" for each in addresses),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "broker.pem"),
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.jaas.config": 'PlainLoginModule required user_bench="bench";',
        },
    )
    command = ["-m", "waylog.cli", "broker", "--config", str(folder / "server.properties")]
    process = subprocess.Popen([sys.executable, *command])
    try:
        ensure_topics(addresses["plain"], [Topic(_TOPIC, _PARTITIONS, {})])
        yield addresses
    finally:
        process.terminate()
        process.wait()


def _append(folder: Path, kind: str, address: str, rate: int, seconds: float) -> dict[str, Any]:
    os.environ[ENVIRONMENT] = str(folder / kind)
    return uvloop.run(_measured(kind, address, rate, seconds))


async def _measured(kind: str, address: str, rate: int, seconds: float) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    producer = BatchProducer(address, "bench", loop)
    await producer.append(_TOPIC, _VALUE, _KEYS[0])  # the connections are open now
    acknowledged = failed = sent = 0

    def delivered(error: Exception | None, _position: object) -> None:
        nonlocal acknowledged, failed
        failed += error is not None
        acknowledged += error is None

    began_cpu_s, began = time.process_time(), loop.time()
    while (elapsed_s := loop.time() - began) < seconds:
        while sent < elapsed_s * rate:
            producer.send(_TOPIC, _VALUE, _KEYS[sent % len(_KEYS)], None, delivered)
            sent += 1
        await asyncio.sleep(_TICK_S)
    missing = await producer.close(30.0)
    cpu_s = time.process_time() - began_cpu_s
    return {
        "kind": kind,
        "records": acknowledged,
        "failed": failed + missing,
        "us_per_record": round(1e6 * cpu_s / max(1, acknowledged), 2),
    }


if __name__ == "__main__":
    raise SystemExit(main())
