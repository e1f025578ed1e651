"""The records of topic `mqtt-state`: sessions and retained messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from gateway.mqtt.interfaces import Identity
from gateway.mqtt.packets.message import Message
from gateway.mqtt.packets.packet_fields import string_is_valid
from gateway.mqtt.packets.packets import SubscriptionRequest

#: Bytes of waiting messages: in the record of a session, and in each of the records before it.
#: A message has at most Settings.packet_bytes_max, a record of the log at most 1 MB.
WAITING_INLINE_BYTES: Final = 64 * 1024
_WAITING_PART_BYTES: Final = 512 * 1024
_DELIVERY_BYTES: Final = 64  # estimated size of a delivery beside payload, topic and properties

#: The login, `user` or for a token of one device `user/device`, and the client identifier.
SessionKey = tuple[str, str]


def session_key(identity: Identity, client_id: str) -> SessionKey:
    """Return the key of a client's session.

    Client identifiers are separate for each login. So nobody can end or take over a session of
    another user, and whoever holds the token of a device none of its owner's.
    """
    device = identity.device
    return (identity.user if device is None else f"{identity.user}/{device}"), client_id


def user_of(key: SessionKey) -> str:
    """Return the user whose session it is."""
    return key[0].partition("/")[0]


class StoredMessage(msgspec.Struct, omit_defaults=True):
    """A message. `properties` maps MQTT 5 property identifiers to values, as MessagePack."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: bytes | None = None
    expires: int | None = None  # ms since 1970
    latest_only: bool = False
    worker: str = ""  # that wrote it; only of retained messages
    owner: str | None = None  # user whose share it counts in; only of retained messages


class StoredDelivery(msgspec.Struct, omit_defaults=True):
    """A message that is queued for or in flight to a client; `packet_id` is 0 before sending."""

    message: StoredMessage
    qos: int
    retain: bool = False
    packet_id: int = 0
    released: bool = False
    identifiers: list[int] | None = None
    held: bool = False  # a friend's message, unfiltered; it is filtered when homes are known


class StoredSubscription(msgspec.Struct, omit_defaults=True):
    """A subscription as its client requested it; rights are applied again on resumption."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    identifier: int = 0

    def request(self) -> SubscriptionRequest:
        """Return the subscription as its client requested it."""
        return SubscriptionRequest(self.filter, self.qos, self.no_local, self.retain_as_published)


class StoredPart(msgspec.Struct, omit_defaults=True):
    """Part of the messages that wait for the client of one session; MessagePack."""

    worker: str
    at: int  # as in the record of the session
    waiting: list[StoredDelivery]


class StoredSession(msgspec.Struct, omit_defaults=True):
    """A session as stored in the log."""

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
    missed: bool = False  # retained messages of friends are still to be sent
    awaited: list[str] = []  # filters whose retained messages have not all been sent


class SessionOwnership(msgspec.Struct):
    """The fields of a StoredSession that are decoded without the rest."""

    worker: str
    epoch: int = 0
    device: str | None = None


class LastRecord(NamedTuple):
    """A record that an orderly stop writes."""

    key: bytes
    value: bytes | None
    messages: int  # number of waiting messages in it
    is_session: bool


def is_alive(session: StoredSession, now_ms: int) -> bool:
    """Return whether a session has not expired."""
    # If the client was connected, no record tells when the connection ended: it ends now.
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
    """Split deliveries into lists that fit into one record each."""
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
    """Return whether clients can read a message.

    libmosquitto disconnects when it receives a control character, and earlier versions of the
    gateway accepted them.
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
