# From one message to all who subscribed; a part of session.pyx.


cdef class Hub:
    """The base of `gateway.mqtt.router.Router`: takes messages to sessions."""

    def __init__(self, settings, rules, timers, retained, counters):
        self.settings = settings
        self.rules = rules
        self.timers = timers
        #: Connections that have bytes to send or are to be closed.
        self.changed = []
        #: The last messages of clients that went without a word.
        self.wills = []
        self.retained = retained
        self.sources = []
        self.subscriptions = SubscriptionTree()
        #: What clients of other workers may want, and what takes such a message there.
        self.elsewhere = ElsewhereInterest()
        self.pass_on = None
        self.counters = counters
        self.steps_left = STEPS_UNBOUNDED
        self._publishes_in_flight_max = settings.publishes_in_flight_max
        self._topic_levels_max = settings.topic_levels_max
        self._outgoing_bytes_max = settings.outgoing_bytes_max

    def told(self, Message message, Session session):
        """What a client gets of a message that may be another user's; None: nothing."""
        return message

    cpdef publish_to(
        self, list found, Message message, Session publisher, double now, str owner=None
    ):
        """Keep a message if it is retained, and take it to those who subscribed to its topic.

        `owner` is the user whose message it is, where that is not the publisher's.
        """
        if message.retain:
            message.owner = publisher.identity.user if publisher is not None else owner
            self.retained.put(message)
        if found:
            self.deliver(message, found, publisher, now)
        if self.elsewhere.wants(message.topic):
            self.pass_on(message)

    cpdef deliver(self, Message message, list subscriptions, Session publisher, double now):
        """Take a message to some subscriptions; overlapping ones of a client are one delivery."""
        if len(subscriptions) == 1:
            self._deliver(message, subscriptions, publisher, now)
            return
        for own in merge(subscriptions).values():
            self._deliver(message, own, publisher, now)

    cdef int _deliver(
        self, Message message, list subscriptions, Session publisher, double now
    ) except -1:
        cdef Subscription subscription = subscriptions[0]
        cdef Session session = subscription.session
        cdef int qos = 0
        cdef bint retain = False, delivered, asked = False
        cdef list identifiers = None
        for subscription in subscriptions:
            if session is publisher and subscription.no_local:
                continue
            # A subscription of QoS 0 counts too: -1 would be "none left".
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
