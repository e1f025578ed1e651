"""Addresses of an erased device do not come back when the log is read again."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer

from consumers.worker.erasure_filter import ErasureFilter
from consumers.worker.records import OutputRecord
from tests.consumers.running import Broker, Process, await_condition
from tests.odd_records import MALFORMED_VALUES
from waylog.history.erasures import append_erasures
from waylog.kafka.clients import ensure_topics, producer_config
from waylog.kafka.ranges.topic_reader import read_topic
from waylog.kafka.topics import ADDRESS, LOCATION
from waylog.messages import Address, Fix, decode_address, encode, fix_id
from waylog.process.watchdog import Watchdog


def make_fix(device: str, time_ms: int) -> Fix:
    user = device.partition("/")[0]
    new_id = fix_id(device, time_ms, 47.14, 9.52)
    received = int(time.time() * 1000)
    return Fix(
        id=new_id, device=device, user=user, lat=47.14, lon=9.52, time=time_ms, received=received
    )


def append(servers: str, *fixes: Fix) -> None:
    producer = Producer(producer_config(servers, "test"))
    for fix in fixes:
        producer.produce(LOCATION, encode(fix), fix.device.encode())
    assert producer.flush(60) == 0


def addresses(servers: str) -> list[tuple[str, int]]:
    """Return the device and time of each fix that has got an address."""
    values = [record.value() for record in read_topic(servers, ADDRESS)]
    found = [decode_address(value) for value in values if value is not None]
    return sorted((each.device, each.time) for each in found)


def test_a_resolver_that_was_away_resolves_nothing_of_before_an_erasure(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    try:
        servers = broker.address
        ensure_topics(servers)
        before = int(time.time() * 1000) - 60_000
        append(servers, make_fix("ada/phone", before), make_fix("ben/phone", before))
        now = int(time.time() * 1000)
        append_erasures(servers, ["ada/phone"], now)
        # A fix that the phone had kept since before the erasure, and new ones.
        append(servers, make_fix("ada/phone", before + 1), make_fix("ada/phone", now + 1))
        append(servers, make_fix("ben/phone", now + 2))
        resolver = Process("resolver", "--bootstrap-servers", servers)
        try:
            wanted = {("ada/phone", now + 1), ("ben/phone", now + 2)}
            await_condition(lambda: wanted <= set(addresses(servers)), 60, "two addresses")
            of_before = {("ada/phone", before), ("ada/phone", before + 1)}
            assert not of_before & set(addresses(servers))
        finally:
            resolver.stop()
    finally:
        broker.process.stop()


def test_a_result_that_is_no_address_is_none_of_an_erased_device(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    try:
        ensure_topics(broker.address)
        append_erasures(broker.address, ["ada/phone"], 1000)
        erasures = ErasureFilter(broker.address, ADDRESS)
        assert erasures.wait(Watchdog())
        address = Address(
            device="ada/phone", fix_id="1", time=1000, lat=0, lon=0, display_name="", address={}
        )
        erased = OutputRecord(ADDRESS, 0, b"ada/phone", encode(address))
        others = [OutputRecord(ADDRESS, 0, b"ada/phone", value) for value in MALFORMED_VALUES]
        others.append(OutputRecord("out", 0, b"ada/phone", encode(address)))
        assert list(erasures.without_results([erased, *others])) == others
        erasures.close()
    finally:
        broker.kill()


def test_waiting_for_erasures_is_not_taken_for_hanging(
    tmp_path: Path, supervisor: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(tmp_path)
    try:
        ensure_topics(broker.address)
        broker.kill()
        monkeypatch.setenv("NOTIFY_SOCKET", supervisor.getsockname())
        monkeypatch.setenv("WATCHDOG_USEC", str(150_000))
        erasures = ErasureFilter(broker.address, ADDRESS)
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(erasures.wait, Watchdog())
            for _ in range(4):
                assert supervisor.recv(1000) == b"WATCHDOG=1"
            assert not waiting.done()
            monkeypatch.delenv("NOTIFY_SOCKET")
            broker.start()
            waiting.result(60)
        erasures.close()
    finally:
        broker.kill()
