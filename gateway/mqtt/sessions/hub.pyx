"""Delivery of one message to all its subscribers.

Sans-IO. The class makes no policy: its subclass in Python (`router`) decides who may subscribe.
"""

from collections import deque

from gateway.mqtt.packets.topics cimport ElsewhereInterest, Subscription, SubscriptionTree
from gateway.mqtt.sessions.constants cimport (
    MERGED_A_STEP,
    SPREAD_A_STEP,
    SPREAD_BYTES_MAX,
    SPREAD_FROM,
    STEPS_UNBOUNDED,
)
from gateway.mqtt.sessions.link cimport Link
from gateway.mqtt.packets.message cimport Message
from gateway.mqtt.sessions.session cimport Session
from gateway.mqtt.sessions.user_turns cimport UserQueues, UserTurn

from gateway.mqtt.packets.topics import merge
from gateway.mqtt.left_out import LeftOut


cdef class Hub:
    """The base of `gateway.mqtt.sessions.router.Router`: delivers messages to sessions."""

    def __init__(self, settings, rules, timers, retained, counters):
        self.settings = settings
        self.rules = rules
        self.timers = timers
        #: Connections that have bytes to send or are to be closed.
        self.changed = []
        #: Wills to be published: of clients whose connections ended without a DISCONNECT.
        self.wills = []
        self.retained = retained
        self.sources = []
        self.subscriptions = SubscriptionTree()
        #: The interest of other workers' clients, and the function that passes messages to them.
        self.elsewhere = ElsewhereInterest()
        self.pass_on = None
        self.counters = counters
        #: Told of messages that cannot be made or sent.
        self.left_out = LeftOut()
        self.steps_left = STEPS_UNBOUNDED
        #: Work that takes more than one turn of the loop: pairs of a UserTurn, or None, and an
        #: iterator, each of whose steps is short.
        self.work = UserQueues()
        self.in_turns = False
        #: Grows whenever the rights of a session to read change.
        self.rights_changes = 0
        self._publishes_in_flight_max = settings.publishes_in_flight_max
        self._topic_levels_max = settings.topic_levels_max
        self._outgoing_bytes_max = settings.outgoing_bytes_max

    def told(self, Message message, Session session):
        """Return the part of a message that a session's user may read; None: nothing.

        The message may be another user's.
        """
        return message

    def begin(self, work, UserTurn user=None):
        """Run `work` step by step over several turns if the shell does so; otherwise at once.

        `user` is the one on whose account it runs, in turns with others' work.
        """
        if self.in_turns:
            self.work.push(user, (user, work))
        else:
            for _ in work:
                pass

    cpdef publish_to(
        self, list found, Message message, Session publisher, double now, str owner=None
    ):
        """Store a message if it is retained, and deliver it to the subscriptions in `found`.

        `owner` is the user in whose share a retained message counts if there is no publisher.
        """
        if message.retain:
            message.owner = publisher.identity.user if publisher is not None else owner
            self.retained.put(message)
        if found:
            self.deliver(message, found, publisher, now)
        if self.elsewhere.wants(message.topic):
            self.pass_on(message)

    cpdef deliver(self, Message message, list subscriptions, Session publisher, double now):
        """Deliver a message; overlapping subscriptions of a client result in one delivery.

        Delivery to many subscribers takes several turns. Later messages of the same topic wait
        until it is complete.
        """
        if self.in_turns and (
            len(subscriptions) > SPREAD_FROM
            or (self._spreading is not None and message.topic in self._spreading)
        ):
            self._spread(message, subscriptions, publisher, now)
            return
        if len(subscriptions) == 1:
            self._deliver(message, subscriptions, publisher, now)
            return
        for own in merge(subscriptions).values():
            self._deliver(message, own, publisher, now)

    cdef int _spread(
        self, Message message, list subscriptions, Session publisher, double now
    ) except -1:
        cdef Link link = None if publisher is None else publisher.connection
        cdef Py_ssize_t size = len(message.payload) + 8 * len(subscriptions)
        cdef Message other
        if self._spreading is None:
            self._spreading = {}
        waiting = self._spreading.get(message.topic)
        if waiting is None:
            waiting = self._spreading[message.topic] = deque()
            user = None if link is None else link.turn
            self.begin(self._spreading_of(message.topic, waiting), user)
        elif link is None:
            # There is no publisher whose connection could be paused.
            if message.latest_only and waiting:
                other = waiting[-1][0]
                if other.latest_only:
                    self._spreading_bytes -= waiting.pop()[-1]
            if self._spreading_bytes + size > SPREAD_BYTES_MAX:
                self.counters["deliveries_dropped"] += len(subscriptions)
                return 0
        if link is not None:
            link.under_way += 1
        self._spreading_bytes += size
        waiting.append(
            (message, subscriptions, publisher, link, now, self.rights_changes, size)
        )
        return 0

    def _spreading_of(self, str topic, waiting):
        """Deliver the waiting messages of a topic, one after the other."""
        cdef Link link
        cdef Message message
        cdef dict merged
        cdef list own
        cdef Subscription subscription
        try:
            while waiting:
                message, subscriptions, publisher, link, now, rights, size = waiting.popleft()
                try:
                    merged = {}
                    for number, subscription in enumerate(subscriptions, 1):
                        merged.setdefault(subscription.session, []).append(subscription)
                        if not number % MERGED_A_STEP:
                            yield
                    for number, own in enumerate(merged.values(), 1):
                        own = [each for each in own if is_current(each)]
                        if own:
                            # Rights to read may have been withdrawn since the match.
                            self._deliver(
                                message, own, publisher, now, rights != self.rights_changes
                            )
                        if not number % SPREAD_A_STEP:
                            yield
                finally:
                    self._spreading_bytes -= size
                    if link is not None:
                        link.done()
                yield
        finally:
            for *_, link, _, _, size in waiting:  # after an error
                self._spreading_bytes -= size
                if link is not None:
                    link.done()
            del self._spreading[topic]
            if not self._spreading:
                self._spreading = None

    cdef int _deliver(
        self, Message message, list subscriptions, Session publisher, double now,
        bint ask=False,
    ) except -1:
        cdef Subscription subscription = subscriptions[0]
        cdef Session session = subscription.session
        cdef int qos = 0
        cdef bint retain = False, delivered, asked = ask
        cdef list identifiers = None
        if session.ended:
            return 0  # its subscriptions are being removed
        for subscription in subscriptions:
            if session is publisher and subscription.no_local:
                continue
            # QoS plus 1: 0 stands for "no subscription left".
            qos = max(qos, subscription.qos + 1)
            retain = retain or subscription.retain_as_published
            asked = asked or subscription.reaches_friends
            if subscription.identifier:
                if identifiers is None:
                    identifiers = []
                identifiers.append(subscription.identifier)
        if not qos:
            return 0
        if asked:
            message = self.told(message, session)
            if message is None:
                return 0
        delivered = session.deliver(
            message, min(message.qos, qos - 1), message.retain and retain, identifiers, now
        )
        self.counters["deliveries" if delivered else "deliveries_dropped"] += 1
        return 0


cdef bint is_current(Subscription subscription) except -1:
    """Return whether a subscription that was matched before is still in force."""
    cdef Session session = subscription.session
    if subscription.elsewhere:
        return True
    return not session.ended and (
        session.subscriptions.get(subscription.topic_filter) is subscription
    )
