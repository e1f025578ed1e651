from libc.stdint cimport uint32_t

from gateway.mqtt.packets.decoder cimport Acknowledgement, Decoder, Publish
from gateway.mqtt.sessions.hub cimport Hub
from gateway.mqtt.sessions.memory_pool cimport Account
from gateway.mqtt.packets.message cimport Message
from gateway.mqtt.sessions.user_turns cimport UserTurn
from gateway.mqtt.sessions.session cimport Session


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
    cdef public UserTurn turn       # None before the client is accepted
    cdef public str counted_for     # user in whose number of connections this one counts
    cdef dict _aliases_out
    cdef public object paused_since
    # Timer, task or None (it is due), and packet; no other packet is handled before.
    cdef public object held
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
    cpdef change(self)
    cpdef done(self)
    cdef int go_on(self) except -1
    cpdef bytes take_outgoing(self, double now)
    cpdef send_acknowledgement(self, int packet_type, int packet_id, int reason_code=*)
    cdef bint send_publish(
        self, Message message, int qos, bint retain, bint dup, int packet_id, list identifiers,
        double now,
    ) except -1
    cdef bytes _encode(
        self, Message message, int qos, bint retain, bint dup, int packet_id, list identifiers,
        double now,
    )
    cdef str _use_alias(self, str topic, dict properties)
