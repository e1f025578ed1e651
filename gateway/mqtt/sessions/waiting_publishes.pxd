"""The publishes of all clients that wait for the log, and their acknowledgement when it answers."""

from gateway.mqtt.packets.decoder cimport Publish
from gateway.mqtt.sessions.hub cimport Hub
from gateway.mqtt.sessions.link cimport Link
from gateway.mqtt.sessions.memory_pool cimport Account


cdef class WaitingPublishes:
    cdef Hub _router
    cdef object _time               # callable: s
    cdef object _wake
    cdef readonly int count
    cdef Py_ssize_t _bytes          # of their payloads
    cdef readonly bint is_full      # too much waits: no connection is read
    cdef readonly bint is_draining
    cdef dict _stalled              # links that are not read because of `is_full`
    cdef int _count_max
    cdef Py_ssize_t _bytes_max

    cdef int add(self, Link connection, Publish packet, int code, completion) except -1
    cdef int _stored(self, PendingPublish pending, completion) except -1
    cdef bint holds_up(self, Link connection) noexcept
    cdef int remember(self, Link connection) except -1
    cdef int _give_back(self, Account account, Publish packet) except -1
    cdef int _relieve(self) except -1


cdef class PendingPublish:
    cdef WaitingPublishes publishes
    cdef Link connection
    cdef Publish packet
    cdef int code
