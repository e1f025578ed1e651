"""Resuming sessions from the log, or as another worker has handed them over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.mqtt.journal.journal import Journal
from gateway.mqtt.journal.stored import StoredSession, session_key
from gateway.mqtt.packets.message import Delivery
from gateway.mqtt.packets.packet_fields import string_is_valid
from gateway.mqtt.packets.topics import Subscription
from gateway.mqtt.sessions.session import Session

if TYPE_CHECKING:
    from gateway.mqtt.sessions.router import Router


class Resumption:
    """Resumes the sessions of one router."""

    def __init__(self, router: Router) -> None:
        self._router = router
        #: Number of queued messages that were dropped for lack of room.
        self.dropped = 0

    def resume(self, session: Session, stored: StoredSession, journal: Journal, now: float) -> None:
        """Restore a stored session's state into a session that has just begun."""
        awaited = frozenset(stored.awaited)
        for each in stored.subscriptions:
            if not string_is_valid(each.filter):
                continue
            _, subscription = self._router.subscribe(session, each.request(), each.identifier)
            if subscription is not None:
                is_awaited = each.filter in awaited
                self._send_retained(subscription, is_awaited=is_awaited, missed=stored.missed)
        session.received = set(stored.received) or None
        session.next_packet_id = stored.next_packet_id
        self._restore_waiting(session, stored, journal, now)

    def _send_retained(self, subscription: Subscription, *, is_awaited: bool, missed: bool) -> None:
        """Queue retained messages that are still due.

        How many of them were sent before is not known, so all are sent again.
        """
        delivery = self._router.retained_delivery
        due: tuple[str, ...] = ()
        if is_awaited:
            due = subscription.granted_filters
        elif missed and subscription.reaches_friends:
            due = self._router.right_changes.filters_of_friends(subscription)
        if due:
            delivery.begin(subscription, due)
        if subscription.qos:
            # Messages that the platform published while no worker kept the session.
            rest = tuple(each for each in subscription.granted_filters if each not in due)
            delivery.add_derived(subscription, rest)

    def _restore_waiting(
        self, session: Session, stored: StoredSession, journal: Journal, now: float
    ) -> None:
        """Put the waiting messages that may still be read back into a client's session."""
        readable = self._router.rights.readable(session.identity)
        key = session_key(session.identity, session.client_id)
        has_held = False
        for each, message in journal.take_waiting(key, stored):
            if not readable(message):
                continue
            if each.held:
                self._router.rights.hold(message, session)
                has_held = True
                continue
            delivery = Delivery(message, each.qos, each.retain, each.identifiers)
            if each.packet_id:
                delivery.released = each.released
                session.restore(each.packet_id, delivery)
            elif not session.enqueue(delivery):
                self.dropped += 1
        if has_held:
            self._router.right_changes.send_untold(now)
