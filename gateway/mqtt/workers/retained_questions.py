"""A worker's questions about what is retained, to the gateway with the views: in turns, by user.

A client may subscribe to thousands of filters a second, and a question costs the gateway a search
through all devices that the filter may reach. Of each user only a few questions are under way; the
others wait here, as long as their subscriptions are in force and their clients connected.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from gateway.mqtt.packets.message import Message
from gateway.mqtt.packets.topics import Subscription
from gateway.mqtt.requests import AnswerLate, RelayUnavailable
from gateway.mqtt.sessions.push import may_be_derived
from gateway.mqtt.sessions.session import Session
from waylog.process.background import TaskSet
from waylog.process.log_throttle import LogThrottle

logger = logging.getLogger(__name__)

_QOS: Final = 1
#: Questions of one user, and of all, that are under way at a time.
UNDER_WAY_EACH: Final = 8
UNDER_WAY_MAX: Final = 64

#: The filters of each subscription that are still to be asked about, and whether what is stored
#: here in the place of positions waits for the answer.
_Filters = dict[Subscription, dict[str, bool]]
#: Takes the messages of a filter of a subscription; the last is whether stored ones have waited.
Came = Callable[[Subscription, str, list[Message], bool], object]


class Relay(Protocol):
    """The way to the gateway with the views."""

    @property
    def is_open(self) -> bool: ...

    async def request(
        self, kind: str, *arguments: Any, user: str, late: Callable[[Any], object] | None = None
    ) -> Any: ...


class RetainedQuestions:
    """The questions of one worker; `came` receives the answers.

    What waits is bounded by the users' shares in subscriptions: a subscription waits once, until
    `forget`. Users take turns, and so do a user's clients. Clients that are away wait until `back`.
    """

    def __init__(self, relay: Relay, came: Came) -> None:
        self._relay = relay
        self._came = came
        self._waiting: dict[str, OrderedDict[Session, _Filters]] = {}
        self._away: dict[Session, _Filters] = {}
        #: Users with something to ask and less than their share under way, in turn.
        self._ready: OrderedDict[str, None] = OrderedDict()
        self._under_way: dict[str, int] = {}
        self._asking = TaskSet("asking for what is retained")
        self._throttle = LogThrottle()
        self._is_closed = False

    def __len__(self) -> int:
        """The number of questions that are under way."""
        return sum(self._under_way.values())

    @property
    def waiting(self) -> int:
        """The number of subscriptions that wait, also of clients that are away."""
        of_users = sum(len(each) for of in self._waiting.values() for each in of.values())
        return of_users + sum(map(len, self._away.values()))

    def ask(
        self, subscription: Subscription, topic_filters: Iterable[str], *, with_stored: bool
    ) -> None:
        """Ask what the platform retains for some granted filters of a subscription.

        `with_stored`: what is stored here in the place of positions waits for the answer.
        """
        asked = dict.fromkeys(filter(may_be_derived, topic_filters), with_stored)
        if not asked:
            return
        session: Session = subscription.session
        user = session.identity.user
        if session.connection is None:
            self._park(session, {subscription: asked})
            return
        waiting = self._waiting.setdefault(user, OrderedDict())
        _add(waiting, session, {subscription: asked})
        self._turn_of(user)
        self._begin()

    def gone(self, session: Session) -> None:
        """Ask no more for a client that has disconnected, until it is back."""
        user = session.identity.user
        of_user = self._waiting.get(user)
        if of_user is None or session not in of_user:
            return
        filters = of_user.pop(session)
        if not of_user:
            del self._waiting[user]
        self._park(session, filters)

    def _park(self, session: Session, filters: _Filters) -> None:
        _add(self._away, session, filters)
        for subscription in filters:
            # Should the client come back to another worker, that one has to ask.
            self._came(subscription, "", [], False)

    def back(self, session: Session) -> None:
        """Ask for a client that has connected again."""
        filters = self._away.pop(session, None)
        if filters is not None:
            user = session.identity.user
            _add(self._waiting.setdefault(user, OrderedDict()), session, filters)
            self._turn_of(user)
            self._begin()

    def forget(self, subscription: Subscription) -> None:
        """Ask nothing more for a subscription that has ended."""
        session = subscription.session
        of_user = self._waiting.get(session.identity.user)
        for waiting in (self._away, of_user):
            if waiting is not None and session in waiting:
                waiting[session].pop(subscription, None)
                if not waiting[session]:
                    del waiting[session]
        if of_user is not None and not of_user:
            del self._waiting[session.identity.user]

    def opened(self) -> None:
        """Go on, as the gateway can be reached again."""
        self._begin()

    def close(self) -> None:
        """Cancel all questions, and ask no more."""
        self._is_closed = True
        self._asking.cancel()

    def _turn_of(self, user: str) -> None:
        if user in self._waiting and self._under_way.get(user, 0) < UNDER_WAY_EACH:
            self._ready.setdefault(user)

    def _begin(self) -> None:
        while self._ready and len(self) < UNDER_WAY_MAX and self._may_ask():
            user, _ = self._ready.popitem(last=False)
            question = self._next_of(user)
            if question is not None:
                self._under_way[user] = self._under_way.get(user, 0) + 1
                self._turn_of(user)
                self._asking.start(self._ask(user, *question))

    def _may_ask(self) -> bool:
        return self._relay.is_open and not self._is_closed

    def _next_of(self, user: str) -> tuple[Subscription, str, bool] | None:
        sessions = self._waiting.get(user)
        while sessions:
            session, subscriptions = sessions.popitem(last=False)
            subscription, topic_filters = next(iter(subscriptions.items()))
            topic_filter, with_stored = topic_filters.popitem()
            if not topic_filters:
                del subscriptions[subscription]
            if subscriptions:
                sessions[session] = subscriptions
            if not sessions:
                self._waiting.pop(user, None)
            if topic_filter in subscription.granted_filters:  # rights may have changed
                return subscription, topic_filter, with_stored
        self._waiting.pop(user, None)
        return None

    async def _ask(
        self, user: str, subscription: Subscription, topic_filter: str, with_stored: bool
    ) -> None:
        try:
            found = await self._answer(user, topic_filter)
            messages = [
                Message(topic, payload, _QOS, True, latest_only=True, card_parts=parts)
                for topic, payload, parts in found
            ]
            self._came(subscription, topic_filter, messages, with_stored)
        except RelayUnavailable:
            self._not_answered(subscription, topic_filter, with_stored)
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._under_way[user] -= 1
            if not self._under_way[user]:
                del self._under_way[user]
            self._turn_of(user)
            self._begin()

    async def _answer(self, user: str, topic_filter: str) -> Any:
        """Return the answer, however late it comes; raises RelayUnavailable."""
        late: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def take_late(answer: Any) -> None:
            if not late.done():
                late.set_result(answer)

        try:
            return await self._relay.request(
                "retained", topic_filter, user, user=user, late=take_late
            )
        except AnswerLate:
            found = await late
        if found is None:
            raise RelayUnavailable
        return found

    def _not_answered(
        self, subscription: Subscription, topic_filter: str, with_stored: bool
    ) -> None:
        current = subscription.session.subscriptions.get(subscription.topic_filter)
        if current is not subscription:
            return
        if not self._relay.is_open:  # ask again when it is
            self.ask(subscription, (topic_filter,), with_stored=with_stored)
            return
        self._came(subscription, topic_filter, [], with_stored)
        unsaid = self._throttle.count(asyncio.get_running_loop().time())
        if unsaid is not None:
            logger.warning(
                "a new subscriber gets only what is retained at this worker: too many questions"
                " are unanswered%s",
                f" ({unsaid} more subscribers before)" if unsaid else "",
            )


def _add(waiting: dict[Session, _Filters], session: Session, filters: _Filters) -> None:
    of_session = waiting.setdefault(session, {})
    for subscription, topic_filters in filters.items():
        known = of_session.setdefault(subscription, {})
        for topic_filter, with_stored in topic_filters.items():
            known[topic_filter] = with_stored or known.get(topic_filter, False)
