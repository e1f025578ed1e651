cdef class Message:
    cdef public str topic
    cdef public bytes payload
    cdef public int qos
    cdef public bint retain
    cdef public bint latest_only
    cdef public str owner       # user in whose share a retained message counts
    cdef public dict properties
    cdef public object expires_at
    cdef public bytes card_parts

    cpdef bint expired(self, double now)


cdef class Delivery:
    cdef public Message message
    cdef public int qos
    cdef public bint retain
    cdef public bint dup
    cdef public bint released
    cdef public list identifiers
    cdef Py_ssize_t held            # bytes charged to the user's account


cpdef Message message_of(
    str topic, bytes payload, int qos, bint retain, dict properties, double now
)
