from libc.stdint cimport int64_t

from gateway.fixes.json_scanner cimport Text


cdef struct RecordHead:
    Text identity
    double lat
    double lon
    int64_t time
    int64_t received
    double altitude   # NaN where it is not known, as those below
    double accuracy
    double speed
    double course


cdef bint read_record(bytes value, RecordHead* head) except -1
