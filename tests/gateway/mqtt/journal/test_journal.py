"""Sessions and retained messages that outlive a gateway process, without a log and sockets."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt.journal import journal as module
from gateway.mqtt.journal.journal import Journal
from gateway.mqtt.packets.encoder import encode_puback
from gateway.mqtt.packets.message import Message
from gateway.mqtt.packets.packets import PacketType, ReasonCode
from gateway.mqtt.sessions.handover import ASK_AGAIN
from gateway.mqtt.sessions.link import CLOSED
from gateway.mqtt.sessions.router import Router
from tests.gateway.mqtt.in_memory import User, Wire, new_router, split_packets
from waylog.history.erasures import Erasure

ALICE = User("alice")
TOPIC = "devices/alice/phone/note"
KEY = ("alice", "phone")


class Record:
    def __init__(self, key: bytes, value: bytes | None, written_ms: int) -> None:
        self._key, self._value, self._written_ms = key, value, written_ms

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return 1, self._written_ms


class Log:
    """The compacted topic, and the workers that read it."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.erasures: list[Record] = []
        self.workers: list[Worker] = []
        self.wall_ms = 1_761_994_800_000

    def erase(self, device: str) -> None:
        """Erase a device; all running workers read the erasure."""
        value = msgspec.json.encode(Erasure(device, self.wall_ms))
        self.erasures.append(Record(device.encode(), value, self.wall_ms))
        for worker in self.workers:
            worker.journal.on_erasures(self.erasures[-1:])

    def compacted(self) -> list[Record]:
        newest = {record.key(): record for record in self.records}
        return list(newest.values())


class Worker:
    """A gateway process: a router and its journal."""

    def __init__(
        self, log: Log, name: str, *, shared: bool = False, router: Router | None = None
    ) -> None:
        self.log = log
        self.now = 0.0
        self.scheduled: list[Callable[[], None]] = []
        self.journal = Journal(
            name,
            lambda key, value: log.records.append(Record(key, value, log.wall_ms)),
            lambda: log.wall_ms,
            lambda: self.now,
            self.scheduled.append,
            shared=shared,
        )
        self.journal.on_erasures(log.erasures)
        self.journal.on_records(log.compacted())
        self.read = len(log.records)
        self.router = router or new_router()
        self.router.keep(self.journal, 0.0)
        log.workers.append(self)

    def turn(self) -> None:
        """Run what is scheduled, and have all workers read what was written."""
        scheduled, self.scheduled[:] = self.scheduled[:], []
        for callback in scheduled:
            callback()
        for worker in self.log.workers:
            news = self.log.records[worker.read :]
            worker.read = len(self.log.records)
            worker.journal.on_records(news)

    def stop(self) -> None:
        for record in self.journal.last_records(self.router.sessions.values()):
            self.log.records.append(Record(record.key, record.value, self.log.wall_ms))
        self.log.workers.remove(self)

    def crash(self) -> None:
        self.log.workers.remove(self)

    def client(self, *, clean: bool = False, name: str = "phone") -> tuple[Wire, bool]:
        """Connect a client; return it, and whether its session was present.

        `first` of the result are the packets after CONNACK.
        """
        wire = Wire(self.router, self.now)
        received = wire.connect(name, ALICE, clean=clean)
        wire.first = received[4:]  # type: ignore[attr-defined]
        return wire, received[2] == 1


def publish(router: Router, payload: bytes, *, retain: bool = False, topic: str = TOPIC) -> None:
    router.publish(Message(topic, payload, 1, retain), None, 0.0)


def payloads(data: bytes) -> list[bytes]:
    return [
        body[2 + int.from_bytes(body[:2], "big") + 2 :]
        for first, body in split_packets(data)
        if first >> 4 == PacketType.PUBLISH
    ]


def test_a_session_and_its_subscriptions_survive_a_crash() -> None:
    log = Log()
    first = Worker(log, "a")
    wire, present = first.client()
    assert not present
    wire.subscribe("devices/alice/+/note")
    first.turn()
    first.crash()
    second = Worker(log, "b")
    publish(second.router, b"while away")
    wire, present = second.client()
    assert present
    assert payloads(wire.first) == [b"while away"]  # type: ignore[attr-defined]
    publish(second.router, b"now")
    assert payloads(wire.received()) == [b"now"]


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


