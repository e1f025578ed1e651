"""Retained messages in the journal, over crashes, stops and erasures."""

from __future__ import annotations

import msgspec
import pytest

from gateway.mqtt.packets.message import Message
from tests.gateway.mqtt.in_memory import Wire, split_packets
from tests.gateway.mqtt.journal_worker import (
    ALICE,
    KEY,
    TOPIC,
    Log,
    Worker,
    claimed,
    payloads,
    publish,
    read_all,
)


def test_retained_messages_survive_and_removed_ones_do_not() -> None:
    log = Log()
    first = Worker(log, "a")
    publish(first.router, b"old", retain=True)
    publish(first.router, b"kept", retain=True)
    publish(first.router, b"gone", retain=True, topic="devices/alice/phone/other")
    publish(first.router, b"", retain=True, topic="devices/alice/phone/other")
    first.crash()
    wire, _ = Worker(log, "b").client()
    assert payloads(wire.subscribe("devices/alice/#")) == [b"kept"]


def test_positions_are_not_written_twice() -> None:
    log = Log()
    publish(Worker(log, "a").router, b"{}", retain=True, topic="owntracks/alice/phone")
    assert not log.records


def test_positions_that_no_view_has_are_written() -> None:
    log = Log()
    position = b'{"_type":"location","lat":1,"lon":2,"tst":1761994805}'
    topics = ("devices/alice/phone/note", "owntracks/alice/phone/event")
    first = Worker(log, "a")
    for topic in (*topics, "owntracks/alice/phone"):
        publish(first.router, position, retain=True, topic=topic)
    first.crash()
    second = Worker(log, "b")
    assert all(second.router.retained.get(topic) for topic in topics)
    assert second.router.retained.get("owntracks/alice/phone") is None


@pytest.mark.parametrize("payload", [b'{"_type":"encrypted","data":"x"}', b'{"_type":"lwt"}'])
def test_what_is_retained_in_the_place_of_a_position_is_known_to_every_worker(
    payload: bytes,
) -> None:
    log = Log()
    topic = "owntracks/alice/phone"
    one, other = (Worker(log, name, shared=True) for name in "ab")
    publish(one.router, payload, retain=True, topic=topic)
    one.turn()
    for worker in (one, other):
        wire, _ = worker.client()
        assert payloads(wire.subscribe(topic)) == [payload]
    publish(one.router, b"", retain=True, topic=topic)
    one.turn()
    assert other.router.retained.get(topic) is None


def test_a_worker_keeps_what_is_retained_when_it_reads_what_it_has_written_before() -> None:
    log = Log()
    worker = Worker(log, "a", shared=True)
    publish(worker.router, b"old", retain=True)
    publish(worker.router, b"newer", retain=True)
    worker.journal.on_records(log.records[:1])
    wire, _ = worker.client()
    assert payloads(wire.subscribe(TOPIC)) == [b"newer"]


def test_a_retained_message_expires_while_no_worker_runs() -> None:
    log = Log()
    first = Worker(log, "a")
    first.router.publish(Message(TOPIC, b"for ten seconds", 1, True, None, 10.0), None, 0.0)
    first.crash()
    log.wall_ms += 6_000
    second = Worker(log, "b")
    kept = second.router.retained.get(TOPIC)
    assert kept is not None and kept.expires_at == 4.0
    second.crash()
    log.wall_ms += 6_000
    assert Worker(log, "c").router.retained.get(TOPIC) is None


NEVER_S = 0xFFFFFFFF


def test_a_message_lives_no_longer_for_a_clock_that_was_set_back() -> None:
    log = Log()
    first = Worker(log, "a")
    for topic, expiry_s in ((TOPIC, 10.0), (f"{TOPIC}s", float(NEVER_S))):
        message = Message(topic, b"retained", 1, True, None, expiry_s)
        first.router.publish(message, None, 0.0)
    first.crash()
    log.wall_ms -= 600_000
    router = Worker(log, "b").router
    kept = [router.retained.get(topic) for topic in (TOPIC, f"{TOPIC}s")]
    assert [each and each.expires_at for each in kept] == [10.0, NEVER_S]
    wire = Wire(router)
    wire.connect("reader", ALICE, version=5)
    _, *packets = split_packets(wire.subscribe("devices/alice/#"))
    left = sorted(int.from_bytes(body.removesuffix(b"retained")[-4:], "big") for _, body in packets)
    assert left == [10, NEVER_S]


def test_a_retained_message_that_is_none_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    log = Log()
    first = Worker(log, "a")
    for name in ("1", "2", "3"):
        publish(first.router, b"retained", retain=True, topic=f"devices/alice/phone/{name}")
    first.crash()
    # Another program has written properties that are none.
    odd = log.records[1]
    stored = msgspec.json.decode(odd.value() or b"")
    odd._value = msgspec.json.encode({**stored, "properties": b"\xc1"})
    second = Worker(log, "b", shared=True)
    third = Worker(Log(), "c", shared=True)
    third.journal.on_records(log.records)
    for worker in (second, third):
        wire, _ = worker.client()
        assert len(payloads(wire.subscribe("devices/alice/#"))) == 2
    assert "a message of 'devices/alice/phone/2' is left out" in caplog.text


