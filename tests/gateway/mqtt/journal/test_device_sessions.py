"""Sessions of devices' tokens in the log: apart from their user's, also those of older versions."""

from __future__ import annotations

from gateway.mqtt.journal.seats import Seat
from gateway.mqtt.journal.stored import StoredSession, StoredSubscription
from gateway.mqtt.packets.message import Message
from gateway.mqtt.workers.arriving import ArrivingSessions
from spark.history.erase import _is_mqtt_state_of
from tests.gateway.mqtt.in_memory import User, Wire, new_router
from tests.gateway.mqtt.journal.test_seats import Worker as SeatedWorker
from tests.gateway.mqtt.journal_worker import (
    ALICE,
    TOPIC,
    Log,
    Record,
    Worker,
    payloads,
    publish,
    read_all,
)
from tests.gateway.records import StoredRecord
from waylog.kafka.topics import MQTT_STATE
from waylog.sealing.sealing import owner_of_record, owners_of_user

PHONE = User("alice", "phone")


def keys(log: Log) -> set[bytes]:
    return {record.key() for record in log.compacted() if record.value() is not None}


def as_older_versions_wrote_it(key: bytes) -> bytes:
    """Return a key without the device in it."""
    return key.replace(b"alice/phone\0", b"alice\0")


def test_the_sessions_of_a_user_and_of_a_device_outlive_each_other() -> None:
    log = Log()
    first = Worker(log, "a")
    owner, _ = first.client(identity=ALICE)
    owner.subscribe(TOPIC)
    first.turn()
    assert not first.client(identity=PHONE)[1]
    first.turn()
    assert keys(log) == {b"session\0alice\0phone", b"session\0alice/phone\0phone"}
    first.crash()
    second = Worker(log, "b")
    assert second.client(identity=ALICE)[1]
    assert second.client(identity=PHONE)[1]


def left_by_an_older_version(log: Log) -> list[Record]:
    """Return the records of a phone's session for which 30 messages wait."""
    first = Worker(log, "a")
    wire, _ = first.client(identity=PHONE)
    wire.subscribe(TOPIC)
    wire.lose()
    for number in range(30):
        publish(first.router, b"%d" % number + b"x" * 5_000)
    first.stop()
    return [
        Record(as_older_versions_wrote_it(each.key()), each.value(), log.wall_ms)
        for each in log.records
    ]


def test_a_devices_session_of_an_older_version_is_found_with_what_waits_for_it() -> None:
    log = Log()
    log.records = left_by_an_older_version(log)
    assert len(log.records) > 1
    second = Worker(log, "b")
    second.turn()
    assert keys(log) == {b"session\0alice/phone\0phone"}
    publish(second.router, b"news")
    assert not second.client(identity=ALICE)[1]
    again, present = second.client(identity=PHONE)
    assert present
    found = read_all(again)
    assert [each.partition(b"x")[0] for each in found] == [b"%d" % n for n in range(30)] + [b"news"]


def test_a_devices_session_that_has_ended_does_not_come_back_from_an_older_record() -> None:
    log = Log()
    first = Worker(log, "a")
    first.client(identity=PHONE)[0].lose()
    first.turn()
    log.records = [
        Record(as_older_versions_wrote_it(each.key()), each.value(), log.wall_ms)
        for each in log.records
    ]
    first.crash()
    second = Worker(log, "b")
    second.client(identity=PHONE, clean=True)
    second.turn()
    second.crash()
    third = Worker(log, "c")
    wire, _ = third.client(identity=PHONE, clean=True)
    wire.send(b"\xe0\x00")
    third.turn()
    third.crash()
    assert len(Worker(log, "d").router.sessions) <= 1
    assert all(b"alice\0" not in key for key in keys(log))


def test_what_an_older_record_says_does_not_replace_what_came_after_it() -> None:
    log = Log()
    old = left_by_an_older_version(log)
    log.records = list(old)
    log.wall_ms += 1_000
    second = Worker(log, "b")
    second.turn()
    again, _ = second.client(identity=PHONE)
    assert len(read_all(again)) == 30
    again.lose()
    publish(second.router, b"news")
    second.stop()
    # As if the older records had not been ended: the worker was killed before.
    renamed = [each for each in log.compacted() if each.key().startswith(b"session\0alice/phone\0")]
    log.records = [*old, *renamed]
    third = Worker(log, "c")
    third.turn()
    assert keys(log) == {b"session\0alice/phone\0phone"}
    wire, present = third.client(identity=PHONE)
    assert present
    assert read_all(wire) == [b"news"]


def test_a_worker_without_a_seat_keeps_no_session_whose_client_is_away() -> None:
    log = Log()
    first = Worker(log, "a", shared=True)
    for identity in (ALICE, PHONE):
        first.client(identity=identity)[0].lose()
    first.turn()
    first.crash()
    second = Worker(log, "b", shared=True)
    assert not second.router.sessions
    assert second.journal.knows(("alice/phone", "phone"))


def test_a_devices_session_that_is_not_to_outlive_its_connection_any_more_does_not() -> None:
    log = Log()
    first = Worker(log, "a")
    first.client(identity=PHONE)[0].lose()
    first.turn()
    # Until now it was to be kept for ever; without a Session Expiry Interval it is not.
    wire = Wire(first.router, 0.0)
    wire.connect("phone", PHONE, version=5, clean=False)
    first.turn()
    first.crash()
    assert not Worker(log, "b").router.sessions


def test_what_is_published_while_a_devices_session_moves_to_another_worker_waits_for_it() -> None:
    router = new_router()
    arriving = ArrivingSessions(router, lambda: False)
    key = ("alice/phone", "c")
    subscriptions = [StoredSubscription(TOPIC, 1), StoredSubscription("devices/bob/phone/note", 1)]
    arriving.expect(key, StoredSession("a", 0, 60, device="phone", subscriptions=subscriptions))
    publish(router, b"news")
    publish(router, b"not hers", topic="devices/bob/phone/note")
    assert [each.message.payload for each in arriving.take(key)] == [b"news"]


def test_one_of_several_workers_renames_a_devices_session() -> None:
    records: list[StoredRecord] = []
    first = SeatedWorker(Seat(2, 3), records)
    wire = Wire(first.router, 0.0)
    wire.connect("phone", PHONE, clean=False)
    wire.subscribe(TOPIC)
    wire.lose()
    first.flush()
    old = [
        StoredRecord(as_older_versions_wrote_it(each.key() or b""), each.value())
        for each in records
    ]
    workers = [SeatedWorker(Seat(number, 3), old) for number in (1, 2, 3)]
    kept = [list(worker.router.sessions) for worker in workers]
    assert kept == [[], [("alice/phone", "phone")], []]
    assert [worker.journal.knows(("alice/phone", "phone")) for worker in workers] == [True] * 3
    workers[1].router.publish(Message(TOPIC, b"news", 1), None, 0.0)
    again = Wire(workers[1].router, 0.0)
    assert payloads(again.connect("phone", PHONE, clean=False)[4:] + again.received()) == [b"news"]


def test_a_user_is_erased_with_the_sessions_of_the_users_devices() -> None:
    key = b"session\0alice/phone\0any id"
    assert owner_of_record(MQTT_STATE, key) in owners_of_user("alice")
    assert _is_mqtt_state_of(key, set(), {"alice"})
    assert not _is_mqtt_state_of(key, set(), {"alic"})
