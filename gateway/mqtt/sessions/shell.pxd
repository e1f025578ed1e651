"""The part between the event loop and the state machines that runs for every message."""

from gateway.mqtt.packets.decoder cimport Publish
from gateway.mqtt.publishing.topic_route cimport TopicRoute
from gateway.mqtt.sessions.hub cimport Hub
from gateway.mqtt.sessions.link cimport Link
from gateway.mqtt.sessions.user_turns cimport UserQueues, UserTurns
from gateway.mqtt.sessions.waiting_publishes cimport WaitingPublishes
from gateway.fixes.receipts cimport FixAppender, Receipt


cdef class Shell:
    cdef readonly Hub router
    cdef readonly object time          # callable: s
    cdef readonly object ingest
    cdef FixAppender _appender         # None: the submitter takes fixes only one by one
    cdef double _sampled               # when a fix last passed the interceptors that record calls
    cdef long _unrecorded              # fixes since then
    cdef long long _publishers         # connections that have published something
    cdef readonly WaitingPublishes publishes
    cdef readonly object held          # HeldPublishes
    cdef UserTurns _turns
    cdef UserQueues _unflushed         # connections for which the last turn had no time left
    cdef bint _was_read                # packets were handled since the last flush
    cdef bint _flush_scheduled
    cdef object _call_soon

    cpdef wake(self)
    cdef int _publish(self, Link connection, Publish packet, double now) except -1
    cdef Receipt _append(self, TopicRoute route, bytes payload, double now)
    cdef int _flush_changed(self, double now) except -1
    cdef int _read_waiting(self) except -1
    cdef int _work(self, double until) except -1


cdef class MqttProtocol:
    cdef readonly object connection
    cdef readonly Shell server
    cdef public object transport
    cdef public str address     # of the client; None: that of the transport
    cdef bint waits             # it has used up the time for it in this turn of the loop
    cdef bint _queued           # it waits for a turn of its user
    cdef object _gone_since     # time of the server at which its client was found to have gone
    cdef public bint counted    # among the connections of its address
    cdef public str pool_party  # party charged in the server's pool; None: it has no place there
    cdef object _incomplete     # ChargedBytes of an incomplete packet, or None
    cdef object _unread         # ChargedBytes that were written and not read, or None

    cpdef process(self, double now)
    cdef int _read(self, double now) except -1
    cdef int _adapt_reading(self) except -1
    cdef int _count_incomplete(self, Py_ssize_t left) except -1
    cdef int _count_unread(self, Py_ssize_t size) except -1
    cdef str _party(self)
