"""Queues for sessions on their way here: they keep what is published for their clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.mqtt.interfaces import Identity
from gateway.mqtt.journal.stored import SessionKey, StoredSession, user_of
from gateway.mqtt.packets.message import Delivery, Message
from gateway.mqtt.packets.packet_fields import string_is_valid
from gateway.mqtt.packets.topics import split_share
from gateway.mqtt.sessions.session import Session
from gateway.users import auth

if TYPE_CHECKING:
    from gateway.mqtt.sessions.router import Router


class _Arriving(Session):
    """A stand-in with the subscriptions of a session that another worker is about to hand over.

    Messages that cross between workers before that worker has been told come with its session.
    """

    def __init__(
        self, router: Router, client_id: str, identity: Identity, crosses: Callable[[], bool]
    ) -> None:
        super().__init__(client_id, identity, router.settings)
        self._crosses = crosses
        self.is_due = False

    def deliver(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: list[int] | None,
        now: float,
    ) -> bool:
        """Queue a message; it will follow those that the other worker has."""
        if not qos or (self._crosses() and not self.is_due):
            return False
        return self.enqueue(Delivery(message, qos, retain, identifiers))


class ArrivingSessions:
    """The arriving sessions of one router.

    `crosses()` tells whether the message delivered now has come from another worker.
    """

    def __init__(self, router: Router, crosses: Callable[[], bool]) -> None:
        self._router = router
        self._crosses = crosses
        self._sessions: dict[SessionKey, _Arriving] = {}

    def expect(self, key: SessionKey, stored: StoredSession) -> None:
        """Queue what is published for a client from now on, until `take` or `forget`."""
        self.forget(key)
        router = self._router
        identity = router.rights.now(auth.Identity(user_of(key), stored.device, stored.admin))
        if identity is None:
            return
        session = self._sessions[key] = _Arriving(router, key[1], identity, self._crosses)
        for each in stored.subscriptions:
            # Other members of the shared group get its messages meanwhile.
            share, topic_filter = split_share(each.filter)
            if share is not None or not string_is_valid(topic_filter):
                continue
            granted = router.rules.granted_filters(identity, topic_filter)
            if granted:
                router.begin_subscription(session, each.request(), each.identifier, granted)

    def due(self, key: SessionKey) -> None:
        """Queue messages from other workers, too: the other worker no longer brings them."""
        session = self._sessions.get(key)
        if session is not None:
            session.is_due = True

    def deliver(self, key: SessionKey, message: Message, now: float) -> None:
        """Queue a message for a client whose session is expected, if it has subscribed to it."""
        session = self._sessions.get(key)
        if session is None:
            return
        found = [
            each
            for each in self._router.subscriptions.match_unshared(message.topic)
            if each.session is session
        ]
        if found:
            self._router.deliver(message, found, None, now)

    def take(self, key: SessionKey) -> list[Delivery]:
        """Return the queued messages of a client that is about to be connected."""
        session = self._sessions.pop(key, None)
        if session is None:
            return []
        for subscription in session.subscriptions.values():
            self._router.drop(subscription)
        session.ended = True
        return list(session.queue or ())

    def forget(self, key: SessionKey) -> None:
        """Drop the queue of a session that does not come."""
        self.take(key)
