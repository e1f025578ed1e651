"""The forms of records of topic `mqtt-state`: sessions and retained messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from gateway.mqtt.packets.codec import string_is_valid
from gateway.mqtt.packets.packets import SubscriptionRequest
from gateway.mqtt.sessions.session import Message

#: Of what waits for one client: in the record of its session, and in one of the records before it.
#: A message has no more than Settings.packet_bytes_max, and a record of the log 1 MB.
WAITING_INLINE_BYTES: Final = 64 * 1024
_WAITING_PART_BYTES: Final = 512 * 1024
_DELIVERY_BYTES: Final = 64  # beside payload and topic

#: User and client identifier.
SessionKey = tuple[str, str]


class StoredMessage(msgspec.Struct, omit_defaults=True):
    """A message. Properties are those of MQTT 5 by identifier, as MessagePack."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: bytes | None = None
    expires: int | None = None  # ms since 1970
    latest_only: bool = False
    worker: str = ""  # who wrote it, of a retained message
    owner: str | None = None  # whose share it is in, likewise


class StoredDelivery(msgspec.Struct, omit_defaults=True):
    """A message on its way to a client; `packet_id` 0: it was not sent yet."""

    message: StoredMessage
    qos: int
    retain: bool = False
    packet_id: int = 0
    released: bool = False
    identifiers: list[int] | None = None
    held: bool = False  # a friend's message as it is, to be told when homes are known


class StoredSubscription(msgspec.Struct, omit_defaults=True):
    """A subscription as it was asked for; what is granted of it is decided again."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    identifier: int = 0

    def request(self) -> SubscriptionRequest:
        """As its client asked for it."""
        return SubscriptionRequest(self.filter, self.qos, self.no_local, self.retain_as_published)


class StoredPart(msgspec.Struct, omit_defaults=True):
    """A part of what waits for the client of one session; MessagePack."""

    worker: str
    at: int  # as in the record of the session
    waiting: list[StoredDelivery]


class StoredSession(msgspec.Struct, omit_defaults=True):
    """A session as the log has it."""

    worker: str
    at: int  # of this record, ms since 1970
    expiry_interval_s: int
    device: str | None = None
    admin: bool = False
    connected: bool = False
    subscriptions: list[StoredSubscription] = []
    received: list[int] = []
    waiting: list[StoredDelivery] = []
    next_packet_id: int = 1
    ended: bool = False
    parts: int = 0  # records with the rest of `waiting`
    epoch: int = 0  # us since 1970, grows with every connection: a lower one is older
    missed: bool = False  # what is retained of friends is still to be sent
    awaited: list[str] = []  # filters of subscriptions that have not been sent all that is retained


class StoredStanding(msgspec.Struct):
    """Of a StoredSession, what is read without the rest: whose it is, and since when."""

    worker: str
    epoch: int = 0


class LastRecord(NamedTuple):
    """A record of an orderly stop."""

    key: bytes
    value: bytes | None
    messages: int  # that wait for a client, in it
    is_session: bool


def is_alive(session: StoredSession, now_ms: int) -> bool:
    """Tell whether a session has not expired."""
    # Of one that was connected, nobody has written when it ended: it does now.
    if not session.expiry_interval_s:
        return False
    return session.connected or session.at + 1000 * session.expiry_interval_s > now_ms


def size_of(delivery: StoredDelivery) -> int:
    message = delivery.message
    return (
        len(message.payload)
        + 4 * len(message.topic)
        + len(message.properties or b"")
        + _DELIVERY_BYTES
    )


def parts_of(waiting: list[StoredDelivery]) -> Iterator[list[StoredDelivery]]:
    """Deliveries by records, none of which is too long."""
    part: list[StoredDelivery] = []
    room = _WAITING_PART_BYTES
    for delivery in waiting:
        size = size_of(delivery)
        if part and size > room:
            yield part
            part, room = [], _WAITING_PART_BYTES
        part.append(delivery)
        room -= size
    yield part


def is_sendable(message: Message) -> bool:
    """Tell whether clients can read a message: libmosquitto ends its connection at a control
    character, and earlier versions of the gateway took them.
    """
    if not string_is_valid(message.topic):
        return False
    for value in (message.properties or {}).values():
        texts = (
            [value]
            if isinstance(value, str)
            else [text for pair in value if isinstance(pair, tuple) for text in pair]
            if isinstance(value, list)
            else []
        )
        if not all(map(string_is_valid, texts)):
            return False
    return True
