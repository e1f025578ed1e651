"""Sessions of clients that are away, while the workers that keep them are restarted."""

from __future__ import annotations

from collections.abc import Callable

from gateway.mqtt.journal.journal import Journal
from gateway.mqtt.journal.seats import Seat
from gateway.mqtt.packets.message import Message
from gateway.mqtt.packets.packets import PacketType
from tests.gateway.mqtt.in_memory import User, Wire, new_router, split_packets
from tests.gateway.records import StoredRecord

ADA = User("ada")
TOPIC = "devices/ada/phone/note"


class Worker:
    """A process that has taken a seat and read the log."""

    def __init__(self, seat: Seat, records: list[StoredRecord]) -> None:
        self.scheduled: list[Callable[[], None]] = []
        self.journal = Journal(
            seat.worker_name(),
            lambda key, value: records.append(StoredRecord(key, value)),
            lambda: 1_000_000,
            lambda: 0.0,
            self.scheduled.append,
            shared=True,
            seat=seat,
        )
        self.journal.on_records(records)
        self.router = new_router()
        self.router.keep(self.journal, 0.0)
        self.journal.writes_all = False

    def client(self, name: str) -> Wire:
        wire = Wire(self.router, 0.0)
        wire.connect(name, ADA, clean=False)
        return wire

    def flush(self) -> None:
        for callback in self.scheduled:
            callback()


def _away(seat: Seat, *names: str) -> list[StoredRecord]:
    """Return the log after a worker was killed with these subscribed clients away."""
    records: list[StoredRecord] = []
    worker = Worker(seat, records)
    for name in names:
        client = worker.client(name)
        client.subscribe(TOPIC)
        client.lose()
    worker.flush()
    return records


def test_what_is_published_after_a_restart_waits_for_clients_that_are_still_away() -> None:
    records = _away(Seat(2, 3), "phone")
    worker = Worker(Seat(2, 3), records)
    worker.router.publish(Message(TOPIC, b"news", 1), None, 0.0)
    wire = Wire(worker.router, 0.0)
    connack, publish = split_packets(wire.connect("phone", ADA, clean=False) + wire.received())
    assert connack[1][0] == 1
    assert publish[0] >> 4 == PacketType.PUBLISH
    assert publish[1].endswith(b"news")


def test_a_session_is_kept_by_the_worker_that_has_the_seat_of_its_last_one() -> None:
    records = _away(Seat(2, 3), "phone")
    kept = [len(Worker(Seat(n, 3), records).router.sessions) for n in (1, 2, 3)]
    assert kept == [0, 1, 0]


def test_sessions_of_seats_that_are_no_more_are_divided_among_the_others() -> None:
    names = [f"phone-{n}" for n in range(40)]
    records = _away(Seat(4, 4), *names)
    kept = [Worker(Seat(n, 2), records).router.sessions.keys() for n in (1, 2)]
    assert all(kept)
    assert sorted(name for each in kept for _, name in each) == sorted(names)


def test_a_session_that_is_kept_again_is_older_than_one_begun_elsewhere_since() -> None:
    records = _away(Seat(2, 3), "phone")
    elsewhere = Worker(Seat(1, 3), records)
    again = Worker(Seat(2, 3), list(records))
    elsewhere.client("phone")
    session = elsewhere.router.sessions["ada", "phone"]
    assert session.epoch > again.router.sessions["ada", "phone"].epoch
