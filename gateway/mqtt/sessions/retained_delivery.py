"""Delivery of retained messages to new subscribers (MQTT 5.0, section 3.3.1.3).

The retained message of `owntracks/<user>/<device>` is the device's newest position, however it came
and whichever worker its client is connected to. A client may have retained another message there,
or a position, of which only its worker knows. That is delivered if the views have no position, or
none that is newer.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from gateway.mqtt.packets.message import Message
from gateway.mqtt.packets.topics import Subscription
from gateway.mqtt.publishing.position_times import is_newest, is_position_topic
from waylog.observability.telemetry import now_ms

if TYPE_CHECKING:
    from gateway.mqtt.sessions.router import Router
    from gateway.mqtt.sessions.session import Session


class Questions(Protocol):
    """Asks the gateway that has the views for the derived retained messages of subscriptions.

    `with_stored`: what is stored here in the place of positions waits for the answer.
    """

    def ask(
        self, subscription: Subscription, topic_filters: Iterable[str], *, with_stored: bool
    ) -> None: ...
    def gone(self, session: Session) -> None: ...
    def back(self, session: Session) -> None: ...
    def forget(self, subscription: Subscription) -> None: ...


class RetainedDelivery:
    """Delivers the retained messages of one router."""

    def __init__(self, router: Router) -> None:
        self._router = router
        #: On a worker without views; the answer for each filter goes to `came`.
        self.questions: Questions | None = None

    def send(self, subscription: Subscription, now: float | None) -> None:
        """Send a new subscriber the retained messages, as fast as it takes them.

        They replace what still waits of an earlier subscription with the same filter. Without `now`
        they wait for the client.
        """
        subscription.session.forget_retained(subscription.topic_filter)
        self.begin(subscription, subscription.granted_filters, now)

    def _ask(
        self, subscription: Subscription, topic_filters: tuple[str, ...], *, with_stored: bool
    ) -> None:
        if self.questions is not None:
            self.questions.ask(subscription, topic_filters, with_stored=with_stored)

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

    def begin(
        self, subscription: Subscription, topic_filters: tuple[str, ...], now: float | None = None
    ) -> None:
        """Queue the retained messages of some filters of a subscription, and with `now` send them.

        These are the stored ones, and the derived ones from here or from where the views are.
        """
        subscription.awaits_retained = True
        self.add(subscription, self.of(topic_filters))
        if now is not None:
            subscription.session.pump(now)
        self._ask(subscription, topic_filters, with_stored=True)

    def add_derived(self, subscription: Subscription, topic_filters: tuple[str, ...]) -> None:
        """Queue derived messages: the platform published them while the session was not kept."""
        self.add(subscription, self._derived(topic_filters, beside_stored=True))
        self._ask(subscription, topic_filters, with_stored=False)

    def came(
        self,
        subscription: Subscription,
        topic_filter: str,
        messages: Iterable[Message],
        now: float,
        *,
        with_stored: bool = True,
    ) -> None:
        """Send the messages that were asked for, unless the subscription has ended.

        Those that are stored here in the place of positions have waited for them `with_stored`.
        """
        session = subscription.session
        if session.subscriptions.get(subscription.topic_filter) is not subscription:
            return
        news = {each.topic: each for each in messages if self._replaces_stored(each)}
        found: Iterable[Message | None] = news.values()
        if with_stored:
            found = chain(found, self._stored_positions(topic_filter, news))
        self.add(subscription, found)
        session.pump(now)

    def of(self, topic_filters: tuple[str, ...]) -> Iterator[Message | None]:
        """Yield the retained messages that match; None where a search may pause.

        A worker that has to ask for positions yields none in their place.
        """
        # The topics are fixed now, but each message is looked up when its turn comes, so that a
        # slow reader gets the current ones.
        for topic_filter in topic_filters:
            for topic in self._router.retained.matching(topic_filter):
                if topic is None:
                    yield None
                elif not is_position_topic(topic):
                    yield from self._stored(topic)
                elif self.questions is None:
                    yield from self._newest(topic)
            yield from self._derived((topic_filter,))

    def _stored(self, topic: str) -> Iterator[Message]:
        message = self._router.retained.get(topic)
        if message is not None:
            yield message

    def _newest(self, topic: str) -> Iterator[Message | None]:
        """Yield the position of the views, or what is stored in its place."""
        newest = [each for each in self._of_sources(topic) if each and self._replaces_stored(each)]
        yield from newest or self._stored(topic)

    def _stored_positions(self, topic_filter: str, but: Container[str]) -> Iterator[Message | None]:
        for topic in self._router.retained.matching(topic_filter):
            if topic is None:
                yield None
            elif is_position_topic(topic) and topic not in but:
                yield from self._stored(topic)

    def _derived(
        self, topic_filters: tuple[str, ...], *, beside_stored: bool = False
    ) -> Iterator[Message | None]:
        """Yield the messages of the sources for topics without a stored message.

        With `beside_stored` also those that are newer than the stored one.
        """
        for topic_filter in topic_filters:
            for message in self._of_sources(topic_filter):
                if (
                    message is None
                    or self._router.retained.get(message.topic) is None
                    or (beside_stored and self._replaces_stored(message))
                ):
                    yield message

    def _of_sources(self, topic_filter: str) -> Iterator[Message | None]:
        for source in self._router.sources:
            try:
                yield from source.retained(topic_filter)
            except Exception as error:
                self._router.left_out.tell(topic_filter, error)

    def _replaces_stored(self, derived: Message) -> bool:
        """Return whether a message of the views is delivered, and not what is stored here."""
        stored = self._router.retained.get(derived.topic)
        if stored is None:
            return True
        try:
            return is_position_topic(derived.topic) and not is_newest(
                stored.payload, derived.payload, now_ms()
            )
        except Exception as error:
            self._router.left_out.tell(derived.topic, error)
            return True
