"""The other workers: messages, shared subscriptions and sessions that cross between workers.

A worker announces what its clients subscribe to, and knows what clients elsewhere want. Only such
messages leave it, once each, for the worker hub (`worker_hub`), which distributes them. The member
of a shared subscription, here or elsewhere, is chosen by the worker where a message is published.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import islice
from typing import Any, Final, Protocol

from gateway.mqtt.interfaces import Completion
from gateway.mqtt.journal.journal import Journal
from gateway.mqtt.journal.stored import SessionKey
from gateway.mqtt.packets.message import Message
from gateway.mqtt.packets.packets import Properties, PropertyId
from gateway.mqtt.packets.topics import Subscription
from gateway.mqtt.sessions.link import Link
from gateway.mqtt.sessions.router import Router
from gateway.mqtt.sessions.session import Session
from gateway.mqtt.workers.arriving import ArrivingSessions
from gateway.mqtt.workers.interest import OwnInterest
from gateway.users.auth import Identity

logger = logging.getLogger(__name__)

#: Limits of the messages that wait while the worker hub cannot be reached.
_WAITING_MAX: Final = 10_000
_WAITING_BYTES_MAX: Final = 16 * 1024 * 1024
#: Messages passed on that are remembered while a session is about to be handed over.
_PASSED_MAX: Final = 10_000
#: States of a shared group's members at another worker (`SubscriptionTree.group_state`).
_AWAY, _ONLINE = 1, 2
#: New clients that are remembered while the worker hub cannot be reached.
_CAME_MAX: Final = 100_000
_CAME_A_FRAME: Final = 1_000
#: Limits of one turn of the event loop: changes of each kind, messages, and bytes of messages.
_SENT_A_TURN: Final = 1_000
_MESSAGES_A_TURN: Final = 200
_MESSAGE_BYTES_A_TURN: Final = 1024 * 1024

#: Worker, share name and filter: the group that a message is for; None: all other subscribers.
Target = tuple[int, str, str] | None
#: Target, topic, payload, QoS, retain, properties, seconds until it expires, `Message.card_parts`.
CrossingMessage = tuple[
    Target, str, bytes, int, bool, Properties | None, float | None, bytes | None
]


class Channel(Protocol):
    """The connection to the worker hub."""

    @property
    def is_open(self) -> bool: ...

    def send(self, *frame: Any) -> None: ...


class _Elsewhere(Session):
    """A stand-in for the members of a shared subscription at another worker."""

    def __init__(self, neighbours: WorkerPeers, target: tuple[int, str, str]) -> None:
        router = neighbours.router
        super().__init__("", Identity(""), router.settings)
        self._neighbours = neighbours
        self._target = target
        self._link = Link(router, None, 0.0)

    def set_online(self, online: bool) -> None:
        """Set whether one of the members is connected."""
        self.connection = self._link if online else None

    def deliver(
        self,
        message: Message,
        qos: int,  # ignored: the member's worker decides it
        retain: bool,
        identifiers: list[int] | None,
        now: float,
    ) -> bool:
        """Pass a message on to one of the members."""
        self._neighbours.pass_on(message, self._target)
        return True


class WorkerPeers:
    """The other workers, as seen by one worker.

    `schedule` calls back at the end of the event loop's turn, `clock` is the router's monotonic
    time (s), and `in_flight(device, fix_id)` returns the receipt of a fix that came here.
    """

    def __init__(
        self,
        router: Router,
        journal: Journal,
        channel: Channel,
        *,
        clock: Callable[[], float],
        schedule: Callable[[Callable[[], None]], object],
        wake: Callable[[], None],
        in_flight: Callable[[str, str], Completion | None],
    ) -> None:
        self.router = router
        self._journal = journal
        self._channel = channel
        self._name = journal.worker
        self._clock = clock
        self._schedule = schedule
        self._wake = wake
        self._in_flight = in_flight
        self._interest = OwnInterest()
        self._shares: dict[tuple[str, str], int] = {}  # states of groups, as announced
        self._shares_changed: dict[tuple[str, str], None] = {}
        self._groups: dict[tuple[int, str, str], Subscription] = {}
        # Clients that connected here and are still to be announced, and their sessions' epochs.
        self._came: OrderedDict[SessionKey, int] = OrderedDict()
        self._waiting: deque[CrossingMessage] = deque()
        self._waiting_bytes = 0
        self._scheduled = False
        self._number = 0  # of the last message that was passed on
        self._delivers = False  # whether a message from another worker is being delivered
        # Sessions about to be handed over; messages passed on meanwhile, with their numbers by id.
        self._leaving: set[SessionKey] = set()
        self._passed: OrderedDict[int, tuple[Message, int]] = OrderedDict()
        #: Set once the epochs issued here are later than those that other workers issued before.
        self.in_pace = asyncio.Event()
        #: Queues of the sessions that are on their way here.
        self.arriving = ArrivingSessions(router, lambda: self._delivers)
        for subscription in router.all_subscriptions():
            self.subscribed(subscription, True)
        for key, session in router.sessions.items():
            self.connected(key, session.epoch)
        router.neighbours = self
        router.pass_on = self.pass_on

    # --- from here ------------------------------------------------------------------------------

    def subscribed(self, subscription: Subscription, wanted: bool) -> None:
        """Count a subscription that begins or ends; called by the router."""
        if subscription.share is None:
            self._interest.count(subscription.granted_filters, wanted)
            self._send_soon()
        else:
            self.shares_changed(subscription)

    def shares_changed(self, subscription: Subscription) -> None:
        """Announce a group whose members have connected or gone; called by the router."""
        assert subscription.share is not None
        for topic_filter in subscription.granted_filters:
            self._shares_changed[(subscription.share, topic_filter)] = None
        self._send_soon()

    def connected(self, key: SessionKey, epoch: int) -> None:
        """Announce a client that has connected here; its older connections elsewhere have to end.

        Called by the router.
        """
        self._came[key] = epoch
        self._came.move_to_end(key)
        if len(self._came) > _CAME_MAX:
            self._came.popitem(last=False)
        self._send_soon()

    def pass_on(self, message: Message, target: tuple[int, str, str] | None = None) -> None:
        """Queue a message for other workers; it is sent after this turn of the loop."""
        expires_s = None
        if message.expires_at is not None:
            expires_s = message.expires_at - self._clock()
        self._waiting.append(
            (
                target,
                message.topic,
                message.payload,
                message.qos,
                message.retain,
                message.properties,
                expires_s,
                message.card_parts,
            )
        )
        self._number += 1
        if self._leaving:
            self._passed[id(message)] = message, self._number
            if len(self._passed) > _PASSED_MAX:
                self._passed.popitem(last=False)
        self._waiting_bytes += len(message.payload)
        while len(self._waiting) > _WAITING_MAX or self._waiting_bytes > _WAITING_BYTES_MAX:
            self._waiting_bytes -= len(self._waiting.popleft()[2])
            self.router.counters["crossings_dropped"] += 1
        self._send_soon()

    def opened(self) -> None:
        """Announce everything again after the channel was opened."""
        for group in list(self._groups):
            self._group_changed(*group, 0)
        self.router.elsewhere.clear()
        self._leaving.clear()
        self._passed.clear()
        self._channel.send("hello", self._name, self._journal.epochs.clock_began_us)
        self._interest.tell_all()
        self._shares = {}
        self._shares_changed = dict.fromkeys(self.router.subscriptions.groups_here())
        self._flush()

    def _send_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._schedule(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        if not self._channel.is_open:
            return
        changes = self._interest.take_changes(_SENT_A_TURN)
        if changes:
            self._channel.send("interest", changes)
        for key in list(islice(self._shares_changed, _SENT_A_TURN)):
            del self._shares_changed[key]
            state = self.router.subscriptions.group_state(*key)
            if state != self._shares.get(key, 0):
                self._shares[key] = state
                if not state:
                    del self._shares[key]
                self._channel.send("share", *key, state)
        if self._came:
            count = min(len(self._came), _CAME_A_FRAME)
            came = [self._came.popitem(last=False) for _ in range(count)]
            self._channel.send("came", [(*key, epoch) for key, epoch in came])
        if self._waiting:
            self._send_messages()
        if self._interest.has_changed or self._shares_changed or self._came or self._waiting:
            self._send_soon()

    def _send_messages(self) -> None:
        messages = self._next_messages()
        self._channel.send("messages", messages, self._number - len(self._waiting))

    def _next_messages(self) -> list[CrossingMessage]:
        messages: list[CrossingMessage] = []
        size = 0
        while self._waiting and len(messages) < _MESSAGES_A_TURN and size < _MESSAGE_BYTES_A_TURN:
            messages.append(self._waiting.popleft())
            size += len(messages[-1][2])
        self._waiting_bytes -= size
        return messages

    # --- from elsewhere -------------------------------------------------------------------------

    def on_frame(self, kind: str, arguments: list[Any]) -> None:
        """Handle a frame from the worker hub."""
        if kind == "messages":
            for carried in arguments[0]:
                self._deliver(carried)
            self._wake()
        elif kind == "interest":
            self.router.elsewhere.change(arguments[0])
        elif kind == "group":
            self._group_changed(*arguments)
        elif kind == "clock":
            self._journal.epochs.keep_pace(arguments[0])
            self.in_pace.set()
        elif kind == "came":
            self._gone_elsewhere(*arguments)
        elif kind == "returned":
            user, client_id, record = arguments
            self.router.handover.take_back((user, client_id), record)
        elif kind == "claim":
            number, user, client_id, claimer, epoch = arguments
            self.router.handover.hand_over(
                (user, client_id),
                (epoch, claimer),
                lambda record: self._channel.send("answered", number, record),
                self._clock(),
                lambda record: self._announce((user, client_id), number, record),
            )
            self._wake()
        elif kind == "arriving":
            self._expect(*arguments)
        elif kind == "due":
            user, client_id = arguments
            self.arriving.due((user, client_id))
        elif kind == "hand_over":
            self._hand_over(*arguments)
        elif kind == "stays":
            user, client_id = arguments
            self._left((user, client_id))
        elif kind == "stored":
            self._answer_when_stored(*arguments)

    def _announce(self, key: SessionKey, number: int, record: bytes) -> None:
        self._leaving.add(key)
        self._channel.send("leaving", number, record)

    def _expect(self, number: int, user: str, client_id: str, record: bytes) -> None:
        """Queue what is published for a client whose session comes when the others know of it."""
        self.arriving.expect((user, client_id), self._journal.announced(record))
        # Messages passed on before come with the session, from the worker that has it now.
        while self._waiting:
            self._send_messages()
        while changes := self._interest.take_changes(_SENT_A_TURN):
            self._channel.send("interest", changes)
        self._channel.send("ready", number)

    def _hand_over(
        self, number: int, user: str, client_id: str, claimer: str, epoch: int, crossed: int
    ) -> None:
        """Give up a session.

        Of the messages that were passed on from here, `crossed` is the last one that the session's
        new worker does not receive itself.
        """

        def keep(message: Message) -> bool:
            return self._passed.get(id(message), (message, 0))[1] <= crossed

        key = (user, client_id)
        record = self.router.handover.hand_over_now(key, (epoch, claimer), keep)
        self._left(key)
        self._channel.send("answered", number, record)
        self._wake()

    def _left(self, key: SessionKey) -> None:
        self._leaving.discard(key)
        if not self._leaving:
            self._passed.clear()

    def keep_unsent(self, key: SessionKey) -> None:
        """Queue what waits here for others for a client that comes while they cannot be reached.

        The worker that had its session would have kept that for it; now it is resumed here, as the
        log has it.
        """
        stored = self._journal.take_stored(key)
        if stored is None:
            return
        self.arriving.expect(key, stored)
        self.arriving.due(key)
        for carried in self._waiting:
            if carried[0] is None:
                self.arriving.deliver(key, self._message(carried), self._clock())

    def _gone_elsewhere(self, worker: str, came: list[tuple[str, str, int]]) -> None:
        """Give up sessions of clients that have come to another worker since they came here."""
        for user, client_id, epoch in came:
            key = (user, client_id)
            self._journal.epochs.heard(epoch)
            if key in self.router.claiming:
                self.router.claiming[key] = max(self.router.claiming[key], epoch)
            session = self.router.live(key)
            if session is None or (session.epoch, self._name) < (epoch, worker):
                self.router.give_up(key)
                self._journal.came_elsewhere(key, epoch)
        self._wake()

    def _deliver(self, carried: CrossingMessage) -> None:
        target = carried[0]
        message = self._message(carried)
        if target is None:
            found = self.router.subscriptions.match_unshared(message.topic)
        else:
            _, share, topic_filter = target
            chosen = self.router.subscriptions.choose_here(share, topic_filter)
            found = [] if chosen is None else [chosen]
        if found:
            self._delivers = True
            try:
                self.router.deliver(message, found, None, self._clock())
            finally:
                self._delivers = False

    def _message(self, carried: CrossingMessage) -> Message:
        _, topic, payload, qos, retain, properties, expires_s, parts = carried
        expires_at = None if expires_s is None else self._clock() + expires_s
        return Message(
            topic, payload, qos, retain, decoded(properties), expires_at, card_parts=parts
        )

    def _group_changed(self, worker: int, share: str, topic_filter: str, state: int) -> None:
        key = (worker, share, topic_filter)
        subscription = self._groups.get(key)
        if not state:
            if subscription is not None:
                del self._groups[key]
                self.router.subscriptions.remove(subscription)
            return
        if subscription is None:
            session = _Elsewhere(self, key)
            subscription = Subscription(session, "", (topic_filter,), qos=2, share=share)
            subscription.elsewhere = True
            self._groups[key] = subscription
            self.router.subscriptions.add(subscription)
        elsewhere = subscription.session
        assert isinstance(elsewhere, _Elsewhere)
        elsewhere.set_online(state == _ONLINE)

    def _answer_when_stored(self, number: int, device: str, fix_id: str) -> None:
        """Answer whether the log has stored a fix that came here, when it has answered."""
        receipt = self._in_flight(device, fix_id)
        if receipt is None:
            self._channel.send("answered", number, False)
        else:
            receipt.add_done_callback(
                lambda done: self._channel.send("answered", number, done.exception() is None)
            )


def decoded(properties: dict[int, Any] | None) -> Properties | None:
    """Return properties in a message's form; after crossing, pairs have become lists."""
    if properties is None:
        return None
    return {
        name: [tuple(pair) for pair in value] if name == PropertyId.USER_PROPERTY else value
        for name, value in properties.items()
    }
