from libc.stdint cimport int64_t

from gateway.fixes.known_fixes cimport FixKey

cpdef enum:
    FORM_OTHER = 0
    FORM_POSITION = 1
    FORM_OWNTRACKS = 2


cdef enum:
    RECORD_BYTES_MAX = 4096  # always enough for payload and device, with all names of members


cdef struct Text:
    const char* start  # NULL: not there
    Py_ssize_t size


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


cdef struct Position:
    Text identity
    Text device       # the last, if there are several
    Text lat_text
    Text lon_text
    Text accuracy
    Text altitude
    Text vertical
    Text speed
    Text course
    Text battery
    Text charging
    Text trigger
    double lat
    double lon
    int64_t time
    int devices       # members that name a device


cdef bint read_record(bytes value, RecordHead* head) except -1


cdef const char* read_position(const char* start, Position* read) except? NULL


cdef class TopicRoute:
    cdef readonly str topic
    cdef readonly bint allowed
    cdef readonly object parse
    cdef readonly object rule
    cdef str _named
    cdef bytes _device
    cdef int64_t _device_key
    cdef Py_ssize_t _user_size
    cdef int form

    cdef bytes record(self, bytes payload, int64_t received, FixKey* key)
    cdef bytes _position(self, bytes payload, int64_t received, FixKey* key)
    cdef Py_ssize_t write_position(
        self, Position* position, int64_t received, FixKey* key, char* out
    ) except -1
    cdef bytes _owntracks(self, bytes payload, int64_t received, FixKey* key)
    cdef bytes _made_id(
        self, int64_t time, const Text* lat_text, double lat, const Text* lon_text, double lon,
        const Text* trigger,
    )
    cdef char* _put_head(
        self, char* out, const Text* identity, const Text* lat, const Text* lon, int64_t time,
        int64_t received,
    ) noexcept


cdef int64_t wall_clock_ms() noexcept
