"""Changes of rights while sessions are open, and of what friends get once homes are known.

Changes of many sessions are made step by step (`Router.begin`), one client's rights in each step.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Set
from typing import TYPE_CHECKING, Final

from gateway.mqtt.interfaces import Identity
from gateway.mqtt.journal.stored import user_of
from gateway.mqtt.packets.message import Message
from gateway.mqtt.packets.packets import ReasonCode
from gateway.mqtt.packets.topics import Subscription, matches, split_share
from gateway.mqtt.sessions.session import Session

if TYPE_CHECKING:
    from gateway.mqtt.sessions.router import Router

logger = logging.getLogger(__name__)

#: Sessions that one step examines if none of them is affected.
_LOOKED_AT: Final = 500


class RightChanges:
    """Applies changes of rights to the sessions of one router."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def identify(self, session: Session, identity: Identity, now: float) -> None:
        """Give a session a new identity: another token, perhaps, or other rights."""
        if session.identity == identity:
            return
        before, session.identity = session.identity, identity
        if session.connection is not None:
            session.connection.route = None  # the right to publish is checked again
        self._router.rights_changes += 1
        self._router.rights.keep_readable(session, before)
        if session.subscriptions:
            user = self._router.accounts.turn_of(session)
            self._router.begin(self._grant_all_again(session, identity, now), user)

    def _grant_all_again(self, session: Session, identity: Identity, now: float) -> Iterator[None]:
        for name, subscription in list(session.subscriptions.items()):
            if session.ended or session.identity is not identity:
                return
            if session.subscriptions.get(name) is subscription:
                self._grant_again(subscription, split_share(name)[1])
                yield
        session.pump(now)

    def _grant_again(self, subscription: Subscription, topic_filter: str) -> None:
        """Apply changed rights to a subscription, which may come to match nothing, or again."""
        identity = subscription.session.identity
        granted = self._router.rules.granted_filters(identity, topic_filter)
        if subscription.session.reach + len(granted) - len(subscription.granted_filters) > (
            self._router.settings.granted_filters_per_session_max
        ):
            # The filter was allowed when there were fewer friends.
            granted = tuple(each for each in granted if each in subscription.granted_filters)
        subscription.reaches_friends = self._router.rules.reaches_friends(identity, granted)
        if granted == subscription.granted_filters:
            return
        fresh = tuple(each for each in granted if each not in subscription.granted_filters)
        self._router.drop(subscription)
        subscription.granted_filters = granted
        self._router.add(subscription)
        if fresh and subscription.share is None:
            self._router.retained_delivery.begin(subscription, fresh)

    def apply(self, users: Set[str], now: float) -> None:
        """Apply the current rights to the sessions of some users; called for Permissions."""
        self._router.begin(self._apply_rights(frozenset(users), now))

    def _apply_rights(self, users: Set[str], now: float) -> Iterator[None]:
        for number, key in enumerate(list(self._router.sessions), 1):
            if not number % _LOOKED_AT:
                yield
            session = self._router.sessions.get(key) if user_of(key) in users else None
            if session is None:
                continue
            try:
                identity = self._router.rights.now(session.identity)
                if identity is None:
                    self._revoke(session)
                    continue
                self.identify(session, identity, now)
                self._router.session_changed(session)
                session.pump(now)
            except Exception:
                # The client must not read with outdated rights; its next CONNECT checks them.
                logger.exception("the rights of a client could not be applied")
                if session.connection is not None:
                    session.connection.close(ReasonCode.SERVER_BUSY, "rights cannot be read now")
            yield

    def send_untold(self, now: float) -> None:
        """Send the friends' messages that were held back until homes are known, if they are."""
        self._router.begin(self._send_withheld(self._router.rights.take_withheld(), now))
        self._router.begin(self._send_held(self._router.rights.take_held(), now))

    def _send_withheld(self, withheld: Iterable[Subscription], now: float) -> Iterator[None]:
        for subscription in withheld:
            session = subscription.session
            if session.subscriptions.get(subscription.topic_filter) is not subscription:
                continue
            self._router.retained_delivery.begin(
                subscription, self.filters_of_friends(subscription)
            )
            session.pump(now)
            yield

    def filters_of_friends(self, subscription: Subscription) -> tuple[str, ...]:
        """Return the granted filters of a subscription that match friends' topics."""
        reaches_friends = self._router.rules.reaches_friends
        identity = subscription.session.identity
        return tuple(
            each for each in subscription.granted_filters if reaches_friends(identity, (each,))
        )

    def _send_held(self, held: Iterable[tuple[Message, Session]], now: float) -> Iterator[None]:
        for message, session in held:
            if not (session.ended or message.expired(now)):
                matching = [
                    each
                    for each in session.subscriptions.values()
                    if any(matches(granted, message.topic) for granted in each.granted_filters)
                ]
                if matching:
                    self._router.deliver(message, matching, None, now)
            yield

    def _revoke(self, session: Session) -> None:
        """End the session of a client whose credentials were revoked."""
        session.expiry_interval_s = 0  # nothing is queued for a client that may not come back
        if session.connection is None:
            session.will = None
            self._router.end(session)
        else:
            session.connection.will = None
            session.connection.close(ReasonCode.NOT_AUTHORIZED, "the credentials were revoked")
