from libc.stdint cimport int64_t, uint64_t

from gateway.fixes.known_fixes cimport FixKey, KnownFixes
from waylog.kafka.record_batch cimport Delivery, RecordAccumulator


cdef class Receipt(Delivery):
    cdef bint _done
    cdef object _error
    cdef object _callbacks

    cpdef bint done(self)
    cpdef exception(self)
    cpdef add_done_callback(self, callback)
    cpdef finish(self, error)


cdef class FixReceipt(Receipt):
    cdef FixAppender _appender
    cdef int64_t _key
    cdef str _source
    cdef double _started


cdef class BatchReceipt(Receipt):
    cdef Py_ssize_t _missing
    cdef object _first_error

    cdef int count(self, error) except -1


cdef class FixesReceipt(BatchReceipt):
    cdef FixAppender _appender
    cdef list _keys
    cdef str _source
    cdef double _started
    cdef Py_ssize_t _failed


cdef class FixAppender:
    cdef readonly KnownFixes known_fixes
    cdef public bint doubts_repeats
    cdef public bint repeated
    cdef public bint doubts_late
    cdef public int64_t sender
    cdef readonly object metrics
    cdef object _send
    cdef RecordAccumulator _accumulator
    cdef dict _in_flight
    cdef dict _erased
    cdef Receipt _stored
    cdef char[55] _trace_head
    cdef uint64_t _traces
    cdef dict _fixes
    cdef list _latency_counts

    cdef Receipt known(self, const FixKey* key)
    cdef bint is_in_doubt(self, const FixKey* key) except -1
    cdef bytes start_trace(self)
    cdef int _append_value(
        self, bytes device, const char* value, Py_ssize_t size, bytes traceparent, Receipt receipt
    ) except -1
    cdef Receipt append_new(
        self, int64_t key, bytes device, const char* value, Py_ssize_t size, str source,
        bytes traceparent,
    )
    cdef int _answered(self, FixReceipt receipt, error) except -1
    cdef int _all_answered(self, FixesReceipt receipt) except -1
    cdef int _measured(self, str source, double started, Py_ssize_t count) except -1
