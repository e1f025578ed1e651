"""Sessions of devices' tokens in the log: apart from their user's, also those of older versions."""

from __future__ import annotations

from gateway.mqtt.journal.seats import Seat
from gateway.mqtt.packets.message import Message
from spark.history.erase import _is_mqtt_state_of
from tests.gateway.mqtt.in_memory import User, Wire
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


def test_a_devices_session_of_an_older_version_is_found_with_what_waits_for_it() -> None:
    log = Log()
    first = Worker(log, "a")
    wire, _ = first.client(identity=PHONE)
    wire.subscribe(TOPIC)
    wire.lose()
    for number in range(30):
        publish(first.router, b"%d" % number + b"x" * 5_000)
    first.stop()
    log.records = [
        Record(as_older_versions_wrote_it(each.key()), each.value(), log.wall_ms)
        for each in log.records
    ]
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
