"""The state that the server keeps for one client. Sans-IO: the time is an argument."""

from collections import deque

from gateway.mqtt.packets.packet_numbers cimport (
    PACKET_ID_MAX,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    UNSPECIFIED_ERROR,
)
from gateway.mqtt.packets.decoder cimport Publish
from gateway.mqtt.packets.topics cimport Subscription
from gateway.mqtt.sessions.constants cimport (
    DELIVERY_BYTES,
    NOT_STORED,
    STEPS_A_SEARCH,
    STEPS_A_TURN,
)
from gateway.mqtt.sessions.hub cimport Hub
from gateway.mqtt.sessions.link cimport Link
from gateway.mqtt.packets.message cimport Delivery, Message

from gateway.mqtt.packets.packets import ReasonCode

NEVER = 0xFFFFFFFF  # Session Expiry Interval: the session does not expire

cdef object NOTHING_MORE = object()


cdef class Session:
    """State of one client; `connection` is None while it is away.

    A session outlives its connections if the client asks for that (MQTT 5.0, section 4.1).
    Containers are created when they are first needed, as most sessions of devices need few of them.
    """

    def __init__(self, str client_id, identity, settings):
        self.client_id = client_id
        self.identity = identity
        self.settings = settings
        self.expiry_interval_s = 0  # counted from the end of a connection
        self.deadline = 0.0  # when the session expires; only while the client is away
        self.timer_tick = 0
        self.will = None  # of a connection that has ended, during its will delay
        self.will_at = 0.0
        self.subscriptions = {}
        #: The number of granted filters; one subscription may reach many friends.
        self.reach = 0
        self.filter_bytes = 0
        #: Iterators of retained messages still to be sent, by topic filter; None or not empty.
        self.backlog = None
        #: By packet identifier, in order of sending; at most deliveries_in_flight_max.
        self.in_flight = None
        self.queue = None  # None or not empty
        self.queued_bytes = 0
        #: Identifiers of the client's QoS 2 publishes that are stored but not released by PUBREL.
        self.received = None
        #: Identifiers of those that wait for the log, from any connection of the session.
        self.receiving = None
        #: Called once, with the time, when no QoS 2 publish waits for the log any more.
        self.on_settled = None
        self.next_packet_id = 1
        self.ended = False  # it cannot be resumed any more
        #: Records of other workers with a lower epoch are older than this session.
        self.epoch = 0

    # --- to the client --------------------------------------------------------------------------

    cpdef bint deliver(
        self, Message message, int qos, bint retain, list identifiers, double now
    ) except -1:
        """Send or queue a message; return False if it was dropped."""
        cdef bint ready = self.connection is not None and self.connection._writable()
        cdef Delivery delivery
        if qos == 0:
            if not ready:
                return False
            self.connection.send_publish(message, 0, retain, False, 0, identifiers, now)
            return True
        delivery = Delivery.__new__(Delivery, message, qos, retain, identifiers)
        if (
            ready
            and self.queue is None
            and self._window_open()
            # A client that reads gets one message at a time, whatever else its user holds.
            and self._take(delivery, self.in_flight is None)
        ):
            self._send(delivery, now)
            return True
        return self._enqueue(delivery)

    cpdef pump(self, double now):
        """Send queued messages, as many as the send window and the connection allow."""
        cdef Delivery delivery
        cdef int left = STEPS_A_TURN
        cdef Hub hub
        if self.connection is None or self.connection.more:
            return  # continued in the loop's next turn
        hub = self.connection._router
        while (
            (self.queue is not None or self.backlog is not None)
            and self.connection is not None
            and self.connection._writable()
            and self._window_open()
        ):
            if left <= 0 or hub.steps_left <= 0:
                self.connection.go_on()
                return
            delivery = self._next_waiting()
            if delivery is None:
                left -= STEPS_A_SEARCH
                hub.steps_left -= STEPS_A_SEARCH
                continue
            left -= 1
            hub.steps_left -= 1
            if delivery.message.expired(now):
                self._let_go(delivery)
            elif delivery.qos:
                if not delivery.held:  # a retained message: at most the send window is charged
                    self._take(delivery, True)
                self._send(delivery, now)
            else:
                self._transmit(0, delivery, now)

    def await_retained(self, Subscription subscription, messages):
        """Queue the messages of an iterator; they are sent as fast as the client takes them."""
        if self.backlog is None:
            self.backlog = {}
        self.backlog[subscription.topic_filter] = (subscription, messages)

    def forget_retained(self, str topic_filter):
        """Drop the retained messages of a filter that are not sent yet."""
        if self.backlog is not None:
            self.backlog.pop(topic_filter, None)
            if not self.backlog:
                self.backlog = None

    def keep_waiting(self, keep):
        """Drop waiting messages for which `keep(message)` returns False."""
        cdef Delivery delivery
        self.keep_queued(keep)
        if self.connection is None:
            # They were sent but perhaps never arrived, and would be sent again.
            for packet_id, delivery in list((self.in_flight or {}).items()):
                if not delivery.released and not keep(delivery.message):
                    self._settled(packet_id)

    def keep_queued(self, keep):
        """Drop queued messages for which `keep(message)` returns False; in-flight ones stay."""
        cdef Delivery delivery
        if self.queue is None:
            return
        kept = deque()
        for delivery in self.queue:
            if keep(delivery.message):
                kept.append(delivery)
            else:
                self.queued_bytes -= len(delivery.message.payload)
                self._let_go(delivery)
        self.queue = kept or None

    cdef Delivery _next_waiting(self):
        cdef Delivery delivery
        cdef Subscription subscription
        cdef Message message
        if self.queue is not None:
            delivery = self.queue.popleft()
            self.queued_bytes -= len(delivery.message.payload)
            if not self.queue:
                self.queue = None
            return delivery
        topic_filter, (subscription, messages) = next(iter(self.backlog.items()))
        try:
            found = next(messages, NOTHING_MORE)
        except Exception as error:
            # Its iterator has ended with it.
            self.connection._router.left_out.tell(topic_filter, error)
            found = NOTHING_MORE
        if found is NOTHING_MORE:
            self.forget_retained(topic_filter)
            return None
        if found is None:
            return None  # a pause of the search
        message = found
        return Delivery.__new__(
            Delivery,
            message,
            min(message.qos, subscription.qos),
            True,
            [subscription.identifier] if subscription.identifier else None,
        )

    cdef bint _window_open(self) except -1:
        if self.in_flight is None:
            return True
        if self.in_flight_bytes >= self.settings.queued_bytes_max:
            return False
        return len(self.in_flight) < min(
            <int> self.settings.deliveries_in_flight_max, self.connection.receive_maximum
        )

    cdef int _send(self, Delivery delivery, double now) except -1:
        cdef int packet_id
        if self.in_flight is None:
            self.in_flight = {}
        while self.next_packet_id in self.in_flight:
            self.next_packet_id = self.next_packet_id % PACKET_ID_MAX + 1
        packet_id = self.next_packet_id
        self.next_packet_id = packet_id % PACKET_ID_MAX + 1
        self.in_flight[packet_id] = delivery
        self.in_flight_bytes += delivery.held
        if not self._transmit(packet_id, delivery, now):
            self._settled(packet_id)
        return 0

    def _settled(self, int packet_id):
        cdef Delivery delivery
        if self.in_flight is not None:
            delivery = self.in_flight.pop(packet_id, None)
            if delivery is not None:
                self.in_flight_bytes -= delivery.held
                self._let_go(delivery)
            if not self.in_flight:
                self.in_flight = None

    cdef bint _take(self, Delivery delivery, bint forced) except -1:
        """Charge a message to the user; return False if the user holds too much."""
        cdef Py_ssize_t size = len(delivery.message.payload) + DELIVERY_BYTES
        if self.account is not None:
            if forced:
                self.account.hold(size)
            elif not self.account.take(size):
                return False
        delivery.held = size
        self.held_bytes += size
        return True

    cdef int _let_go(self, Delivery delivery) except -1:
        if self.account is not None:
            self.account.give_back(delivery.held)
        self.held_bytes -= delivery.held
        delivery.held = 0
        return 0

    def close_account(self):
        """Release all that the user is charged for this session, which is over."""
        if self.account is not None:
            self.account.give_back(self.held_bytes + self.will_bytes)
            self.account = None
            self.will_bytes = 0

    def hold_will(self, Py_ssize_t size):
        """Charge a will of `size` bytes (0: none) to the user; return False if it is too much."""
        if self.account is not None:
            if size > self.will_bytes and not self.account.take(size - self.will_bytes):
                return False
            if size < self.will_bytes:
                self.account.give_back(self.will_bytes - size)
        self.will_bytes = size
        return True

    def restore(self, int packet_id, Delivery delivery):
        """Restore a message that was in flight to the client when the server stopped."""
        self._take(delivery, True)
        if self.in_flight is None:
            self.in_flight = {}
        self.in_flight[packet_id] = delivery
        self.in_flight_bytes += delivery.held

    cdef bint _transmit(self, int packet_id, Delivery delivery, double now) except -1:
        return self.connection.send_publish(
            delivery.message,
            delivery.qos,
            delivery.retain,
            delivery.dup,
            packet_id,
            delivery.identifiers,
            now,
        )

    def enqueue(self, Delivery delivery):
        """Queue a message without trying to send it; return False if there is no room."""
        return self._enqueue(delivery)

    cdef bint _enqueue(self, Delivery delivery) except -1:
        cdef Message message = delivery.message, other
        cdef Delivery waiting
        if self.queue is None:
            self.queue = deque()
        elif message.latest_only:
            for index, waiting in enumerate(self.queue):
                other = waiting.message
                if other.latest_only and other.topic == message.topic:
                    self.queued_bytes += len(message.payload) - len(other.payload)
                    self._let_go(waiting)
                    self._take(delivery, True)
                    self.queue[index] = delivery
                    return True
        if (
            len(self.queue) >= self.settings.queued_messages_max
            or self.queued_bytes + len(message.payload) > self.settings.queued_bytes_max
            or not self._take(delivery, False)
        ):
            if not self.queue:
                self.queue = None
            return False
        self.queue.append(delivery)
        self.queued_bytes += len(message.payload)
        return True

    def acknowledged(self, int packet_type, int packet_id, int reason_code, double now):
        """Handle PUBACK, PUBREC or PUBCOMP; return packet type and reason code of the answer."""
        cdef Delivery delivery = None
        if self.in_flight is not None:
            delivery = self.in_flight.get(packet_id)
        if packet_type == PUBREC:
            if delivery is None or delivery.qos != 2:
                return PUBREL, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
            if reason_code < UNSPECIFIED_ERROR:
                delivery.released = True
                return PUBREL, 0
        elif delivery is None or (delivery.qos == 2) != (packet_type == PUBCOMP):
            return None
        self._settled(packet_id)
        self.pump(now)
        return None

    def resume(self, double now):
        """Send again on a new connection what the old one may have lost (section 4.4)."""
        cdef Delivery delivery
        for packet_id, delivery in list((self.in_flight or {}).items()):
            if delivery.released:
                self.connection.send_acknowledgement(PUBREL, packet_id)
                continue
            delivery.dup = True
            if not self._transmit(packet_id, delivery, now):
                self._settled(packet_id)
        self.pump(now)

    # --- from the client ------------------------------------------------------------------------

    cdef int _repeat(self, Link link, Publish packet, double now) except -1:
        """Have a publish that waits for the log answered on the connection that repeats it."""
        cdef Link before
        cdef Publish earlier
        packet.repetition = True
        packet.payload = b""
        if self._repeated is None:
            self._repeated = {}
        found = self._repeated.get(packet.packet_id)
        self._repeated[packet.packet_id] = (link, packet)
        if found is not None:
            # That connection is over, but later packets on it are still to be passed on.
            before, earlier = found
            before.acknowledge(earlier, 0, now)
        return 0

    cdef int _taken(self, Publish packet, bint kept, double now) except -1:
        """Handle the log's answer to a QoS 2 publish.

        With `kept`, its identifier stays in use until PUBREL: repetitions are not new messages.
        """
        cdef Link link
        cdef Publish again
        found = None
        if self.receiving is not None:
            self.receiving.discard(packet.packet_id)
            if not self.receiving:
                self.receiving = None
        if kept:
            if self.received is None:
                self.received = set()
            self.received.add(packet.packet_id)
        if self._repeated is not None:
            found = self._repeated.pop(packet.packet_id, None)
            if not self._repeated:
                self._repeated = None
        if found is not None:
            link, again = found
            if packet.reason_code == NOT_STORED:
                link.fail(again, now)
            else:
                link.acknowledge(again, packet.reason_code, now)
        if self.receiving is None and self.on_settled is not None:
            settled, self.on_settled = self.on_settled, None
            settled(now)
        return 0

    def release(self, int packet_id):
        """Handle PUBREL: free the packet identifier. Return False if it was not in use."""
        if self.received is None or packet_id not in self.received:
            return False
        self.received.discard(packet_id)
        if not self.received:
            self.received = None
        return True

    def queued(self):
        """Return the number of queued messages."""
        return 0 if self.queue is None else len(self.queue)
