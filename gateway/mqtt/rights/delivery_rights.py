"""Rights to read, checked for each delivery of a message that is not its reader's own.

Messages of a client's own topics, and all messages to an administrator, are delivered unchanged and
without a check here. Of a friend's messages a client receives the form that friends may see
(gateway.friends.friend_events), by the terms of that friendship, and nothing from before it. A
session's `identity` has its current rights: `RightChanges` updates them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast

from gateway.friends.friend_events import FilteredEvent, FriendEventFilter
from gateway.mqtt.interfaces import Identity
from gateway.mqtt.left_out import LeftOut
from gateway.mqtt.packets.message import Message
from gateway.mqtt.packets.topics import Subscription
from gateway.mqtt.rights.acl import AccessRules, rights_of
from gateway.mqtt.rights.pending_friend_messages import PendingFriendMessages
from gateway.shares.share import FRIENDS, Terms
from gateway.users import auth
from gateway.users.permissions import Permissions, Visibility
from waylog.observability.telemetry import now_ms

if TYPE_CHECKING:
    from gateway.mqtt.sessions.session import Session

#: Subscriptions, and sessions, that are remembered until homes are known.
_WITHHELD_MAX: Final = 10_000
#: Messages, and bytes of their payloads, whose forms for friends are kept.
_DECIDED_MAX: Final = 1_000
_DECIDED_BYTES_MAX: Final = 1024 * 1024

_Waiting = TypeVar("_Waiting")


class Untold(NamedTuple):
    """Messages of friends that a client is to receive as soon as friends' homes are known."""

    #: Unfiltered messages; `DeliveryRights.told` has to filter them.
    held: list[Message]
    #: True if retained messages are to be sent, too.
    missed: bool