def test_what_no_client_can_read_ends_at_the_next_start() -> None:
    log = Log()
    first = Worker(log, "a")
    publish(first.router, b"before there was a rule", retain=True)
    wire, _ = first.client()
    wire.subscribe(TOPIC)
    wire.lose()
    publish(first.router, b"it waits")
    first.turn()
    first.stop()
    for each in log.records:
        name = (
            TOPIC.encode() if each.key().startswith(b"retained") else b'"topic":"' + TOPIC.encode()
        )
        each._key = each.key().replace(name, name.replace(b"note", b"no\x01e"))
        each._value = (each.value() or b"").replace(
            b'"topic":"' + TOPIC.encode(),
            b'"topic":"' + TOPIC.encode().replace(b"note", b"no\\u0001e"),
        ) or None
    second = Worker(log, "b")
    assert len(second.router.retained) == 0
    wire, present = second.client()
    assert present
    assert payloads(wire.first) == []  # type: ignore[attr-defined]
    # Retained messages were sent as well, and were not acknowledged.
    assert second.journal.purged == 3
    assert not any(each.value() for each in log.compacted() if each.key().startswith(b"retained"))


def test_what_is_retained_no_longer_is_gone_from_all_workers_and_others_know_whose_it_was() -> None:
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    # The topic does not tell the owner.
    topic = "sensors/hall"
    message = Message(topic, b"hello", 1, True, {38: [("key", "value")]})
    first.router.publish(message, None, 0.0, "alice")
    first.turn()
    for worker in (second, Worker(log, "c", shared=True)):
        kept = worker.router.retained.get(topic)
        assert kept is not None
        assert (kept.owner, kept.properties) == ("alice", {38: [("key", "value")]})
    publish(first.router, b"", retain=True, topic=topic)
    first.turn()
    assert second.router.retained.get(topic) is None


def test_workers_share_retained_messages() -> None:
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    publish(first.router, b"hello", retain=True)
    first.turn()
    wire, _ = second.client()
    assert payloads(wire.subscribe(TOPIC)) == [b"hello"]
    publish(first.router, b"", retain=True)
    publish(first.router, b"newer", retain=True)
    first.turn()
    assert first.router.retained.get(TOPIC) is not None
    stored = second.router.retained.get(TOPIC)
    assert stored is not None and stored.payload == b"newer"


def test_of_an_erased_device_nothing_is_retained_and_nothing_waits() -> None:
    log = Log()
    worker = Worker(log, "a")
    wire, _ = worker.client()
    wire.subscribe("devices/alice/#")
    wire.lose()
    other = "devices/alice/tablet/note"
    publish(worker.router, b"where the phone is", retain=True)
    publish(worker.router, b"where the tablet is", retain=True, topic=other)
    log.erase("alice/phone")
    worker.turn()
    worker.stop()
    assert [record.key() for record in log.compacted() if record.value() is None] == [
        b"retained\0devices/alice/phone/note"
    ]
    for record in log.compacted():
        assert msgspec.json.encode(b"where the phone is")[1:-1] not in (record.value() or b"")
    wire, _ = Worker(log, "b").client()
    assert payloads(wire.first) == [b"where the tablet is"]  # type: ignore[attr-defined]


def test_what_a_stopped_worker_has_left_of_an_erased_device_is_not_taken_up() -> None:
    log = Log()
    first = Worker(log, "a")
    wire, _ = first.client()
    wire.subscribe(TOPIC)
    wire.lose()
    publish(first.router, b"where the phone is", retain=True)
    first.turn()
    first.stop()
    log.wall_ms += 1
    log.erase("alice/phone")
    second = Worker(log, "b")
    wire, _ = second.client()
    assert payloads(wire.first) == []  # type: ignore[attr-defined]
    assert len(second.router.retained) == 0
    # Messages published after the erasure are new.
    log.wall_ms += 1
    publish(second.router, b"a new life", retain=True)
    second.stop()
    wire, _ = Worker(log, "c").client()
    assert payloads(wire.first) == [b"a new life"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("is_lost", [False, True])
def test_what_is_retained_and_not_sent_yet_is_sent_by_the_next_worker(is_lost: bool) -> None:
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    topics = [f"devices/alice/{number}/note" for number in range(200)]
    for topic in topics:
        publish(first.router, topic.encode(), retain=True, topic=topic)
    wire, _ = first.client()
    sent = payloads(wire.subscribe("devices/alice/+/note"))
    assert 0 < len(sent) < len(topics)
    if is_lost:
        wire.lose()
    first.turn()
    record = claimed(first, "b")
    assert record is not None
    second.journal.claimed(KEY, record)
    wire, present = second.client()
    assert present
    assert {each.decode() for each in read_all(wire)} == set(topics)
    second.turn()
    # Retained messages that were all sent are not sent again.
    record = claimed(second, "a")
    assert record is not None
    first.journal.claimed(KEY, record)
    assert read_all(first.client()[0]) == []


@pytest.mark.parametrize("is_lost", [False, True])
def test_what_is_retained_and_not_sent_yet_is_sent_after_an_orderly_stop(is_lost: bool) -> None:
    log = Log()
    worker = Worker(log, "a")
    topics = [f"devices/alice/{number}/note" for number in range(200)]
    for topic in topics:
        publish(worker.router, topic.encode(), retain=True, topic=topic)
    wire, _ = worker.client()
    sent = payloads(wire.subscribe("devices/alice/+/note"))
    assert 0 < len(sent) < len(topics)
    if is_lost:
        wire.lose()
    for name in "bc":  # two restarts before the client is back
        worker.stop()
        worker = Worker(log, name)
    wire, present = worker.client()
    assert present
    assert {each.decode() for each in read_all(wire)} == set(topics)
    # Retained messages that were all sent are not sent again.
    for name in "de":
        worker.stop()
        worker = Worker(log, name)
    assert read_all(worker.client()[0]) == []
