"""Rights of clients to read, asked at each delivery that is not of their own topics.

A client's own topics, and an administrator's, are delivered as they are, and cost nothing here. Of
a friend's topics a client gets what friends are told (gateway.friends.telling), and nothing from before the
friendship. `identity` of a session has the rights of now: `RightChanges` keeps them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar, cast

from gateway.friends.telling import Telling, Told
from gateway.mqtt.interfaces import Identity
from gateway.mqtt.packets.topics import Subscription
from gateway.mqtt.rights.acl import AccessRules, rights_of
from gateway.mqtt.rights.held import HeldMessages
from gateway.mqtt.sessions.session import Message, Session
from gateway.users import auth
from gateway.users.permissions import Permissions, Sight
from waylog.messages import Address, Fix
from waylog.observability.telemetry import now_ms

_WITHHELD_MAX: Final = 10_000

_Waiting = TypeVar("_Waiting")


class Untold(NamedTuple):
    """What a client is to get of its friends as soon as it is known where these live."""

    #: Messages as they are: they have to be told (`DeliveryRights.told`).
    held: list[Message]
    #: Something that is retained is to be sent, too.
    missed: bool


class DeliveryRights:
    """Of one server. Without `permissions` nobody's rights change, and without `telling` friends
    are told nothing; `clock_ms` is Unix time.
    """

    def __init__(
        self,
        rules: AccessRules,
        permissions: Permissions | None = None,
        telling: Telling | None = None,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._rules = rules
        self._permissions = permissions
        self._telling = telling
        self._clock_ms = clock_ms
        # All friends are told the same of a message, one after the other.
        self._last: tuple[Message, Told[Message] | None] | None = None
        self._withheld: OrderedDict[Subscription, None] = OrderedDict()
        self._missing: OrderedDict[Session, None] = OrderedDict()
        self._held = HeldMessages()

    @property
    def version(self) -> int:
        """For `since`."""
        return 0 if self._permissions is None else self._permissions.version

    def now(self, identity: Identity) -> Identity | None:
        """Somebody with the rights of now; None: revoked. Raises sqlite3.Error."""
        if self._permissions is None:
            return identity
        return self._permissions.now(cast("auth.Identity", identity))

    def since(self, identity: Identity, version: int) -> Identity | None:
        """The same for an identity that was right at `version`; costs little without a change."""
        changed = self._permissions is not None and self._permissions.changed_since(
            identity.user, version
        )
        return self.now(identity) if changed else identity

    def told(self, message: Message, session: Session) -> Message | None:
        """Give the part of a message of now that a client gets; None: nothing."""
        sight = self._rules.sight_of(session.identity, message.topic)
        if sight is Sight.EVERYTHING:
            return message
        if sight is Sight.NOTHING:
            return None
        if self._last is None or self._last[0] is not message:
            self._last = message, self._as_told(message, retained=False)
        told = self._last[1]
        if told is None and self._telling is not None and not self._telling.ready:
            _remember(self._missing, session)
            if not message.retain and self._telling.is_of_a_moment(message.topic):
                self.hold(message, session)
        return _if_since(session.identity, told)

    def shown(
        self, messages: Iterable[Message | None], subscription: Subscription
    ) -> Iterator[Message | None]:
        """Give the part of retained messages that a subscriber gets, each when its turn comes."""
        session = subscription.session
        begun = session.identity
        for message in messages:
            if message is None or (not subscription.reaches_friends and session.identity is begun):
                yield message
                continue
            sight = self._rules.sight_of(session.identity, message.topic)
            if sight is Sight.EVERYTHING:
                yield message
            elif sight is Sight.TOLD and self._telling is not None and not self._telling.ready:
                _remember(self._withheld, subscription)
                yield None
            elif sight is Sight.TOLD:
                told = _if_since(session.identity, self._as_told(message, retained=True))
                yield told  # None is no more than a pause
            else:
                yield None

    def hold(self, message: Message, session: Session) -> None:
        """Keep a friend's message, as it is, until `take_held`."""
        self._held.hold(message, session)

    def untold(self, session: Session) -> Untold:
        """What is still kept back from a session; it may go on elsewhere."""
        missed = session in self._missing or (
            bool(self._withheld)
            and any(each in self._withheld for each in session.subscriptions.values())
        )
        return Untold(self._held.of(session), missed)

    def take_withheld(self) -> Iterator[Subscription]:
        """Subscriptions that got nothing of friends because nobody knew yet where these live.

        None are taken as long as that is so. Of those that have missed what was published
        meanwhile, what is retained by then stands for it.
        """
        if self._telling is None or not self._telling.ready:
            return iter(())
        self._last = None
        missing, self._missing = self._missing, OrderedDict()
        for session in missing:
            for subscription in session.subscriptions.values():
                if subscription.reaches_friends and subscription.share is None:
                    self._withheld[subscription] = None
        return _taken(self._withheld)

    def take_held(self) -> Iterator[tuple[Message, Session]]:
        """Messages of friends that nobody could be told then, and for whom each was."""
        ready = self._telling is not None and self._telling.ready
        return self._held.take() if ready else iter(())

    def forget_device(self, device: str) -> None:
        """A device (`user/device`) has been erased: nothing of it is held."""
        self._held.forget_device(device)

    def keep_readable(self, session: Session, before: Identity) -> None:
        """Throw away what waits for a client, and may be read no more as it was meant."""
        session.keep_waiting(self.readable(session.identity, before))

    def readable(self, identity: Identity, before: Identity) -> Callable[[Message], bool]:
        """What tells of a message whether somebody may read it, as `before` might have.

        Somebody is another than before by a change of rights; a friend is told it as then, or not.
        """
        sight_of = self._rules.sight_of

        def may_read(message: Message) -> bool:
            now = sight_of(identity, message.topic)
            if now is Sight.EVERYTHING:
                return True
            return now is Sight.TOLD is sight_of(before, message.topic)

        return may_read

    def told_card(
        self, address: Address, fix: Fix | None, own: Mapping[str, Any], *, retained: bool
    ) -> tuple[int, bytes]:
        """For Message.told: the card of a device as its friends see it; no bytes: none."""
        told = None if self._telling is None else self._telling.card(address, fix, own, retained)
        return (0, b"") if told is None else told

    def _as_told(self, message: Message, *, retained: bool) -> Told[Message] | None:
        if self._telling is None:
            return None
        if message.told is not None:
            time, payload = message.told
            if not payload:
                return None
        else:
            told = self._telling.message(message.topic, message.payload, retained, self._clock_ms())
            if told is None:
                return None
            time, payload = told
        shown = Message(
            message.topic,
            payload,
            message.qos,
            message.retain,
            None,  # what its owner adds is for its owner
            message.expires_at,
            message.latest_only,
        )
        return Told(time, shown)


def _remember(waiting: OrderedDict[_Waiting, None], one: _Waiting) -> None:
    """Keep those that came last."""
    waiting[one] = None
    if len(waiting) > _WITHHELD_MAX:
        waiting.popitem(last=False)


def _taken(waiting: OrderedDict[_Waiting, None]) -> Iterator[_Waiting]:
    while waiting:
        yield waiting.popitem(last=False)[0]


def _if_since(identity: Identity, told: Told[Message] | None) -> Message | None:
    """Give what is told, unless it is from before the friendship."""
    if told is None:
        return None
    since = rights_of(identity).friends.get(told.what.topic.split("/")[1])
    return None if since is None or told.time < since else told.what
