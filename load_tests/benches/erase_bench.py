"""Erasing one device of a thousand: how long it takes, and whether it can be read anywhere.

    python -m load_tests.benches.erase_bench --records 10000000 --devices 1000

The log's values are sealed. A broker, the history and a gateway are the platform's own; the fixes
are written to the log by this program. In the end every record of the log, every file of the
history and of the places, and the gateway are looked at.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from load_tests.benches.broker_processes import WAYLOG, MeasuredBroker
from load_tests.benches.filling import fill
from load_tests.benches.measured_gateway import MeasuredGateway
from load_tests.own_platform import run_waylog
from waylog.kafka.batch_producer import BatchProducer
from waylog.kafka.clients import consumer_config, ensure_topics
from waylog.kafka.topics import ADDRESS, LOCATION
from waylog.messages import Address, encode, fix_id
from waylog.sealing.sealing import ENVIRONMENT, is_sealed, sealed_if_configured, shared_key_ring
from waylog.sealing.value_encryption import ensure_master_key, load_master_key
from waylog.sealing.value_keys import KeyRing

_START_MS: Final = 1_767_225_600_000
_STEP_MS: Final = 120_000


def measure(records: int, devices: int, folder: Path) -> dict[str, Any]:
    """Fill a platform, erase a device, and search for it everywhere."""
    key_file = folder / "master.key"
    ensure_master_key(key_file)
    os.environ[ENVIRONMENT] = str(key_file)
    history, places = folder / "history", folder / "places"
    gone = _device(devices // 2)
    with MeasuredBroker(WAYLOG, folder / "broker") as broker:
        servers = broker.bootstrap_servers
        ensure_topics(servers)
        asyncio.run(_make_keys(servers, devices))
        fill(servers, _sealed_fixes(servers, records, devices))
        run = ("history", "run", "--once", "--engine", "arrow", "--out", str(history))
        run_waylog(*run, "--bootstrap-servers", servers)
        run_waylog("history", "compact", "--all", "--out", str(history))
        run_waylog(
            *("places", "run", "--once", "--engine", "arrow"),
            *("--history", str(history), "--out", str(places)),
        )
        with MeasuredGateway(servers, folder) as gateway:
            known = _answers(gateway, gone)
            said = run_waylog(
                *("history", "erase", "--device", gone, "--yes", "--json", "--patience", "60"),
                *("--out", str(history), "--places", str(places), "--bootstrap-servers", servers),
            )
            report = json.loads(said)
            still = _await_erased(gateway, gone)
        log = _scan_log(servers, gone, load_master_key(key_file))
        files = _scan_files(history, gone) + _scan_files(places, gone)
    return {
        "name": "erase: one device",
        "records": records,
        "devices": devices,
        "seconds": report["seconds"],
        "rows": report["rows"],
        "files_rewritten": report["files_rewritten"],
        "files": report["files_looked_at"],
        "keys_gone": report["keys_gone"],
        "log": log,
        "files_with_it": files,
        "gateway_knew": known,
        "gateway_knows": still,
        "passed": (
            report["rows"] == records // devices
            and log["readable"] == 0
            and log["unreadable"] > 0
            and report["keys_gone"]
            and not files
            and not any(still.values())
            and all(known.values())
        ),
    }


def _device(number: int) -> str:
    return f"bench/d{number:05d}"


async def _make_keys(servers: str, devices: int) -> None:
    """Write each device's address, the first value that is encrypted with its key."""
    loop = asyncio.get_running_loop()
    producer = sealed_if_configured(BatchProducer(servers, "bench", loop), servers, loop)
    appended = []
    for device in map(_device, range(devices)):
        address = Address(
            device=device, fix_id="0", time=1, lat=47.0, lon=9.0, display_name="x", address={}
        )
        appended.append(producer.append(ADDRESS, encode(address), device.encode()))
    await asyncio.gather(*appended)
    await producer.close()


