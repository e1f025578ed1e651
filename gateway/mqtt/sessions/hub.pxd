from gateway.mqtt.packets.topics cimport ElsewhereInterest, SubscriptionTree
from gateway.mqtt.packets.message cimport Message
from gateway.mqtt.sessions.session cimport Session
from gateway.mqtt.sessions.user_turns cimport UserQueues


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
    cdef readonly object left_out
    cdef public int steps_left      # queued messages that this turn of the loop may still send
    cdef readonly UserQueues work   # iterators: work that takes more than one turn of the loop
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
