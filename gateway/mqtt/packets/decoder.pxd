from libc.stdint cimport uint8_t, uint32_t

from gateway.mqtt.packets.packet_fields cimport Reader


cdef class Publish:
    cdef public str topic
    cdef public bytes payload
    cdef public int qos
    cdef public bint retain
    cdef public bint dup
    cdef public int packet_id
    cdef public int reason_code
    cdef public dict properties
    cdef Publish following      # next packet of the same connection, while both wait
    cdef bint repetition        # whether an earlier connection of the session brought it, too


cdef class Acknowledgement:
    cdef public int packet_type
    cdef public int packet_id
    cdef public int reason_code
    cdef public dict properties


cdef class Decoder:
    cdef readonly int version
    cdef public uint32_t packet_bytes_max
    cdef bytes _data            # the bytes received last, or None
    cdef bytearray _partial     # an incomplete packet and the bytes after it, or None
    cdef Py_ssize_t _position   # in the one of the two that is not None
    cdef Py_ssize_t _needed     # size of the incomplete packet; 0: not known yet
    cdef str _topic             # of the last PUBLISH, reused as devices repeat themselves
    cdef bint _failed

    cdef Py_ssize_t left(self)
    cpdef receive_data(self, bytes data)
    cpdef next_packet(self)
    cdef object _parse(self, uint8_t first, Reader* body)
    cdef Publish _publish(self, uint8_t first, Reader* body)
    cdef object _connect(self, Reader* body)
    cdef object _acknowledgement(self, int packet_type, Reader* body)
    cdef object _subscribe(self, Reader* body)
    cdef object _unsubscribe(self, Reader* body)
    cdef tuple _reason(self, int packet_type, Reader* body)
    cdef int _check_first_byte(self, uint8_t first) except -1
