"""A log and workers with an MQTT journal, in memory."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gateway.mqtt.journal.journal import Journal
from gateway.mqtt.packets.encoder import encode_puback
from gateway.mqtt.packets.message import Message
from gateway.mqtt.packets.packets import PacketType
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

    def client(
        self, *, clean: bool = False, name: str = "phone", identity: User = ALICE
    ) -> tuple[Wire, bool]:
        """Connect a client; return it, and whether its session was present.

        `first` of the result are the packets after CONNACK.
        """
        wire = Wire(self.router, self.now)
        received = wire.connect(name, identity, clean=clean)
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


def claimed(owner: Worker, claimer: str) -> bytes | None:
    """Return what a worker hands over of the session of the client `phone`."""
    answers: list[bytes | None] = []
    owner.router.handover.hand_over(
        ("alice", "phone"), (owner.journal.epochs.after(0), claimer), answers.append, 0.0
    )
    (answer,) = answers
    return answer


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
