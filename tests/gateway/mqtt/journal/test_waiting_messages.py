"""Messages that wait for clients, over stops of their worker."""

from __future__ import annotations

import msgspec
import pytest

from gateway.mqtt.packets.encoder import encode_puback
from gateway.mqtt.packets.message import Delivery, Message
from gateway.mqtt.packets.packets import PacketType, Properties, PropertyId
from tests.gateway.mqtt.in_memory import split_packets
from tests.gateway.mqtt.journal_worker import (
    KEY,
    TOPIC,
    Log,
    Record,
    Worker,
    claimed,
    payloads,
    publish,
    read_all,
)


def test_a_queue_that_is_too_long_for_one_record_survives_an_orderly_stop_whole() -> None:
    log = Log()
    first = Worker(log, "a")
    wire, _ = first.client()
    wire.subscribe(TOPIC)
    wire.lose()
    sent = [b"%04d" % number + bytes(5000) for number in range(200)]
    for payload in sent:
        publish(first.router, payload)
    first.turn()
    first.stop()
    assert max(len(record.value() or b"") for record in log.records) < 900_000
    parts = sum(record.key().count(b"\0") == 3 for record in log.records)
    assert parts > 1
    second = Worker(log, "b")
    wire, present = second.client()
    received: list[bytes] = []
    data = wire.first  # type: ignore[attr-defined]
    while data:
        received += payloads(data)
        for first_byte, body in split_packets(data):
            assert first_byte >> 4 == PacketType.PUBLISH
            identifier = int.from_bytes(body[2 + len(TOPIC) : 4 + len(TOPIC)], "big")
            wire.send(encode_puback(identifier))
        data = wire.received() + wire.received()
    assert present and received == sent
    # Once the session is written again, no part is left.
    second.turn()
    left = [record for record in log.compacted() if record.key().count(b"\0") == 3]
    assert len(left) == parts and not any(record.value() for record in left)


def test_what_waits_for_a_client_survives_an_orderly_stop() -> None:
    log = Log()
    first = Worker(log, "a")
    wire, _ = first.client()
    wire.subscribe(TOPIC)
    publish(first.router, b"1")
    publish(first.router, b"2")
    (_, one), (_, two) = split_packets(wire.received())
    identifier = int.from_bytes(two[2 + len(TOPIC) : 4 + len(TOPIC)], "big")
    wire.send(encode_puback(int.from_bytes(one[2 + len(TOPIC) : 4 + len(TOPIC)], "big")))
    wire.lose()
    publish(first.router, b"3")
    first.turn()
    first.stop()
    wire, present = Worker(log, "b").client()
    assert present
    (again, body), (new, _) = split_packets(wire.first)  # type: ignore[attr-defined]
    assert again == 0x3A and body[2 + len(TOPIC) :] == identifier.to_bytes(2, "big") + b"2"
    assert new == 0x32
    assert payloads(wire.first) == [b"2", b"3"]  # type: ignore[attr-defined]


def test_what_two_stops_have_left_is_not_mixed(caplog: pytest.LogCaptureFixture) -> None:
    log = Log()
    first = Worker(log, "a")
    wire, _ = first.client()
    wire.subscribe(TOPIC)
    wire.lose()
    for number in range(200):
        publish(first.router, b"%04d" % number + bytes(5000))
    first.turn()
    first.stop()
    log.wall_ms += 1000
    second = Worker(log, "b")
    (part, *rest) = second.journal.last_records(second.router.sessions.values())
    assert rest
    log.records.append(Record(part.key, part.value, log.wall_ms))
    second.crash()
    wire, present = Worker(log, "c").client()
    assert present
    assert payloads(wire.first) == []  # type: ignore[attr-defined]
    assert "is not in the log whole" in caplog.text


def test_a_message_of_qos_2_that_a_client_has_is_not_sent_again_after_an_orderly_stop() -> None:
    log = Log()
    first = Worker(log, "a")
    wire, _ = first.client()
    wire.subscribe(TOPIC, qos=2)
    first.router.publish(Message(TOPIC, b"1", 2), None, 0.0)
    ((_, sent),) = split_packets(wire.received())
    identifier = sent[2 + len(TOPIC) : 4 + len(TOPIC)]
    wire.send(bytes([PacketType.PUBREC << 4, 2]) + identifier)
    pubrel = wire.received()
    assert pubrel == bytes([PacketType.PUBREL << 4 | 2, 2]) + identifier
    wire.lose()
    first.turn()
    first.stop()
    wire, present = Worker(log, "b").client()
    assert present
    assert wire.first == pubrel  # type: ignore[attr-defined]


def test_a_message_of_qos_2_is_taken_once_though_its_server_stops_meanwhile() -> None:
    log = Log()
    first = Worker(log, "a")
    wire, _ = first.client()
    body = len(TOPIC).to_bytes(2, "big") + TOPIC.encode() + b"\0\7" + b"1"
    message = bytes([0x34, len(body)]) + body
    (packet,) = wire.send(message)
    wire.connection.acknowledge(packet, 0, 0.0)
    pubrec = wire.received()
    assert pubrec[:1] == b"\x50"
    wire.lose()
    first.turn()
    first.stop()
    wire, present = Worker(log, "b").client()
    assert present
    assert wire.send(message) == []
    assert wire.received() == pubrec


def test_nothing_is_written_after_the_last_records() -> None:
    log = Log()
    worker = Worker(log, "a")
    wire, _ = worker.client()
    wire.subscribe(TOPIC)
    worker.stop()
    wire.lose()
    written = len(log.records)
    for callback in worker.scheduled:
        callback()
    assert len(log.records) == written


