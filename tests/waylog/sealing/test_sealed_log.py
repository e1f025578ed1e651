"""Sealed values on their way into the log, with a real broker and the clients of two processes."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from gateway.fixes.receipts import Receipt
from tests.contract.refusing_topic import ClusterWithRefusingTopic
from tests.dying_threads import assert_process_ends
from tests.odd_records import MALFORMED_VALUES
from tests.spark.running import start_broker
from waylog.config import ConfigError
from waylog.kafka.batch_producer import BatchProducer
from waylog.kafka.batch_reader import BatchReader
from waylog.kafka.clients import AppendError, ensure_topics
from waylog.kafka.fetched_records import FetchedRecord
from waylog.kafka.librdkafka_producer import append_records
from waylog.kafka.topics import LOCATION, LOG, VALUE_KEY, VALUE_KEY_TOPIC
from waylog.sealing.sealed_log import SealedLog
from waylog.sealing.sealing import MAGIC
from waylog.sealing.value_encryption import ValueKey, record_key, seal, unwrap, wrap
from waylog.sealing.value_keys import KeyRing, destroy_keys

MASTER = bytes(range(32))


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    broker, servers = start_broker(tmp_path / "broker")
    ensure_topics(servers)
    yield servers
    broker.terminate()


async def values_of(servers: str, topic: str, ring: KeyRing | None) -> dict[bytes, list[bytes]]:
    records: list[FetchedRecord] = []
    ended = asyncio.Event()
    reader = BatchReader(
        servers,
        "test",
        topic,
        asyncio.get_running_loop(),
        on_records=records.extend,
        on_caught_up=ended.set,
        opened=None if ring is None else ring.open_messages,
    )
    reader.start()
    await ended.wait()
    await reader.close()
    values: dict[bytes, list[bytes]] = {}
    for record in records:
        values.setdefault(record.key() or b"", []).append(record.value() or b"")
    return values


async def test_two_that_make_a_key_at_once_are_both_read_in_order(servers: str) -> None:
    loop = asyncio.get_running_loop()
    rings = [KeyRing(servers, MASTER) for _ in range(2)]
    logs = [SealedLog(BatchProducer(servers, "test", loop), ring, loop) for ring in rings]
    appended = [
        log.append(LOCATION, b"%d %d" % (which, number), b"ada/phone")
        for number in range(50)
        for which, log in enumerate(logs)
    ]
    appended.append(logs[0].append(LOCATION, b"nobody's"))
    appended.append(logs[0].append(LOG, b"a line", b"ada/phone"))
    await asyncio.gather(*appended)
    assert [len(log) for log in logs] == [0, 0]
    sealed = await values_of(servers, LOCATION, None)
    assert all(value.startswith(MAGIC) for values in sealed.values() for value in values)
    assert await values_of(servers, LOG, None) == {b"ada/phone": [b"a line"]}
    reader = KeyRing(servers, MASTER)
    opened = await values_of(servers, LOCATION, reader)
    assert opened[b""] == [b"nobody's"]
    for which in range(2):
        own = [value for value in opened[b"ada/phone"] if value.startswith(b"%d " % which)]
        assert own == [b"%d %d" % (which, number) for number in range(50)]

    # Both keys are destroyed, and later values have a new one.
    destroyed = await asyncio.to_thread(destroy_keys, servers, ["ada/phone"])
    assert destroyed.keys == 2
    for ring in rings:
        await asyncio.to_thread(ring.catch_up)
    await logs[1].append(LOCATION, b"again", b"ada/phone")
    opened = await values_of(servers, LOCATION, reader)
    assert opened[b"ada/phone"] == [b"again"]
    for log in logs:
        assert await log.close() == 0
    for ring in (*rings, reader):
        ring.close()


async def test_values_whose_key_cannot_be_stored_fail_as_others_do(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    cluster = ClusterWithRefusingTopic(tmp_path, VALUE_KEY_TOPIC)
    servers = await asyncio.to_thread(cluster.start)
    ring = KeyRing(servers, MASTER)
    log = SealedLog(BatchProducer(servers, "test", loop, delivery_timeout_ms=3000), ring, loop)
    try:
        await log.append(LOCATION, b"before", b"bob/phone")
        await asyncio.to_thread(cluster.refuse)
        waiting = [log.append(LOCATION, b"%d" % number, b"ada/phone") for number in range(3)]
        receipt = Receipt()
        log.send(LOCATION, b"a fix", b"ada/phone", None, receipt)
        async with asyncio.timeout(60):
            for each in waiting:
                with pytest.raises(AppendError, match=r"the key.*: .*fewer replicas are in sync"):
                    await each
            # A device that has a key needs no other one.
            await log.append(LOCATION, b"meanwhile", b"bob/phone")
        assert receipt.done()
        assert "fewer replicas are in sync" in str(receipt.exception())
        assert len(log) == 0
        await asyncio.to_thread(cluster.accept)
        async with asyncio.timeout(60):
            await log.append(LOCATION, b"after", b"ada/phone")
        assert await values_of(servers, LOCATION, ring) == {
            b"bob/phone": [b"before", b"meanwhile"],
            b"ada/phone": [b"after"],
        }
        assert await log.close() == 0
        ring.close()
    finally:
        await asyncio.to_thread(cluster.stop)


async def test_a_value_that_is_too_large_does_not_hold_up_those_behind_it(servers: str) -> None:
    loop = asyncio.get_running_loop()
    ring = KeyRing(servers, MASTER)
    log = SealedLog(BatchProducer(servers, "test", loop), ring, loop)
    large = log.append(LOCATION, b"x" * 1_000_000, b"ada/phone")
    small = log.append(LOCATION, b"small", b"ada/phone")
    async with asyncio.timeout(60):
        with pytest.raises(AppendError, match="too large"):
            await large
        await small
    assert await values_of(servers, LOCATION, ring) == {b"ada/phone": [b"small"]}
    assert await log.close() == 0
    ring.close()


async def test_a_callback_that_fails_does_not_hold_up_the_values_behind_it(servers: str) -> None:
    loop = asyncio.get_running_loop()
    ring = KeyRing(servers, MASTER)
    log = SealedLog(BatchProducer(servers, "test", loop), ring, loop)

    def fail(error: AppendError | None, position: object) -> None:
        raise RuntimeError(error)

    log.send(LOCATION, b"x" * 1_000_000, b"ada/phone", None, fail)
    small = log.append(LOCATION, b"small", b"ada/phone")
    async with asyncio.timeout(60):
        await small
    assert await values_of(servers, LOCATION, ring) == {b"ada/phone": [b"small"]}
    assert await log.close() == 0
    ring.close()


async def test_values_that_could_not_be_sealed_fail_and_the_next_ones_do_not(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    ring = KeyRing(servers, MASTER)
    log = SealedLog(BatchProducer(servers, "test", loop), ring, loop)
    failures = [MemoryError()]

    def seal_later(value: bytes, key: ValueKey, record: bytes | None) -> bytes:
        if failures and value == b"second":
            raise failures.pop()
        return seal(value, key, record)

    monkeypatch.setattr("waylog.sealing.sealed_log.seal", seal_later)
    values = (b"first", b"second", b"third")
    async with asyncio.timeout(60):
        first, *others = [log.append(LOCATION, value, b"ada/phone") for value in values]
        await first
        for each in others:
            with pytest.raises(AppendError, match=r"the key .* could not be used \(MemoryError\)"):
                await each
        assert len(log) == 0
        await log.append(LOCATION, b"fourth", b"ada/phone")
    assert await values_of(servers, LOCATION, ring) == {b"ada/phone": [b"first", b"fourth"]}
    assert await log.close() == 0
    ring.close()


async def test_another_master_key_is_noticed_at_the_start(servers: str) -> None:
    loop = asyncio.get_running_loop()
    ring = KeyRing(servers, MASTER)
    log = SealedLog(BatchProducer(servers, "test", loop), ring, loop)
    await log.append(LOCATION, b"{}", b"ada/phone")
    await log.close()
    ring.close()
    other = KeyRing(servers, bytes(32))
    with pytest.raises(ConfigError, match="another master key"):
        other.catch_up()
    other.close()


def test_records_that_are_no_keys_hide_none_behind_them(
    servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    foreign = ValueKey.new("eve/phone")
    own = wrap(foreign, MASTER, 0)
    odd = [
        *MALFORMED_VALUES,
        wrap(foreign, bytes(32), 0),
        # The id of a key has eight bytes.
        own.replace(base64.b64encode(foreign.key_id), b"AAAA"),
    ]
    ensure_topics(servers, [VALUE_KEY_TOPIC])
    records = [(VALUE_KEY, b"eve/phone\n%02d" % number, each) for number, each in enumerate(odd)]
    append_records(servers, records)
    ring = KeyRing(servers, MASTER)
    # None of the log's keys is ours: it may well be another master key.
    with pytest.raises(ConfigError, match="another master key"):
        ring.catch_up()
    append_records(servers, [(VALUE_KEY, record_key(foreign), own)])
    ring.catch_up()
    assert ring.newest_of("eve/phone") == foreign
    sealed = ring.seal_value(LOCATION, b"{}", b"ada/phone")
    append_records(servers, records)
    other = KeyRing(servers, MASTER)
    assert other.open_value(sealed, b"ada/phone", 10.0) == b"{}"
    assert other.newest_of("eve/phone") == foreign
    assert other.seal_value(LOCATION, b"{}", b"ben/phone")
    for each in (ring, other):
        each.close()
    [*_, line] = [each for each in caplog.records if each.name == "waylog.sealing.value_keys"]
    assert line.getMessage().startswith("value-key offset 0 is left out: it is no key of ours")
    destroyed = destroy_keys(servers, ["eve/phone"])
    assert destroyed.since_ms == 0


async def test_a_key_that_could_not_be_taken_is_taken_again(
    servers: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ring = KeyRing(servers, MASTER)
    sealed = ring.seal_value(LOCATION, b"{}", b"ada/phone")
    ring.close()
    failures = [MemoryError(), MemoryError()]
    cut_off = [KafkaException(KafkaError(KafkaError._TRANSPORT))]

    class CutOff(Consumer):
        """Has told of one key when it cannot read on."""

        def consume(self, *arguments: Any, **named: Any) -> list[Message]:
            if cut_off:
                raise cut_off.pop()
            return super().consume(*arguments, **named)

    monkeypatch.setattr("waylog.sealing.value_keys.Consumer", CutOff)

    def unwrap_later(value: bytes, master: bytes) -> ValueKey:
        if failures:
            raise failures.pop()
        return unwrap(value, master)

    monkeypatch.setattr("waylog.sealing.value_keys.unwrap", unwrap_later)
    other = KeyRing(servers, MASTER)
    assert other.open_value(sealed, b"ada/phone") == b"{}"
    other.close()
    assert not cut_off
    assert caplog.text.count("taking keys of value-key failed; it is tried again\nTraceback") == 2


def test_a_thread_that_follows_keys_takes_its_process_with_it() -> None:
    assert_process_ends(
        """
        from unittest.mock import Mock
        from waylog.sealing import value_keys
        value_keys.ensure_topics = print
        value_keys.Consumer = Mock(return_value=Mock(poll=die))
        ring = value_keys.KeyRing("127.0.0.1:1", bytes(32))
        """,
        "value-keys",
    )