def test_a_clean_start_ends_what_was_kept() -> None:
    log = Log()
    first = Worker(log, "a")
    first.client()[0].subscribe(TOPIC)
    first.turn()
    first.crash()
    second = Worker(log, "b")
    assert not second.client(clean=True)[1]
    second.turn()
    assert not [record for record in log.compacted() if record.value() is not None]
    second.crash()
    assert not Worker(log, "c").client()[1]


def test_a_session_that_has_expired_meanwhile_is_not_resumed() -> None:
    log = Log()
    first = Worker(log, "a")
    wire, _ = first.client()
    wire.lose()
    first.turn()
    first.crash()
    log.wall_ms += 8 * 24 * 3600 * 1000
    assert not Worker(log, "b").client()[1]


def test_a_session_expires_while_no_worker_runs_though_its_client_was_there_at_the_stop() -> None:
    log = Log()
    first = Worker(log, "a")
    first.client()[0].subscribe(TOPIC)
    first.stop()
    log.wall_ms += 8 * 24 * 3600 * 1000
    assert not Worker(log, "b").client()[1]


def test_a_session_lasts_no_longer_for_a_stop_in_between() -> None:
    log = Log()
    first = Worker(log, "a")
    first.client()[0].lose()
    first.turn()
    first.stop()
    log.wall_ms += 6 * 24 * 3600 * 1000
    second = Worker(log, "b")
    assert second.router.sessions[KEY].deadline == 24 * 3600


def test_another_user_does_not_get_a_session_by_its_name() -> None:
    log = Log()
    first = Worker(log, "a")
    first.client()[0].subscribe(TOPIC)
    first.turn()
    first.crash()
    wire = Wire(Worker(log, "b").router)
    assert wire.connect("phone", User("bob"), clean=False)[2] == 0


def test_a_token_of_one_device_does_not_get_the_session_of_the_whole_user() -> None:
    log = Log()
    first = Worker(log, "a")
    first.client()[0].subscribe(TOPIC)
    first.turn()
    first.crash()
    wire = Wire(Worker(log, "b").router)
    assert wire.connect("phone", User("alice", "tablet"), clean=False)[2] == 0


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


def test_a_client_that_comes_to_another_worker_is_taken_over() -> None:
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    old, _ = first.client()
    old.subscribe(TOPIC)
    first.turn()
    new, present = second.client()
    assert present
    second.turn()
    assert old.connection.state == CLOSED
    assert old.connection.closing is not None
    assert old.connection.closing[0] == ReasonCode.SESSION_TAKEN_OVER
    assert not first.router.sessions
    publish(second.router, b"to the new one")
    assert payloads(new.received()) == [b"to the new one"]
    publish(first.router, b"nobody is here")
    assert not payloads(old.received())
    # The client goes back when all workers know the end of its connection.
    _, present = first.client()
    assert present
    first.turn()
    assert new.connection.state == CLOSED
    assert not first.client(clean=True)[1]
    first.turn()
    assert not second.client()[1]


def test_a_client_whose_session_is_not_kept_is_taken_over_by_another_worker_all_the_same() -> None:
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    old, _ = first.client(clean=True)
    first.turn()
    second.client(clean=True)
    second.turn()
    assert old.connection.state == CLOSED
    assert not first.router.sessions


def claimed(owner: Worker, claimer: str) -> bytes | None:
    """Return what a worker hands over of the session of the client `phone`."""
    answers: list[bytes | None] = []
    owner.router.handover.hand_over(
        ("alice", "phone"), (owner.journal.epochs.after(0), claimer), answers.append, 0.0
    )
    (answer,) = answers
    return answer


def test_a_session_is_its_claimers_in_whichever_order_the_log_has_the_news() -> None:
    log = Log()
    first, second, third = (Worker(log, name, shared=True) for name in "abc")
    first.client()[0].subscribe(TOPIC)
    first.journal.flush()
    record = claimed(first, "b")
    assert record is not None
    second.journal.claimed(("alice", "phone"), record)
    assert len(log.records) == 2
    # Each worker appends over a connection of its own, so the order may be any.
    log.records.reverse()
    third.turn()
    # Only the claimer writes the session once more.
    assert len(log.records) == 3
    assert [each.journal.owner_of(("alice", "phone")) for each in (first, second, third)] == [
        "b",
        None,
        "b",
    ]