class DeliveryRights:
    """Checks the rights to read on one server.

    Without `permissions` rights never change, and without `telling` friends receive nothing;
    `clock_ms` returns Unix time.
    """

    def __init__(
        self,
        rules: AccessRules,
        permissions: Permissions | None = None,
        telling: FriendEventFilter | None = None,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._rules = rules
        self._permissions = permissions
        self._telling = telling
        self._clock_ms = clock_ms
        # The forms for friends of the last messages, by terms. Several sessions receive a message,
        # perhaps in later turns than others; and of a device at home, one message of many is told.
        self._decided: OrderedDict[tuple[Message, Terms], FilteredEvent[Message] | None] = (
            OrderedDict()
        )
        self._decided_bytes = 0
        self._withheld: OrderedDict[Subscription, None] = OrderedDict()
        self._missing: OrderedDict[Session, None] = OrderedDict()
        self._held = PendingFriendMessages()
        self._left_out = LeftOut()

    @property
    def version(self) -> int:
        """The version of all rights, an argument of `since`."""
        return 0 if self._permissions is None else self._permissions.version

    def now(self, identity: Identity) -> Identity | None:
        """Return an identity with its current rights; None if revoked. Raises sqlite3.Error."""
        if self._permissions is None:
            return identity
        return self._permissions.now(cast("auth.Identity", identity))

    def since(self, identity: Identity, version: int) -> Identity | None:
        """Do what `now` does, for an identity checked at `version`; cheap if nothing changed."""
        changed = self._permissions is not None and self._permissions.changed_since(
            identity.user, version
        )
        return self.now(identity) if changed else identity

    def told(self, message: Message, session: Session) -> Message | None:
        """Return the part of a live message that a client may read; None: nothing."""
        sight = self._rules.visibility_of(session.identity, message.topic)
        if sight is Visibility.EVERYTHING:
            return message
        if sight is Visibility.NOTHING:
            return None
        told = self._as_told_live(message, _terms(session.identity, message))
        if told is None and self._telling is not None and not self._telling.ready:
            _remember(self._missing, session)
            if not message.retain and self._telling.is_of_a_moment(message.topic):
                self.hold(message, session)
        return _if_since(session.identity, told)

    def shown(
        self, messages: Iterable[Message | None], subscription: Subscription
    ) -> Iterator[Message | None]:
        """Yield the parts of retained messages that a subscriber may read, checked one by one.

        None stands for a pause, or for a message that the subscriber does not get.
        """
        session = subscription.session
        begun = session.identity
        for message in messages:
            if message is None or (not subscription.reaches_friends and session.identity is begun):
                yield message
                continue
            sight = self._rules.visibility_of(session.identity, message.topic)
            if sight is Visibility.EVERYTHING:
                yield message
            elif sight is Visibility.TOLD and self._telling is not None and not self._telling.ready:
                _remember(self._withheld, subscription)
                yield None
            elif sight is Visibility.TOLD:
                terms = _terms(session.identity, message)
                told = self._as_told(message, terms, retained=True)
                yield _if_since(session.identity, told)
            else:
                yield None

    def hold(self, message: Message, session: Session) -> None:
        """Keep a friend's unfiltered message until `take_held`."""
        self._held.hold(message, session)

    def untold(self, session: Session) -> Untold:
        """Return what is held back from a session, which may be resumed elsewhere."""
        missed = session in self._missing or (
            bool(self._withheld)
            and any(each in self._withheld for each in session.subscriptions.values())
        )
        return Untold(self._held.of(session), missed)

    def take_withheld(self) -> Iterator[Subscription]:
        """Return the subscriptions that received nothing of friends while homes were unknown.

        The result is empty as long as they are unknown. Retained messages then stand for the
        messages that were published meanwhile.
        """
        if self._telling is None or not self._telling.ready:
            return iter(())
        self._decided.clear()
        self._decided_bytes = 0
        missing, self._missing = self._missing, OrderedDict()
        for session in missing:
            for subscription in session.subscriptions.values():
                if subscription.reaches_friends and subscription.share is None:
                    self._withheld[subscription] = None
        return _taken(self._withheld)

    def take_held(self) -> Iterator[tuple[Message, Session]]:
        """Yield held messages, each with a session that it is for, once homes are known."""
        ready = self._telling is not None and self._telling.ready
        return self._held.take() if ready else iter(())

    def forget_device(self, device: str) -> None:
        """Drop the held messages of an erased device (`user/device`)."""
        self._held.forget_device(device)

    def keep_readable(self, session: Session, before: Identity) -> None:
        """Drop a session's waiting messages that its client may no longer read."""
        session.keep_waiting(self.readable(session.identity, before))

    def readable(
        self, identity: Identity, before: Identity | None = None
    ) -> Callable[[Message], bool]:
        """Return a function that tells whether `identity` may read a message queued for `before`.

        Both are the same user, after and before a change of rights. A message may be read if the
        user may see everything of it now, or sees it as a friend now and did so before, by the same
        terms: it waits in the form that was told then. Without `before`, of a message out of the
        log, nobody knows by which terms it was told; friends who are told everything may read it.
        """
        visibility_of = self._rules.visibility_of

        def may_read(message: Message) -> bool:
            now = visibility_of(identity, message.topic)
            if now is not Visibility.TOLD:
                return now is Visibility.EVERYTHING
            terms = _terms(identity, message)
            if before is None:
                return terms == FRIENDS
            was_told = visibility_of(before, message.topic) is Visibility.TOLD
            return was_told and terms == _terms(before, message)

        return may_read

    def _as_told_live(self, message: Message, terms: Terms) -> FilteredEvent[Message] | None:
        decided = self._decided
        key = (message, terms)
        if key in decided:
            return decided[key]
        told = self._as_told(message, terms, retained=False)
        if self._telling is None or not self._telling.ready:
            return told  # it is asked for again when homes are known
        decided[key] = told
        self._decided_bytes += len(message.payload)
        while len(decided) > 1 and (
            len(decided) > _DECIDED_MAX or self._decided_bytes > _DECIDED_BYTES_MAX
        ):
            (oldest, _), _ = decided.popitem(last=False)
            self._decided_bytes -= len(oldest.payload)
        return told

    def _as_told(
        self, message: Message, terms: Terms, *, retained: bool
    ) -> FilteredEvent[Message] | None:
        try:
            return self._form_for_friends(message, terms, retained=retained)
        except Exception as error:
            self._left_out.tell(message.topic, error)
            return None

    def _form_for_friends(
        self, message: Message, terms: Terms, *, retained: bool
    ) -> FilteredEvent[Message] | None:
        if self._telling is None:
            return None
        if message.card_parts is not None:
            told = self._telling.card(message.card_parts, retained, terms)
        else:
            told = self._telling.message(
                message.topic, message.payload, retained, self._clock_ms(), terms
            )
        if told is None:
            return None
        time, payload = told
        shown = Message(
            message.topic,
            payload,
            message.qos,
            message.retain,
            None,  # properties are for the owner only
            message.expires_at,
            message.latest_only,
        )
        return FilteredEvent(time, shown)


def _remember(waiting: OrderedDict[_Waiting, None], one: _Waiting) -> None:
    """Add an entry, and drop the oldest one beyond _WITHHELD_MAX."""
    waiting[one] = None
    if len(waiting) > _WITHHELD_MAX:
        waiting.popitem(last=False)


def _taken(waiting: OrderedDict[_Waiting, None]) -> Iterator[_Waiting]:
    while waiting:
        yield waiting.popitem(last=False)[0]


def _terms(identity: Identity, message: Message) -> Terms:
    """Return how the user of a message's topic is told to somebody."""
    return rights_of(identity).terms_for(message.topic.split("/", 2)[1])


def _if_since(identity: Identity, told: FilteredEvent[Message] | None) -> Message | None:
    """Return the friend's form of a message, unless it is from before the friendship."""
    if told is None:
        return None
    since = rights_of(identity).friends.get(told.what.topic.split("/")[1])
    return None if since is None or told.time < since else told.what
