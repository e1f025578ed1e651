"""The part of the state machines that runs for every message: messages, sessions and links."""

from libc.stdint cimport uint32_t

from gateway.mqtt.packets.codec cimport Acknowledgement, Decoder, Publish
from gateway.mqtt.packets.topics cimport ElsewhereInterest, Subscription, SubscriptionTree

cdef enum:
    STATE_AWAITING_CONNECT = 0
    STATE_AUTHENTICATING = 1
    STATE_CONNECTED = 2
    STATE_CLOSED = 3
    STATE_CHALLENGED = 4  # CONNECT has arrived, an AUTH is expected


cdef class Message:
    cdef public str topic
    cdef public bytes payload
    cdef public int qos
    cdef public bint retain
    cdef public bint latest_only
    cdef public str owner       # user in whose share a retained message counts
    cdef public dict properties
    cdef public object expires_at
    cdef public object told

    cpdef bint expired(self, double now)


cdef class Pool:
    cdef readonly Py_ssize_t total
    cdef readonly Py_ssize_t each
    cdef public Py_ssize_t used


cdef class Account:
    cdef readonly Pool pool
    cdef readonly Py_ssize_t held
    cdef public dict waiting        # protocols that are not read because of it, or None

    cpdef bint take(self, Py_ssize_t amount)
    cpdef hold(self, Py_ssize_t amount)
    cpdef give_back(self, Py_ssize_t amount)
    cdef bint is_full(self)


cdef class Delivery:
    cdef public Message message
    cdef public int qos
    cdef public bint retain
    cdef public bint dup
    cdef public bint released
    cdef public list identifiers
    cdef Py_ssize_t held            # bytes charged to the user's account


cdef class Session:
    cdef public str client_id
    cdef public object identity
    cdef public object settings
    cdef public Link connection
    cdef public long long expiry_interval_s
    cdef public double deadline
    cdef public long long timer_tick
    cdef public object will
    cdef public double will_at
    cdef public dict subscriptions
    cdef public Py_ssize_t reach
    cdef public Py_ssize_t filter_bytes
    cdef public dict backlog
    cdef public dict in_flight
    cdef public object queue
    cdef public Py_ssize_t queued_bytes
    cdef readonly Py_ssize_t in_flight_bytes
    cdef readonly Py_ssize_t held_bytes
    cdef public Account account     # None: nothing is charged
    cdef public Py_ssize_t will_bytes
    cdef public set received
    cdef public set receiving
    cdef dict _repeated             # or None
    cdef public object on_settled   # callable, or None
    cdef public int next_packet_id
    cdef public bint ended
    cdef public long long epoch

    cpdef bint deliver(
        self, Message message, int qos, bint retain, list identifiers, double now
    ) except -1
    cpdef pump(self, double now)
    cdef Delivery _next_waiting(self)
    cdef bint _window_open(self) except -1
    cdef int _send(self, Delivery delivery, double now) except -1
    cdef bint _transmit(self, int packet_id, Delivery delivery, double now) except -1
    cdef bint _enqueue(self, Delivery delivery) except -1
    cdef bint _take(self, Delivery delivery, bint forced) except -1
    cdef int _let_go(self, Delivery delivery) except -1
    cdef int _repeat(self, Link link, Publish packet, double now) except -1
    cdef int _taken(self, Publish packet, bint kept, double now) except -1


cdef class Hub:
    cdef readonly object settings
    cdef readonly object rules
    cdef readonly object timers
    cdef public list changed
    cdef public list wills
    cdef readonly object retained
    cdef readonly list sources
    cdef readonly SubscriptionTree subscriptions
    cdef readonly ElsewhereInterest elsewhere
    cdef public object pass_on
    cdef readonly object counters
    cdef public int steps_left      # queued messages that this turn of the loop may still send
    cdef public object work         # iterators: work that takes more than one turn of the loop
    cdef public bint in_turns       # whether the shell runs `work` step by step
    cdef public long long rights_changes
    cdef dict _spreading            # topic -> deliveries still to be made, in order; or None
    cdef Py_ssize_t _spreading_bytes
    cdef int _publishes_in_flight_max
    cdef int _topic_levels_max
    cdef Py_ssize_t _outgoing_bytes_max

    cpdef deliver(self, Message message, list subscriptions, Session publisher, double now)
    cpdef publish_to(
        self, list found, Message message, Session publisher, double now, str owner=*
    )
    cdef int _deliver(
        self, Message message, list subscriptions, Session publisher, double now,
        bint ask=*,
    ) except -1
    cdef int _spread(
        self, Message message, list subscriptions, Session publisher, double now
    ) except -1


cdef class Link:
    cdef public object owner
    cdef public object route
    cdef public object will
    cdef public object closing
    cdef readonly Hub _router
    cdef readonly Decoder _decoder
    cdef public Session session
    cdef Publish _oldest            # unacknowledged packet; the later ones are linked to it
    cdef Publish _newest
    cdef int _unacknowledged
    cdef object _outgoing           # None, bytes, or a list of bytes
    cdef public Py_ssize_t outgoing_bytes
    cdef dict _aliases_in
    cdef Py_ssize_t _alias_bytes
    cdef public Account publishes   # None: nothing is charged
    cdef public str counted_for     # user in whose number of connections this one counts
    cdef dict _aliases_out
    cdef public object paused_since
    cdef public object held         # timer or task, and packet; no other packet is handled before
    cdef public double _last_received
    cdef public uint32_t packet_bytes_max
    cdef public int state
    cdef public int version
    cdef public int keep_alive_s
    cdef public int receive_maximum
    cdef public int topic_aliases_max
    cdef public long long timer_tick
    cdef public long long number    # of this connection among those that have published, from 1 on
    cdef public bint blocked
    cdef public int under_way       # requests of the client that take several turns
    cdef public int looks_left      # packets that may be handled before other connections
    cdef public bint unread
    cdef public bint abort
    cdef bint more                  # more is queued for this client than one turn may send
    cdef bint _announced

    cpdef receive_data(self, bytes data, double now)
    cpdef next_event(self, double now)
    cdef bint _publish_arrived(self, Publish packet, double now) except -1
    cdef bint _is_new(self, Publish packet, double now) except -1
    cdef int _resolve_alias(self, Publish packet) except -1
    cdef int _acknowledged(self, Acknowledgement packet, double now) except -1
    cdef int _expect_answer(self, Publish packet) except -1
    cpdef acknowledge(self, Publish packet, int reason_code, double now)
    cpdef fail(self, Publish packet, double now)
    cdef bint _brought(self, Publish packet)
    cdef int _answer(self, Publish packet, double now) except -1
    cdef bint _writable(self)
    cpdef send(self, bytes data)
    cpdef _change(self)
    cpdef done(self)
    cdef int go_on(self) except -1
    cpdef bytes take_outgoing(self, double now)
    cpdef send_acknowledgement(self, int packet_type, int packet_id, int reason_code=*)
    cdef bint send_publish(
        self, Message message, int qos, bint retain, bint dup, int packet_id, list identifiers,
        double now,
    ) except -1
    cdef str _use_alias(self, str topic, dict properties)


cpdef Message message_of(
    str topic, bytes payload, int qos, bint retain, dict properties, double now
)