def test_a_session_is_handed_over_once() -> None:
    log = Log()
    first = Worker(log, "a", shared=True)
    first.client()[0].subscribe(TOPIC)
    assert claimed(first, "b") is not None
    # The second claim comes from a worker that does not know of the first.
    assert claimed(first, "c") is None
    assert first.journal.owner_of(("alice", "phone")) == "b"


def test_a_session_that_was_handed_over_is_not_written_by_the_worker_before() -> None:
    log = Log()
    first = Worker(log, "a", shared=True)
    first.client()[0].subscribe(TOPIC)  # to be written soon
    key = ("alice", "phone")
    assert first.journal.hand_over(key, first.router.sessions[key], "b") is not None
    first.journal.flush()
    assert not log.records
    assert first.journal.owner_of(key) == "b"


def test_a_worker_that_has_not_heard_of_the_end_of_a_session_is_told_when_it_claims_it() -> None:
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    first.client()[0].subscribe(TOPIC)
    first.turn()
    assert second.journal.owner_of(("alice", "phone")) == "a"
    wire, _ = first.client(clean=True)
    wire.lose()
    record = claimed(first, "b")
    assert record is not None
    second.journal.claimed(("alice", "phone"), record)
    assert not second.client()[1]


def test_a_worker_remembers_the_sessions_that_ended_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENDED_MAX", 3)
    worker = Worker(Log(), "a", shared=True)
    for number in (0, 1, 2, 0, 3):
        worker.journal.ended(("alice", f"{number}"), 1)
    ends = [worker.journal.hand_over(("alice", f"{number}"), None, "b") for number in range(4)]
    assert [end is not None for end in ends] == [True, False, True, True]


def test_of_more_sessions_than_there_is_room_for_those_written_longest_ago_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SESSIONS_MAX", 3)
    first = Worker(Log(), "a")
    first.client()[0].subscribe(TOPIC)
    first.turn()
    (written,) = first.log.records
    worker = Worker(Log(), "b", shared=True)
    worker.journal.on_records(
        [Record(b"session\0alice\0%d" % number, written.value(), 0) for number in (0, 1, 2, 0, 3)]
    )
    assert len(worker.journal) == 3
    known = [worker.journal.knows(("alice", f"{number}")) for number in range(4)]
    assert known == [True, False, True, True]


def test_a_worker_does_not_take_up_again_what_it_has_written_and_ended_itself() -> None:
    log = Log()
    worker = Worker(log, "a")
    worker.client()[0].subscribe(TOPIC)
    worker.journal.flush()
    wire, _ = worker.client(clean=True)
    wire.lose()
    assert log.records
    worker.turn()
    assert not worker.client()[1]


def test_a_worker_keeps_what_is_retained_when_it_reads_what_it_has_written_before() -> None:
    log = Log()
    worker = Worker(log, "a", shared=True)
    publish(worker.router, b"old", retain=True)
    publish(worker.router, b"newer", retain=True)
    worker.journal.on_records(log.records[:1])
    wire, _ = worker.client()
    assert payloads(wire.subscribe(TOPIC)) == [b"newer"]


def test_an_end_that_is_older_than_a_session_does_not_end_it() -> None:
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    first.client()[0].subscribe(TOPIC)
    first.turn()
    first.client(clean=True)[0].lose()
    end = claimed(first, "b")
    assert end is not None
    first.client()[0].subscribe(TOPIC)
    first.turn()
    second.journal.claimed(KEY, end)
    assert second.journal.owner_of(KEY) == "a"


def test_what_waits_is_handed_over_and_not_written_with_the_session() -> None:
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    wire, _ = first.client()
    wire.subscribe(TOPIC)
    wire.lose()
    publish(first.router, b"it waits")
    record = claimed(first, "b")
    assert record is not None
    second.journal.claimed(KEY, record)
    second.turn()
    waiting = msgspec.json.encode(b"it waits")[1:-1]
    assert b"it waits" in record
    for each in log.records:
        assert waiting not in (each.value() or b"")
        assert b'"parts"' not in (each.value() or b"")
    wire, present = second.client()
    assert present
    assert payloads(wire.first) == [b"it waits"]  # type: ignore[attr-defined]


def test_all_workers_hear_of_the_end_of_a_session() -> None:
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    first.client()[0].subscribe(TOPIC)
    first.turn()
    assert second.journal.knows(KEY)
    first.journal.ended(KEY)
    first.turn()
    assert not second.journal.knows(KEY)


