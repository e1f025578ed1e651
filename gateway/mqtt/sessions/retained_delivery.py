"""Delivery of retained messages to new subscribers (MQTT 5.0, section 3.3.1.3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from gateway.mqtt.packets.message import Message
from gateway.mqtt.packets.topics import Subscription

if TYPE_CHECKING:
    from gateway.mqtt.sessions.router import Router
    from gateway.mqtt.sessions.session import Session


class Questions(Protocol):
    """Asks the gateway that has the views for the derived retained messages of subscriptions."""

    def ask(self, subscription: Subscription, topic_filters: tuple[str, ...]) -> None: ...
    def gone(self, session: Session) -> None: ...
    def back(self, session: Session) -> None: ...
    def forget(self, subscription: Subscription) -> None: ...


class RetainedDelivery:
    """Delivers the retained messages of one router."""

    def __init__(self, router: Router) -> None:
        self._router = router
        #: On a worker without views; the answers go to `came`.
        self.questions: Questions | None = None

    def send(self, subscription: Subscription, now: float) -> None:
        """Send a new subscriber the retained messages, as fast as it takes them.

        They replace what still waits of an earlier subscription with the same filter.
        """
        subscription.session.forget_retained(subscription.topic_filter)
        subscription.awaits_retained = True
        self.add(subscription, self.of(subscription.granted_filters))
        subscription.session.pump(now)
        self._ask(subscription, subscription.granted_filters)

    def _ask(self, subscription: Subscription, topic_filters: tuple[str, ...]) -> None:
        if self.questions is not None:
            self.questions.ask(subscription, topic_filters)

    def gone(self, session: Session) -> None:
        """Ask nothing more for a client that has disconnected, until it is back."""
        if self.questions is not None:
            self.questions.gone(session)

    def back(self, session: Session) -> None:
        """Ask for what a client has not been sent yet that has connected again."""
        if self.questions is not None:
            self.questions.back(session)

    def forget(self, subscription: Subscription) -> None:
        """Ask nothing more for a subscription that has ended."""
        if self.questions is not None:
            self.questions.forget(subscription)

    def add(self, subscription: Subscription, messages: Iterable[Message | None]) -> None:
        """Queue retained messages after those that wait already."""
        session = subscription.session
        shown = self._router.rights.shown(messages, subscription)
        waiting = (session.backlog or {}).get(subscription.topic_filter)
        session.await_retained(subscription, shown if waiting is None else chain(waiting[1], shown))

    def begin(self, subscription: Subscription, topic_filters: tuple[str, ...]) -> None:
        """Queue the retained messages of some filters of a subscription.

        These are the stored ones, and the derived ones from here or from where the views are.
        """
        subscription.awaits_retained = True
        self.add(subscription, self.of(topic_filters))
        self._ask(subscription, topic_filters)

    def add_derived(self, subscription: Subscription, topic_filters: tuple[str, ...]) -> None:
        """Queue derived messages: the platform published them while the session was not kept."""
        self.add(subscription, self.derived(topic_filters))
        self._ask(subscription, topic_filters)

    def came(self, subscription: Subscription, messages: Iterable[Message], now: float) -> None:
        """Send the messages that were asked for, unless the subscription has ended."""
        session = subscription.session
        if session.subscriptions.get(subscription.topic_filter) is not subscription:
            return
        news = [each for each in messages if self._router.retained.get(each.topic) is None]
        self.add(subscription, news)
        session.pump(now)

    def of(self, topic_filters: tuple[str, ...]) -> Iterator[Message | None]:
        """Yield the retained messages that match; None where a search may pause."""
        # The topics are fixed now, but each message is looked up when its turn comes, so that a
        # slow reader gets the current ones.
        for topic_filter in topic_filters:
            for topic in self._router.retained.matching(topic_filter):
                message = None if topic is None else self._router.retained.get(topic)
                if message is not None or topic is None:
                    yield message
            yield from self.derived((topic_filter,))

    def derived(self, topic_filters: tuple[str, ...]) -> Iterator[Message | None]:
        """Yield the messages of the sources for topics without a stored message."""
        for topic_filter in topic_filters:
            for source in self._router.sources:
                for message in source.retained(topic_filter):
                    if message is None or self._router.retained.get(message.topic) is None:
                        yield message
