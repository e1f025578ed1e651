from libc.stdint cimport int64_t

from gateway.fixes.json_scanner cimport Text

cdef enum:
    PAYLOAD_BYTES_MAX = 1024  # of what is read into FixFields
    DEVICE_BYTES_MAX = 256
    ID_BYTES_MAX = 64
    OPTIONAL_MAX = 16
    OTHERS_MAX = 32           # members that become attributes
    RECORD_BYTES_MAX = 4096   # always enough for payload and device, with all names of members


cdef struct FixFields:
    Text identity             # the client's own name for the fix
    bint is_unique            # that name is the fix's id
    Text device               # as the payload names it; the last, if it names several
    int devices
    Text lat_text
    Text lon_text
    double lat
    double lon
    int64_t time
    Text[OPTIONAL_MAX] optional  # as JSON, by the constants below; a negative size: not known
    Text source
    Text[OTHERS_MAX] others   # with name, quotes and colon; a negative size: empty
    int others_count


# Members of FixFields.optional.
cdef int ACCURACY, ALTITUDE, VERTICAL_ACCURACY, SPEED, COURSE, BATTERY, CHARGING, TRIGGER
cdef int OPTIONAL_COUNT
# The names of these members in a record, and the range of their numbers.
cdef Text[OPTIONAL_MAX] OPTIONAL_NAMES
cdef double[OPTIONAL_MAX] LEAST
cdef double[OPTIONAL_MAX] MOST


cdef void clear(FixFields* fields) noexcept


cdef bytes make_id(const FixFields* fields, const Text* device)


cdef Py_ssize_t write_record(
    const FixFields* fields, const Text* device, Py_ssize_t user_size, int64_t received, char* out
) noexcept
