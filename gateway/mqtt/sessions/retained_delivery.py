"""Retained messages on their way to new subscribers (MQTT 5.0, section 3.3.1.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from gateway.mqtt.packets.topics import Subscription
from gateway.mqtt.sessions.session import Message

if TYPE_CHECKING:
    from gateway.mqtt.sessions.router import Router


class RetainedDelivery:
    """Of one router."""

    def __init__(self, router: Router) -> None:
        self._router = router
        #: Told of each subscription that is to get what is retained where the views are, when they
        #: are not here.
        self.ask: Callable[[Subscription, tuple[str, ...]], None] | None = None

    def send(self, subscription: Subscription, now: float) -> None:
        """Send a new subscriber what is retained (section 3.3.1.3), as fast as it can take it.

        What still waits of an earlier subscription is among it.
        """
        subscription.session.forget_retained(subscription.topic_filter)
        subscription.awaits_retained = True
        self.add(subscription, self.of(subscription.granted_filters))
        subscription.session.pump(now)
        if self.ask is not None:
            self.ask(subscription, subscription.granted_filters)

    def add(self, subscription: Subscription, messages: Iterable[Message | None]) -> None:
        """Have retained messages sent, after those that wait already."""
        session = subscription.session
        shown = self._router.rights.shown(messages, subscription)
        waiting = (session.backlog or {}).get(subscription.topic_filter)
        session.await_retained(subscription, shown if waiting is None else chain(waiting[1], shown))

    def begin(self, subscription: Subscription, topic_filters: tuple[str, ...]) -> None:
        """Have sent what is retained for some filters of a subscription, here and where the views
        are.
        """
        subscription.awaits_retained = True
        self.add(subscription, self.of(topic_filters))
        if self.ask is not None:
            self.ask(subscription, topic_filters)

    def add_derived(self, subscription: Subscription, topic_filters: tuple[str, ...]) -> None:
        """Have those sent that the platform has said while nobody was there to keep them."""
        self.add(subscription, self.derived(topic_filters))
        if self.ask is not None:
            self.ask(subscription, topic_filters)

    def came(self, subscription: Subscription, messages: Iterable[Message], now: float) -> None:
        """Send what `ask` has asked for."""
        session = subscription.session
        if session.subscriptions.get(subscription.topic_filter) is not subscription:
            return
        news = [each for each in messages if self._router.retained.get(each.topic) is None]
        self.add(subscription, news)
        session.pump(now)

    def of(self, topic_filters: tuple[str, ...]) -> Iterator[Message | None]:
        """Give the retained messages that match; None where a search may pause."""
        # The topics are fixed now, each message is looked up when its turn comes: a reader that
        # takes its time gets what is true then.
        for topic_filter in topic_filters:
            for topic in self._router.retained.matching(topic_filter):
                message = None if topic is None else self._router.retained.get(topic)
                if message is not None or topic is None:
                    yield message
            yield from self.derived((topic_filter,))

    def derived(self, topic_filters: tuple[str, ...]) -> Iterator[Message | None]:
        """Give those of the sources alone, for topics that nothing is stored of."""
        for topic_filter in topic_filters:
            for source in self._router.sources:
                for message in source.retained(topic_filter):
                    if message is None or self._router.retained.get(message.topic) is None:
                        yield message
