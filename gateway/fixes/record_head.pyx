"""The parts of a record of topic `location` that the gateway's views need, read in one pass."""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.math cimport NAN
from libc.stdint cimport int64_t

from gateway.fixes.json_scanner cimport (
    Text,
    Value,
    is_named,
    object_start,
    read_member,
    stands_here,
)


cdef bint read_record(bytes value, RecordHead* head) except -1:
    """Parse what views need of a record; return False if it needs a complete parser."""
    cdef Text name
    cdef Value member
    cdef int found = 0
    cdef const char* position = object_start(PyBytes_AS_STRING(value))
    head.altitude = head.accuracy = head.speed = head.course = NAN
    head.identity.start = NULL
    while position is not NULL and position[0] != b"}":
        if stands_here(position, b'"attributes":{', 14):
            break  # nearly always last; a writer that puts members after it puts these before it
        position = read_member(position, &name, &member)
        if position is NULL:
            return False
        if is_named(&name, b"id", 2):
            if member.kind != b'"':
                return False
            head.identity = member.text
        elif is_named(&name, b"lat", 3):
            head.lat = member.number
            found |= 1 if member.kind == b"0" else 0
        elif is_named(&name, b"lon", 3):
            head.lon = member.number
            found |= 2 if member.kind == b"0" else 0
        elif is_named(&name, b"time", 4):
            head.time = <int64_t> member.number
            found |= 4 if member.kind == b"0" and member.whole else 0
        elif is_named(&name, b"received", 8):
            head.received = <int64_t> member.number
            found |= 8 if member.kind == b"0" and member.whole else 0
        elif member.kind == b"0":
            if is_named(&name, b"altitude", 8):
                head.altitude = member.number
            elif is_named(&name, b"accuracy", 8):
                head.accuracy = member.number
            elif is_named(&name, b"speed", 5):
                head.speed = member.number
            elif is_named(&name, b"course", 6):
                head.course = member.number
    return (
        position is not NULL and found == 15 and head.identity.start is not NULL
        and -90 <= head.lat <= 90 and -180 <= head.lon <= 180
    )