def came_to_the_second() -> tuple[Log, Worker, Worker, Wire]:
    """Have a clean session at one worker of two, while a kept one at the other ends unclaimed.

    No worker has read yet what the other has written of it.
    """
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    for each in (first, second):
        each.journal.writes_all = False  # as with gateway.mqtt.workers.worker_peers
    first.client()[0].subscribe(TOPIC)
    first.journal.flush()
    assert not second.journal.knows(KEY)
    log.wall_ms += 1
    wire, present = second.client(clean=True)
    assert not present
    first.router.give_up(KEY)
    return log, first, second, wire


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_clean_session_ends_a_kept_one_of_which_the_log_had_not_told_yet(is_gone: bool) -> None:
    log, first, second, wire = came_to_the_second()
    if is_gone:
        wire.lose()
    first.turn()
    first.turn()
    assert (KEY in second.router.sessions) != is_gone
    assert not first.journal.knows(KEY) and not second.journal.knows(KEY)
    for each in (first, second):
        each.crash()
    assert not Worker(log, "c").client()[1]


def test_a_session_that_is_kept_stands_in_the_log_after_an_older_one() -> None:
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    first.client()[0].subscribe(TOPIC)
    log.wall_ms += 1
    second.client()
    # Each worker appends over a connection of its own, so the order may be any.
    second.journal.flush()
    first.turn()
    first.turn()
    second.turn()
    assert second.router.sessions and not first.router.sessions
    written = len(log.records)
    second.turn()
    assert len(log.records) == written
    for each in (first, second):
        each.crash()
    third = Worker(log, "c")
    assert not third.router.sessions[KEY].subscriptions


def test_a_session_that_was_claimed_stands_in_the_log_after_an_older_one() -> None:
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    wire, _ = first.client()
    first.journal.flush()
    wire.subscribe(TOPIC)
    record = claimed(first, "b")
    assert record is not None
    # Its client vanishes before it is connected there.
    second.journal.claimed(KEY, record)
    log.records.reverse()
    for _ in range(2):
        second.turn()
        written = len(log.records)
    assert len(log.records) == written == 3
    for each in (first, second):
        each.crash()
    assert Worker(log, "c").router.sessions[KEY].subscriptions


@pytest.mark.parametrize(("claimer", "is_given"), [("a", False), ("c", True)])
def test_of_two_connections_of_the_same_microsecond_the_worker_with_the_greater_name_has_one(
    claimer: str, is_given: bool
) -> None:
    worker = Worker(Log(), "b", shared=True)
    worker.client()
    came = worker.router.sessions[KEY].epoch, claimer
    answers: list[bytes | None] = []
    worker.router.handover.hand_over(KEY, came, answers.append, 0.0)
    assert (answers == [ASK_AGAIN]) != is_given
    assert (KEY in worker.router.sessions) != is_given


def handed_over() -> tuple[Log, Worker, Worker, bytes]:
    """Have the first of two workers hand over a session with a subscription.

    No other worker knows of it yet.
    """
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    first.client()[0].subscribe(TOPIC)
    first.turn()
    log.wall_ms += 1
    record = claimed(first, "b")
    assert record is not None
    return log, first, second, record


def test_a_session_that_comes_back_ends_none_that_has_begun_since() -> None:
    log, first, _, record = handed_over()
    log.wall_ms += 1
    first.client(clean=True)[0].lose()
    first.client()[0].subscribe("devices/alice/+/sign")
    first.turn()
    first.router.handover.take_back(KEY, record)
    first.turn()
    first.crash()
    assert list(Worker(log, "c").router.sessions[KEY].subscriptions) == ["devices/alice/+/sign"]


@pytest.mark.parametrize("later", [-1, 0])
def test_a_session_that_was_claimed_is_later_than_the_one_before_and_than_its_claim(
    later: int,
) -> None:
    log, first, second, record = handed_over()
    third = Worker(log, "c", shared=True)
    assert third.journal.owner_of(KEY) == "a"
    before = msgspec.msgpack.decode(record)["epoch"]
    second.journal.claimed(KEY, record, before + 1_000 * later)
    assert second.journal.next_epoch(KEY) > before + 1
    first.turn()
    assert [each.journal.owner_of(KEY) for each in (first, second, third)] == ["b", None, "b"]


