"""Converts live sessions and messages to the records in the log, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gateway.mqtt.journal.stored import (
    StoredDelivery,
    StoredMessage,
    StoredSession,
    StoredSubscription,
)
from gateway.mqtt.packets.message import Message
from gateway.mqtt.packets.packets import Properties

if TYPE_CHECKING:
    from gateway.mqtt.sessions.session import Session

_USER_PROPERTY: Final = 38


class JournalCodec:
    """Converts for one worker; `wall_ms` is Unix time, `clock` the messages' monotonic time (s)."""

    def __init__(self, worker: str, wall_ms: Callable[[], int], clock: Callable[[], float]) -> None:
        self._worker = worker
        self._wall_ms = wall_ms
        self._clock = clock

    def stored_session(self, session: Session, waiting: list[StoredDelivery]) -> StoredSession:
        """Return a session's record; `waiting` are the queued messages that it is to contain."""
        return StoredSession(
            worker=self._worker,
            at=self._wall_ms(),
            expiry_interval_s=session.expiry_interval_s,
            device=session.identity.device,
            admin=session.identity.admin,
            connected=session.connection is not None,
            subscriptions=[
                StoredSubscription(
                    each.topic_filter,
                    each.qos,
                    each.no_local,
                    each.retain_as_published,
                    each.identifier,
                )
                for each in session.subscriptions.values()
            ],
            received=sorted(session.received or ()),
            waiting=waiting,
            next_packet_id=session.next_packet_id,
            epoch=session.epoch,
        )

    def waiting(self, session: Session, held: Iterable[Message]) -> list[StoredDelivery]:
        """Return all deliveries that wait for a client, in the order of sending.

        `held` are friends' messages that cannot be filtered before homes are known.
        """
        sent = list((session.in_flight or {}).items())
        return [
            StoredDelivery(
                self.stored_message(delivery.message),
                delivery.qos,
                delivery.retain,
                packet_id,
                delivery.released,
                delivery.identifiers,
            )
            for packet_id, delivery in [*sent, *((0, each) for each in session.queue or ())]
        ] + [
            StoredDelivery(self.stored_message(message), message.qos, held=True) for message in held
        ]

    def stored_message(self, message: Message) -> StoredMessage:
        """Return a message in its stored form."""
        expires = None
        if message.expires_at is not None:
            expires = self._wall_ms() + round(1000 * (message.expires_at - self._clock()))
        return StoredMessage(
            message.topic,
            message.payload,
            message.qos,
            message.retain,
            msgspec.msgpack.encode(message.properties) if message.properties else None,
            expires,
            message.latest_only,
        )

    def message(self, stored: StoredMessage, written_ms: int) -> Message:
        """Return a message that was stored at `written_ms` (Unix time) as a live one.

        Its time left is not more than it was then, should the clock have been set back since.
        """
        properties: Properties | None = None
        if stored.properties is not None:
            decoded: dict[int, Any] = msgspec.msgpack.decode(stored.properties, type=dict[int, Any])
            properties = {
                name: [tuple(pair) for pair in value] if name == _USER_PROPERTY else value
                for name, value in decoded.items()
            }
        expires_at = None
        if stored.expires is not None:
            left_ms = stored.expires - max(written_ms, self._wall_ms())
            expires_at = self._clock() + left_ms / 1000
        message = Message(
            stored.topic,
            stored.payload,
            stored.qos,
            stored.retain,
            properties,
            expires_at,
            stored.latest_only,
        )
        message.owner = stored.owner
        return message