def test_a_session_that_ends_while_the_last_records_are_written_is_not_among_them() -> None:
    log = Log()
    worker = Worker(log, "a")
    for name in ("phone", "tablet"):
        worker.client(name=name)[0].lose()
    worker.turn()
    records = worker.journal.last_records(worker.router.sessions.values())
    assert b"phone" in next(records).key
    worker.client(name="tablet", clean=True)[0].lose()
    for record in records:
        log.records.append(Record(record.key, record.value, log.wall_ms))
    worker.crash()
    assert not Worker(log, "b").client(name="tablet")[1]


@pytest.mark.parametrize("way", ["erased", "clean"])
def test_parts_of_a_long_queue_go_with_what_waited(way: str) -> None:
    log = Log()
    first = Worker(log, "a")
    wire, _ = first.client()
    wire.subscribe(TOPIC)
    wire.lose()
    for _ in range(200):
        publish(first.router, bytes(5000))
    first.turn()
    first.stop()
    second = Worker(log, "b")
    if way == "erased":
        log.erase("alice/phone")
        second.stop()
    else:
        second.client(clean=True)
    parts = [record for record in log.compacted() if record.key().count(b"\0") == 3]
    assert parts
    assert not any(record.value() for record in parts)


def test_much_that_waits_is_read_in_steps_before_its_client_is_connected() -> None:
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    wire, _ = first.client()
    wire.subscribe(TOPIC)
    wire.lose()
    sent = [b"%04d" % number for number in range(900)]
    for payload in sent:
        publish(first.router, payload)
    record = claimed(first, "b")
    assert record is not None
    second.journal.claimed(KEY, record)
    assert len(list(second.journal.prepare(KEY))) >= 4
    wire, present = second.client()
    second.journal.unprepare(KEY)
    assert present
    assert read_all(wire) == sent
    # Nothing is left for the next connection.
    wire.lose()
    assert not list(second.journal.prepare(KEY))
    assert payloads(second.client()[0].first) == []  # type: ignore[attr-defined]


def test_what_waits_for_a_client_that_went_before_it_was_connected_is_handed_on() -> None:
    log = Log()
    first, second, third = (Worker(log, name, shared=True) for name in "abc")
    wire, _ = first.client()
    wire.subscribe(TOPIC)
    wire.lose()
    for number in range(900):
        publish(first.router, b"%04d" % number)
    record = claimed(first, "b")
    assert record is not None
    second.journal.claimed(KEY, record)
    for _ in second.journal.prepare(KEY):
        pass
    second.journal.unprepare(KEY)
    record = claimed(second, "c")
    assert record is not None
    third.journal.claimed(KEY, record)
    assert claimed(second, "a") is None
    wire, present = third.client()
    assert present
    assert read_all(wire) == [b"%04d" % number for number in range(900)]


def test_what_is_erased_while_it_is_read_for_a_client_does_not_reach_it() -> None:
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    wire, _ = first.client()
    wire.subscribe(TOPIC)
    wire.lose()
    publish(first.router, b"it is erased")
    record = claimed(first, "b")
    assert record is not None
    second.journal.claimed(KEY, record)
    for _ in second.journal.prepare(KEY):
        pass
    log.erase("alice/phone")
    assert payloads(second.client()[0].first) == []  # type: ignore[attr-defined]


def test_a_waiting_message_that_is_none_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    log = Log()
    first = Worker(log, "a")
    wire, _ = first.client()
    wire.subscribe(TOPIC)
    wire.lose()
    for payload in (b"1", b"2", b"3"):
        publish(first.router, payload)
    first.turn()
    first.stop()
    # Another program has written properties that are none.
    stored = msgspec.json.decode(log.records[-1].value() or b"")
    stored["waiting"][1]["message"]["properties"] = b"\xc1"
    log.records[-1]._value = msgspec.json.encode(stored)
    second = Worker(log, "b")
    wire, present = second.client()
    assert present and read_all(wire) == [b"1", b"3"]
    assert f"a message of {TOPIC!r} is left out" in caplog.text


def test_waiting_messages_that_cannot_be_read_lock_their_client_out_no_longer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = Log()
    first = Worker(log, "a")
    wire, _ = first.client()
    wire.subscribe(TOPIC)
    wire.lose()
    for number in range(100):
        publish(first.router, b"%04d" % number + bytes(5000))
    first.turn()
    first.stop()
    part = next(each for each in log.records if each.key().count(b"\0") == 3)
    part._value = b"\xc1"
    wire, present = Worker(log, "b").client()
    assert present and not read_all(wire)
    assert "what waits for a client of 'alice' is not in the log whole" in caplog.text


def test_a_session_that_cannot_be_written_does_not_take_others_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = Log()
    first = Worker(log, "a")
    for name in ("phone", "tablet"):
        wire, _ = first.client(name=name)
        wire.subscribe(TOPIC)
        wire.lose()
    odd: Properties = {PropertyId.CONTENT_TYPE: "\ud800"}
    first.router.sessions[KEY].enqueue(
        Delivery(Message(TOPIC, b"odd", 1, False, odd), 1, False, None)
    )
    publish(first.router, b"good")
    first.turn()
    first.stop()
    wire, present = Worker(log, "b").client(name="tablet")
    assert present and read_all(wire) == [b"good"]
    assert "a session of 'alice' cannot be written" in caplog.text