def test_a_session_that_arrives_late_is_no_later_than_its_claim() -> None:
    log, _, second, record = handed_over()
    epoch = second.journal.next_epoch(KEY)
    log.wall_ms += 1
    # A third worker has a session that no worker had to hand over.
    third = Worker(log, "c", shared=True)
    third.client(clean=True)[0].lose()
    third.client()
    third.journal.flush()
    log.wall_ms += 1
    second.journal.claimed(KEY, record, epoch)
    second.turn()
    second.turn()
    assert second.journal.owner_of(KEY) == "c"
    assert KEY in third.router.sessions


def test_a_claimed_session_is_kept_until_its_client_has_come_elsewhere_later() -> None:
    _, _, second, record = handed_over()
    epoch = second.journal.next_epoch(KEY)
    second.journal.claimed(KEY, record, epoch)
    second.journal.came_elsewhere(KEY, epoch - 1)
    assert second.journal.knows(KEY)
    second.journal.came_elsewhere(KEY, epoch + 1)
    assert not second.journal.knows(KEY)


def test_a_session_that_has_ended_is_not_found_where_nobody_has_read_of_its_end() -> None:
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    wire, _ = first.client()
    wire.subscribe(TOPIC)
    first.turn()
    assert second.journal.knows(KEY)
    wire.lose()
    first.router.end(first.router.sessions[KEY])
    end = claimed(first, "b")
    assert end is not None
    second.journal.claimed(KEY, end)
    assert not second.client()[1]


def test_each_session_of_a_client_comes_after_the_one_before() -> None:
    worker = Worker(Log(), "a", shared=True)
    epochs = []
    for clean in (False, True, False, True, True):
        wire, _ = worker.client(clean=clean)
        wire.subscribe(TOPIC)
        worker.turn()
        epochs.append(worker.router.sessions[KEY].epoch)
        wire.lose()
    # The clock stands still all the time; a session that is resumed is the same session.
    assert epochs == sorted(set(epochs))


def test_a_session_comes_after_one_that_ended_elsewhere_though_the_clock_was_set_back() -> None:
    log = Log()
    first = Worker(log, "a", shared=True)
    first.client()[0].subscribe(TOPIC)
    first.turn()
    log.wall_ms -= 3_600_000
    second = Worker(log, "b", shared=True)
    wire, _ = first.client(clean=True)
    epoch = first.router.sessions[KEY].epoch
    first.turn()
    wire.lose()
    first.turn()
    second.client()
    assert second.router.sessions[KEY].epoch > epoch


def test_a_session_that_is_kept_no_longer_is_written_once_more() -> None:
    worker = Worker(Log(), "a")
    worker.client()[0].subscribe(TOPIC)
    worker.turn()
    session = worker.router.sessions[KEY]
    session.expiry_interval_s = 0
    assert worker.journal.changed(session)
    worker.turn()
    worker.crash()
    assert not Worker(worker.log, "b").client()[1]
    other = Worker(Log(), "c")
    other.client(clean=True)
    assert not other.journal.changed(other.router.sessions[KEY])


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


def test_all_sessions_are_written_of_however_many_that_change_at_once() -> None:
    log = Log()
    worker = Worker(log, "a")
    names = [f"client{number}" for number in range(450)]
    for name in names:
        worker.client(name=name)[0].subscribe(TOPIC)
    for _ in range(10):
        worker.turn()
    worker.crash()
    second = Worker(log, "b")
    assert all(second.client(name=name)[1] for name in names)


def test_a_session_that_has_ended_before_it_was_written_is_not_written() -> None:
    log = Log()
    worker = Worker(log, "a", shared=True)
    worker.client(clean=True)[0].lose()
    worker.turn()
    assert not any(record.value() for record in log.compacted())


def test_a_client_that_was_connected_for_longer_than_its_session_lasts_still_has_it() -> None:
    log = Log()
    first = Worker(log, "a")
    first.client()[0].subscribe(TOPIC)
    first.turn()
    log.wall_ms += 30 * 24 * 3600 * 1000
    first.crash()
    assert Worker(log, "b").client()[1]


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