def _sealed_fixes(servers: str, records: int, devices: int) -> Iterator[tuple[bytes, bytes]]:
    ring = shared_key_ring(servers)
    assert ring is not None
    for number in range(records):
        index, step = number % devices, number // devices
        device, time_ms = _device(index), _START_MS + step * _STEP_MS
        # The device alternates between two places, half a day at each.
        lat = 47.0 + index * 1e-3 + (step // 360 % 2) * 0.05 + (number % 977) * 1e-7
        lon = 9.0 + index * 7e-4 + (number % 1_009) * 1e-7
        value = (
            f'{{"id":"{fix_id(device, time_ms, lat, lon)}","device":"{device}","user":"bench",'
            f'"lat":{lat:.7f},"lon":{lon:.7f},"time":{time_ms},"received":{time_ms + 300},'
            f'"accuracy":{5 + number % 20}}}'
        )
        key = device.encode()
        yield key, ring.seal_value(LOCATION, value.encode(), key)


def _answers(gateway: MeasuredGateway, device: str) -> dict[str, bool]:
    """Return which data of a device the gateway has."""
    name = device.replace("/", "%2F")
    span = f"from={_START_MS}&to={_START_MS + 366 * 86_400_000}&format=csv"
    return {
        "device": gateway.get(f"/v1/devices/{name}") is not None,
        "address": gateway.get(f"/v1/devices/{name}/address") is not None,
        "track": (gateway.get(f"/v1/devices/{name}/track?{span}") or b"").count(b"\n") > 1,
        "places": b"place_id" in (gateway.get(f"/v1/devices/{name}/places") or b""),
    }


def _await_erased(gateway: MeasuredGateway, device: str) -> dict[str, bool]:
    """Wait up to a minute for the erasure to take effect; return what the gateway still has."""
    deadline = time.monotonic() + 60
    while any((known := _answers(gateway, device)).values()) and time.monotonic() < deadline:
        time.sleep(1)
    return known


def _scan_log(servers: str, device: str, master: bytes) -> dict[str, int]:
    """Count the records of the device in all topics, and those that can be read with all keys."""
    ring = KeyRing(servers, master)
    ring.catch_up()
    found = {"records": 0, "unreadable": 0, "readable": 0}
    for value, record in _records(servers):
        found["records"] += 1
        if device.encode() not in (record or b"") and device.encode() not in (value or b""):
            continue
        if value is None:
            continue
        opened = ring.open_value(value, record) if is_sealed(value) else value
        found["unreadable" if opened is None else "readable"] += 1
    ring.close()
    return found


def _records(servers: str) -> Iterator[tuple[bytes | None, bytes | None]]:
    consumer = Consumer(
        consumer_config(servers, "bench-scan", "bench-scan", enable_partition_eof=True)
    )
    try:
        topics = consumer.list_topics(timeout=10).topics
        for topic in topics.values():
            for partition in topic.partitions:
                consumer.assign([TopicPartition(str(topic.topic), partition, 0)])
                ended = False
                while not ended:
                    for message in consumer.consume(5000, timeout=0.5):
                        error = message.error()
                        if error is None:
                            yield message.value(), message.key()
                        elif error.code() == KafkaError._PARTITION_EOF:
                            ended = True
                consumer.unassign()
    finally:
        consumer.close()


def _scan_files(folder: Path, device: str) -> list[str]:
    """Return the files with rows or the name of the device, except the list of erased devices."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    found = []
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        if path.name == "_erased.json":
            continue
        if device.encode() in path.read_bytes():
            found.append(str(path))
        elif path.suffix == ".parquet":
            parquet = pq.ParquetFile(path)
            if "device" in parquet.schema_arrow.names:
                column = parquet.read(["device"])["device"].cast("string")
                if pc.any(pc.equal(column, device)).as_py():
                    found.append(str(path))
    return found


def main(argv: list[str] | None = None) -> int:
    """Measure once and print the figures as one JSON object."""
    parser = argparse.ArgumentParser(
        prog="python -m load_tests.benches.erase_bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--records", type=int, default=10_000_000, help="fixes (10000000)")
    parser.add_argument("--devices", type=int, default=1_000, help="that send them (1000)")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="waylog-erase-") as folder:
        result = measure(arguments.records, arguments.devices, Path(folder))
    print(json.dumps(result))
    return 0 if result["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
