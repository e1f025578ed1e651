"""All sessions and subscriptions of one server: session takeover and message routing.

Sans-IO. Two lists tell the shell what to do: `changed` are connections that have bytes to send or
are to be closed, `wills` are the wills to be published.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.mqtt.interfaces import Identity
from gateway.mqtt.journal.journal import Journal
from gateway.mqtt.journal.stored import SessionKey, StoredSession, session_key, user_of
from gateway.mqtt.packets.message import Delivery, Message
from gateway.mqtt.packets.packets import Connect, PropertyId, ReasonCode, SubscriptionRequest, Will
from gateway.mqtt.packets.topics import Subscription, filter_is_valid, split_share
from gateway.mqtt.rights.acl import AccessRules
from gateway.mqtt.rights.delivery_rights import DeliveryRights, Untold
from gateway.mqtt.sessions.accounts import UserAccounts, subscription_bytes, will_bytes
from gateway.mqtt.sessions.forgetting import forget_owner
from gateway.mqtt.sessions.handover import Handover
from gateway.mqtt.sessions.hub import Hub
from gateway.mqtt.sessions.resumption import Resumption
from gateway.mqtt.sessions.retained import RetainedStore
from gateway.mqtt.sessions.retained_delivery import RetainedDelivery
from gateway.mqtt.sessions.right_changes import RightChanges
from gateway.mqtt.sessions.session import NEVER, Session
from gateway.mqtt.sessions.timers import Timer, TimerWheel
from gateway.mqtt.settings import Settings
from gateway.users import auth
from waylog.kafka.topics import MQTT_STATE

if TYPE_CHECKING:
    from gateway.mqtt.sessions.connection import Connection
    from gateway.mqtt.workers.worker_peers import WorkerPeers

logger = logging.getLogger(__name__)

#: Sessions that are cleared of an erased device in one step.
_FORGOTTEN_A_STEP: Final = 100


class WillDue(NamedTuple):
    """A will that is to be published now, with the identity of its client."""

    identity: Identity
    will: Will


class Router(Hub):
    """The sessions of one server. `now` is always in seconds of one monotonic clock."""

    def __init__(
        self,
        settings: Settings,
        rules: AccessRules,
        now: float,
        rights: DeliveryRights | None = None,
    ) -> None:
        shared = settings.users_share
        retained = RetainedStore(
            settings.retained_messages_max,
            settings.retained_bytes_max,
            user_messages_max=settings.retained_messages_per_user_max if shared else None,
            user_bytes_max=settings.retained_bytes_per_user_max if shared else None,
        )
        super().__init__(settings, rules, TimerWheel(now), retained, Counter())
        self.sessions: dict[SessionKey, Session] = {}
        self._offline: OrderedDict[Session, None] = OrderedDict()  # away longest first
        #: The shares of users in common resources.
        self.accounts = UserAccounts(settings)
        self.journal: Journal | None = None
        #: Sessions requested from other workers: they are nowhere until the answer arrives. With
        #: the epoch of the client's latest connection elsewhere that was announced meanwhile.
        self.claiming: dict[SessionKey, int] = {}
        #: The current rights of clients to read.
        self.rights = rights or DeliveryRights(rules)
        self.retained_delivery = RetainedDelivery(self)
        self.right_changes = RightChanges(self)
        self.handover = Handover(self)
        self.resumption = Resumption(self)
        #: Called with granted filters, and whether they are subscribed to or no longer.
        self.watch: Callable[[Iterable[str], bool], None] | None = None
        #: The other workers, if there are any.
        self.neighbours: WorkerPeers | None = None

    def keep(self, journal: Journal, now: float) -> None:
        """Load the sessions and retained messages of a journal, and have it record changes."""
        for message in journal.stored_retained():
            self.retained.take(message)
        self.retained.on_put = journal.retained_changed
        journal.purge()
        journal.separate_devices()
        # Messages for a client that is away are queued by the worker that keeps its session.
        for key, stored in list(journal.stored()):
            # Among workers the epoch stays, as the client may have come to another one since.
            epoch = stored.epoch if journal.shared else journal.next_epoch(key)
            self._resume_away(key, stored, journal, epoch, now)
        if self.resumption.dropped:
            logger.warning(
                "%d messages that waited for MQTT clients are gone: there is no room for them",
                self.resumption.dropped,
            )
        if journal.purged:
            logger.warning(
                "%d records of %s were removed: no MQTT client can read the names in them",
                journal.purged,
                MQTT_STATE,
            )
        self.journal = journal
        journal.host = self

    def _resume_away(
        self, key: SessionKey, stored: StoredSession, journal: Journal, epoch: int, now: float
    ) -> Session | None:
        """Begin a stored session whose client is away; None if its rights were revoked."""
        identity = self.rights.now(auth.Identity(user_of(key), stored.device, stored.admin))
        if identity is None:
            journal.ended(key)
            return None
        session = self._begin(key[1], identity)
        session.epoch = epoch
        self.resumption.resume(session, stored, journal, now)
        session.expiry_interval_s = stored.expiry_interval_s
        age_s = 0.0 if stored.connected else journal.age_s(stored)
        session.deadline = now + max(0.0, session.expiry_interval_s - age_s)
        self._park(session)
        self.timers.schedule(session, session.deadline)
        return session

    def keep_arrived(self, key: SessionKey, now: float) -> None:
        """Keep a session that has arrived for a client which had gone before CONNECT was done."""
        journal = self.journal
        if journal is None or self.neighbours is None:
            return
        arrived = self.neighbours.arriving.take(key)
        if key in self.sessions or journal.owner_of(key) is not None:
            return
        stored = journal.take_stored(key)
        if stored is None:
            return
        session = self._resume_away(key, stored, journal, stored.epoch, now)
        if session is not None:
            self._enqueue(session, arrived)

    def _enqueue(self, session: Session, arrived: Iterable[Delivery]) -> None:
        for delivery in arrived:
            if not session.enqueue(delivery):
                self.counters["deliveries_dropped"] += 1

    # --- sessions -------------------------------------------------------------------------------

    def connect(
        self, connection: Connection, packet: Connect, identity: Identity, now: float
    ) -> tuple[Session, bool]:
        """Return the session for a new connection, and whether it existed before."""
        key = session_key(identity, packet.client_id)
        arrived = [] if self.neighbours is None else self.neighbours.arriving.take(key)
        session = self.sessions.get(key)
        if session is not None and session.connection is not None:
            self.take_over(session, now)
            session = self.sessions.get(key)
        if session is not None and (
            packet.clean_start
            or session.identity.device != identity.device
            or session.identity.admin != identity.admin
        ):
            self.end(session)
            session = None
        stored = None
        epoch = 0
        if session is not None and self.journal is not None:
            epoch = self.journal.epochs.after(session.epoch)
        elif self.journal is not None:
            epoch = self.journal.next_epoch(key)
            stored = self.journal.take_stored(key)
            if stored is not None and (
                packet.clean_start
                or stored.device != identity.device
                or stored.admin != identity.admin
            ):
                self.journal.ended(key)
                stored = None
        present = session is not None or stored is not None
        if session is None:
            session = self._begin(packet.client_id, identity)
        session.epoch = epoch
        self.right_changes.identify(session, identity, now)
        if stored is not None and self.journal is not None:
            self.resumption.resume(session, stored, self.journal, now)
        if present:
            self._enqueue(session, arrived)
        self._unpark(session)
        self.timers.cancel(session)
        self._shares_changed(session)
        session.will = None  # the client is back before its will delay was over
        session.hold_will(will_bytes(packet.will))
        session.connection = connection
        self.retained_delivery.back(session)
        session.expiry_interval_s = self._expiry_interval(packet)
        self.session_changed(session)
        if self.neighbours is not None:
            self.neighbours.connected(key, session.epoch)
        return session, present

    def _begin(self, client_id: str, identity: Identity) -> Session:
        session = Session(client_id, identity, self.settings)
        self.sessions[session_key(identity, client_id)] = session
        self.accounts.begin(session)
        return session

    def _park(self, session: Session) -> None:
        """Count a session whose client is away."""
        self._offline[session] = None
        self.accounts.of(session.identity.user).offline[session] = None

    def _unpark(self, session: Session) -> None:
        self._offline.pop(session, None)
        self.accounts.of(session.identity.user).offline.pop(session, None)

    def session_changed(self, session: Session) -> None:
        """Have the journal write a session."""
        if self.journal is not None:
            self.journal.changed(session)

    def untold(self, session: Session) -> Untold:
        """Return what a session is still to get of friends' messages; called by the journal."""
        return self.rights.untold(session)

    def live(self, key: SessionKey) -> Session | None:
        """Return the session of a client that is here, connected or away, or None.

        Called by the journal, among others.
        """
        return self.sessions.get(key)

    def give_up(self, key: SessionKey) -> None:
        """Remove a session that another worker has now; called by the journal."""
        session = self.sessions.get(key)
        if session is None:
            return
        session.ended = True
        connection = session.connection
        if connection is not None:
            self.counters["takeovers"] += 1
            connection.close(
                ReasonCode.SESSION_TAKEN_OVER, "another connection has the same client id"
            )
            will, connection.will = connection.will, None
            if will is not None and not (will.properties or {}).get(PropertyId.WILL_DELAY_INTERVAL):
                self.wills.append(WillDue(session.identity, will))
            session.connection = None
        self._remove(session)

    def take_over(self, session: Session, now: float) -> None:
        """End the connection of a session whose client has connected again (session takeover)."""
        self.counters["takeovers"] += 1
        session.connection.close(
            ReasonCode.SESSION_TAKEN_OVER, "another connection has the same client id"
        )
        self.connection_lost(session.connection, now)

    def all_subscriptions(self) -> Iterator[Subscription]:
        """Yield the subscriptions of all sessions."""
        for session in self.sessions.values():
            yield from session.subscriptions.values()

    def _shares_changed(self, session: Session) -> None:
        if self.neighbours is not None:
            for subscription in session.subscriptions.values():
                if subscription.share is not None:
                    self.neighbours.shares_changed(subscription)

    def take_retained(self, message: Message) -> None:
        """Store a retained message that another worker has published; called by the journal."""
        self.retained.take(message)

    def forget_device(self, device: str) -> None:
        """Remove the retained and queued messages of an erased device; called by the journal."""
        for topic in self.retained.of_device(device):
            self.retained.put(Message(topic, b""))
        self.rights.forget_device(device)
        self.begin(self._forget_waiting(device))

    def _forget_waiting(self, device: str) -> Iterator[None]:
        for number, session in enumerate(list(self.sessions.values()), 1):
            forget_owner(session, device)
            if session.queue is not None or not number % _FORGOTTEN_A_STEP:
                yield

    def _expiry_interval(self, packet: Connect) -> int:
        if packet.version == 5:
            asked = (packet.properties or {}).get(PropertyId.SESSION_EXPIRY_INTERVAL, 0)
            assert isinstance(asked, int)
        else:
            asked = 0 if packet.clean_start else NEVER
        return min(asked, self.settings.session_expiry_max_s)

    def connection_lost(self, connection: Connection, now: float) -> None:
        """Detach a connection that is over; its will is published unless DISCONNECT removed it."""
        session = connection.session
        if session is None or session.connection is not connection:
            return
        session.connection = None
        self.retained_delivery.gone(session)
        self._shares_changed(session)
        will, connection.will = connection.will, None
        delay = 0
        if will is not None:
            asked = (will.properties or {}).get(PropertyId.WILL_DELAY_INTERVAL, 0)
            assert isinstance(asked, int)
            delay = min(asked, session.expiry_interval_s)
            if not delay:
                self.wills.append(WillDue(session.identity, will))
        if not delay:
            session.hold_will(0)
        if not session.expiry_interval_s:
            self.end(session)
            return
        session.deadline = now + session.expiry_interval_s
        if delay:
            session.will, session.will_at = will, now + delay
        self._park(session)
        self.session_changed(session)
        self.timers.schedule(session, session.will_at if delay else session.deadline)
        own = self.accounts.of(session.identity.user).offline
        if len(own) > self.accounts.offline_max:
            self._evict(own)
        elif len(self._offline) > self.settings.offline_sessions_max:
            # Evict from a user that has more than an equal part, even if it is this session's.
            many = len(own) * self.accounts.users > self.settings.offline_sessions_max
            self._evict(own if many else self._offline)

    def _evict(self, offline: OrderedDict[Session, None]) -> None:
        self.counters["sessions_evicted"] += 1
        self.end(next(iter(offline)))

    def end(self, session: Session) -> None:
        """End a session that has no connection."""
        if session.will is not None:
            self.wills.append(WillDue(session.identity, session.will))
            session.will = None
        session.ended = True
        self._remove(session)
        if self.journal is not None:
            key = session_key(session.identity, session.client_id)
            self.journal.ended(key, session.epoch)

    def _remove(self, session: Session) -> None:
        subscriptions, session.subscriptions = session.subscriptions, {}
        session.backlog = None  # the searches refer to the session
        unshared: list[Subscription] = []
        for subscription in subscriptions.values():
            if subscription.share is None and len(subscriptions) > 1:
                unshared.append(subscription)
            else:  # a shared group must not choose it any more
                self.drop(subscription)
                self._let_go(subscription)
        if unshared:
            self.begin(self._drop_all(unshared), self.accounts.turn_of(session))
        self._offline.pop(session, None)
        self.accounts.end(session)
        self.timers.cancel(session)
        self.sessions.pop(session_key(session.identity, session.client_id), None)

    def _drop_all(self, subscriptions: list[Subscription]) -> Iterator[None]:
        for subscription in subscriptions:
            self.drop(subscription)
            self._let_go(subscription)
            yield

    def advance(self, now: float, most: int | None = None) -> bool:
        """Handle what is due: time-outs of connections, delayed wills, expiry of sessions.

        At most `most` timers are handled; returns whether there may be more.
        """
        due = self.timers.advance(now, most)
        for timer in due:
            if isinstance(timer, Session):
                self._session_due(timer, now)
            else:
                self._connection_due(timer, now)
        return len(due) == most

    def _session_due(self, session: Session, now: float) -> None:
        if session.connection is not None:
            return
        if session.will is not None and session.will_at <= now:
            self.wills.append(WillDue(session.identity, session.will))
            session.will = None
            session.hold_will(0)
        if session.deadline <= now:
            self.end(session)
            return
        due = session.deadline if session.will is None else session.will_at
        self.timers.schedule(session, due)

    @staticmethod
    def _connection_due(timer: Timer, now: float) -> None:
        connection: Connection = timer  # type: ignore[assignment]
        connection.timed_out(now)

    def offline_sessions(self) -> int:
        """Return the number of sessions whose clients are away."""
        return len(self._offline)

    # --- subscriptions --------------------------------------------------------------------------

    def subscribe(
        self, session: Session, request: SubscriptionRequest, identifier: int
    ) -> tuple[int, Subscription | None]:
        """Subscribe to one filter.

        Returns its SUBACK code, and the subscription if it is to get retained messages.
        """
        share, topic_filter = split_share(request.topic_filter)
        if not filter_is_valid(topic_filter, self.settings.topic_levels_max):
            return ReasonCode.TOPIC_FILTER_INVALID, None
        granted = self.rules.granted_filters(session.identity, topic_filter)
        if not granted:
            self.counters["subscriptions_refused"] += 1
            if not self.settings.refusals_explained:
                return ReasonCode.UNSPECIFIED_ERROR, None
            return ReasonCode.NOT_AUTHORIZED, None
        existing = session.subscriptions.get(request.topic_filter)
        if (
            existing is None
            and len(session.subscriptions) >= self.settings.subscriptions_per_session_max
        ):
            return ReasonCode.QUOTA_EXCEEDED, None
        size = subscription_bytes(request.topic_filter)
        filters = session.filter_bytes + len(request.topic_filter)
        reach = session.reach + len(granted)
        if existing is not None:
            reach -= len(existing.granted_filters)
        if (
            reach > self.settings.granted_filters_per_session_max
            or filters > self.settings.filter_bytes_per_session_max
            or not self.accounts.subscriptions.take(session.identity.user, size)
        ):
            self.counters["subscriptions_beyond_share"] += 1
            return ReasonCode.QUOTA_EXCEEDED, None
        if existing is not None:
            self.drop(existing)
            self._let_go(existing)
        group = None if share is None else self._group_name(session, share)
        subscription = self.begin_subscription(session, request, identifier, granted, group)
        subscription.size = size
        self.session_changed(session)
        if share is not None or request.retain_handling == 2:
            return request.qos, None
        if request.retain_handling == 1 and existing is not None:
            return request.qos, None
        return request.qos, subscription

    def begin_subscription(
        self,
        session: Session,
        request: SubscriptionRequest,
        identifier: int,
        granted: tuple[str, ...],
        group: str | None = None,
    ) -> Subscription:
        """Add a subscription to a session under the filters that it is granted."""
        subscription = Subscription(
            session,
            request.topic_filter,
            granted,
            qos=request.qos,
            no_local=request.no_local,
            retain_as_published=request.retain_as_published,
            identifier=identifier,
            share=group,
        )
        subscription.reaches_friends = self.rules.reaches_friends(session.identity, granted)
        session.subscriptions[request.topic_filter] = subscription
        self.add(subscription)
        return subscription

    @staticmethod
    def _group_name(session: Session, share: str) -> str:
        """Return the internal name of a share's group.

        It includes the user, and the device of a device's token, so that no user receives
        the messages of another user's share by using its name.
        """
        return "/".join((session.identity.user, session.identity.device or "", share))

    def told(self, message: Message, session: Session) -> Message | None:
        """Return the part of a message, which may be a friend's, that a client may read."""
        return self.rights.told(message, session)

    def add(self, subscription: Subscription) -> None:
        """Have a subscription match messages under its granted filters."""
        session = subscription.session
        session.reach += len(subscription.granted_filters)
        session.filter_bytes += len(subscription.topic_filter)
        self.subscriptions.add(subscription)
        self._announce(subscription, True)

    def drop(self, subscription: Subscription) -> None:
        """Stop a subscription from matching messages."""
        session = subscription.session
        session.reach -= len(subscription.granted_filters)
        session.filter_bytes -= len(subscription.topic_filter)
        self.subscriptions.remove(subscription)
        self._announce(subscription, False)

    def _let_go(self, subscription: Subscription) -> None:
        """Release what a subscription that has ended holds, and what its user is charged."""
        self.retained_delivery.forget(subscription)
        if subscription.size:
            user = subscription.session.identity.user
            self.accounts.subscriptions.give_back(user, subscription.size)
            subscription.size = 0

    def _announce(self, subscription: Subscription, wanted: bool) -> None:
        # For shared subscriptions the worker that has the views chooses the member.
        if self.watch is not None and subscription.share is None:
            self.watch(subscription.granted_filters, wanted)
        if self.neighbours is not None:
            self.neighbours.subscribed(subscription, wanted)

    def unsubscribe(self, session: Session, topic_filter: str) -> int:
        """Unsubscribe from one filter; return its UNSUBACK code."""
        subscription = session.subscriptions.pop(topic_filter, None)
        if subscription is None:
            return ReasonCode.NO_SUBSCRIPTION_EXISTED
        self.drop(subscription)
        self._let_go(subscription)
        session.forget_retained(topic_filter)
        self.session_changed(session)
        return ReasonCode.SUCCESS

    # --- messages -------------------------------------------------------------------------------

    def publish(
        self, message: Message, publisher: Session | None, now: float, owner: str | None = None
    ) -> None:
        """Store a message if it is retained, and deliver it to all subscribers of its topic.

        `owner` is the user in whose share a retained message counts if there is no publisher.
        """
        self.publish_to(self.subscriptions.match(message.topic), message, publisher, now, owner)