def test_options_of_a_subscription_survive() -> None:
    log = Log()
    first = Worker(log, "a")
    first.client()[0].subscribe(TOPIC)
    (subscription,) = first.router.sessions[KEY].subscriptions.values()
    subscription.no_local = subscription.retain_as_published = True
    subscription.identifier = 7
    first.turn()
    first.crash()
    second = Worker(log, "b")
    second.client()
    (again,) = second.router.sessions[KEY].subscriptions.values()
    assert (again.no_local, again.retain_as_published, again.identifier) == (True, True, 7)


def test_of_two_workers_that_have_begun_a_session_in_the_same_moment_not_both_give_it_up() -> None:
    log = Log()
    workers = [Worker(log, name, shared=True) for name in "ab"]
    wires = [each.client()[0] for each in workers]
    for each in workers:
        each.journal.flush()
    workers[0].turn()
    assert any(wire.connection.state != CLOSED for wire in wires)
    # They do not overwrite each other's records for ever, either.
    written = len(log.records)
    for each in workers * 2:
        each.turn()
    assert len(log.records) == written


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


def test_rubbish_in_the_topic_is_counted_and_left_out() -> None:
    log = Log()
    log.records += [
        Record(b"session\0alice\0phone", b"{", 0),
        Record(b"retained\0x", b"\xff", 0),
        Record(b"unknown", b"1", 0),
        Record(b"session", None, 0),
    ]
    worker = Worker(log, "a")
    assert not worker.client()[1]
    assert worker.journal.unreadable == 2


FILTERS = ["devices/alice/+/note", "devices/alice/phone/#", "owntracks/alice/+", "$share/g/x"]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["subscribe", "unsubscribe"]), st.sampled_from(FILTERS[:3])),
            st.tuples(st.sampled_from(["lose", "crash", "stop", "clean"]), st.none()),
        ),
        max_size=25,
    )
)
def test_subscriptions_are_those_of_a_server_that_never_stops(
    steps: list[tuple[str, str | None]],
) -> None:
    log = Log()
    worker = Worker(log, "0")
    expected: set[str] = set()
    wire, _ = worker.client(clean=True)
    wire.lose()
    wire, present = worker.client()
    alive = False
    for number, (step, topic_filter) in enumerate(steps):
        if step == "subscribe":
            assert topic_filter is not None
            wire.subscribe(topic_filter)
            expected.add(topic_filter)
        elif step == "unsubscribe":
            assert topic_filter is not None
            name = topic_filter.encode()
            body = b"\0\1" + len(name).to_bytes(2, "big") + name
            wire.send(b"\xa2" + bytes([len(body)]) + body)
            wire.received()
            expected.discard(topic_filter)
        elif step == "clean":
            wire, present = worker.client(clean=True)
            assert not present
            expected = set()
            wire.lose()
            wire, present = worker.client()
            assert not present
        else:
            worker.turn()
            if step != "lose":
                getattr(worker, step)()
                worker = Worker(log, str(number + 1))
            else:
                wire.lose()
            wire, alive = worker.client()
            assert alive
        session = worker.router.sessions[("alice", "phone")]
        assert set(session.subscriptions) == expected
        assert len(worker.router.subscriptions) == len(expected) or expected


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


def read_all(wire: Wire) -> list[bytes]:
    """Return what a client receives that acknowledges everything."""
    found: list[bytes] = []
    data = wire.first  # type: ignore[attr-defined]
    while data:
        found += payloads(data)
        for first, body in split_packets(data):
            if first >> 4 == PacketType.PUBLISH:
                length = int.from_bytes(body[:2], "big")
                wire.send(encode_puback(int.from_bytes(body[2 + length : 4 + length], "big")))
        data = wire.received() + wire.received()
    return found


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


def test_a_session_that_was_elsewhere_since_it_was_read_for_a_client_is_read_again() -> None:
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    wire, _ = first.client()
    wire.subscribe(TOPIC)
    wire.lose()
    publish(first.router, b"1")

    def move(owner: Worker, claimer: Worker, name: str) -> None:
        record = claimed(owner, name)
        assert record is not None
        claimer.journal.claimed(KEY, record)

    move(first, second, "b")
    for _ in second.journal.prepare(KEY):
        pass
    move(second, first, "a")
    wire, _ = first.client()
    assert read_all(wire) == [b"1"]
    wire.lose()
    publish(first.router, b"2")
    move(first, second, "b")
    wire, _ = second.client()
    assert read_all(wire) == [b"2"]
