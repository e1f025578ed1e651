from gateway.mqtt.packets.decoder cimport Publish
from gateway.mqtt.sessions.link cimport Link
from gateway.mqtt.sessions.memory_pool cimport Account
from gateway.mqtt.packets.message cimport Delivery, Message


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
