"""Writes the record of a fix from fields that are JSON already, as the client sent them.

The members and their order are those of `waylog.messages.Fix`. `waylog.messages.encode` returns the
same record of the same fix, and `waylog.messages.fix_id` the same id; tests compare them. Decision
24 says what this second way saves.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.float cimport FLT_MAX
from libc.math cimport nextafter
from libc.stdint cimport int64_t
from libc.string cimport memchr, memcpy

from gateway.fixes.json_scanner cimport Text

from hashlib import blake2b

from waylog.messages import Fix

cdef enum:
    ID_TIME_DIGITS = 12  # hexadecimal, in front of the digest
    DIGEST_BYTES = 6

#: The members that every fix has, the optional ones in the order of the record, and the last two.
cdef tuple MEMBERS = Fix.__struct_fields__
cdef tuple HEAD = ("id", "device", "user", "lat", "lon", "time", "received")
cdef tuple OPTIONAL = MEMBERS[len(HEAD):MEMBERS.index("source")]
if MEMBERS != (*HEAD, *OPTIONAL, "source", "attributes") or len(OPTIONAL) > OPTIONAL_MAX:
    raise ImportError(f"records of fixes are not written as {MEMBERS}")

ACCURACY = OPTIONAL.index("accuracy")
ALTITUDE = OPTIONAL.index("altitude")
VERTICAL_ACCURACY = OPTIONAL.index("vertical_accuracy")
SPEED = OPTIONAL.index("speed")
COURSE = OPTIONAL.index("course")
BATTERY = OPTIONAL.index("battery")
CHARGING = OPTIONAL.index("charging")
TRIGGER = OPTIONAL.index("trigger")
OPTIONAL_COUNT = len(OPTIONAL)

# Bytes that live as long as the module: the structs below point into them.
cdef list NAMES = [name.encode() for name in OPTIONAL]
cdef list PREFIXES = [f',"{name}":'.encode() for name in OPTIONAL]
cdef Text[OPTIONAL_MAX] PREFIX_OF


cdef void fill_tables():
    cdef int index
    cdef bytes text
    for index in range(OPTIONAL_COUNT):
        text = NAMES[index]
        OPTIONAL_NAMES[index].start = PyBytes_AS_STRING(text)
        OPTIONAL_NAMES[index].size = PyBytes_GET_SIZE(text)
        text = PREFIXES[index]
        PREFIX_OF[index].start = PyBytes_AS_STRING(text)
        PREFIX_OF[index].size = PyBytes_GET_SIZE(text)
        LEAST[index] = 0
        MOST[index] = FLT_MAX
    LEAST[ALTITUDE] = -FLT_MAX
    MOST[COURSE] = nextafter(360, 0)
    MOST[BATTERY] = 100


fill_tables()


cdef void clear(FixFields* fields) noexcept:
    """Mark all fields as missing."""
    cdef int index
    fields.identity.start = fields.device.start = NULL
    fields.lat_text.start = fields.lon_text.start = NULL
    fields.time = 0
    fields.devices = fields.others_count = 0
    fields.is_unique = False
    for index in range(OPTIONAL_COUNT):
        fields.optional[index].start = NULL


cdef inline char* put(char* out, const char* text, Py_ssize_t size) noexcept:
    memcpy(out, text, size)
    return out + size


cdef inline char* put_text(char* out, const Text* text) noexcept:
    return put(out, text.start, text.size)


cdef char* put_integer(char* out, int64_t value) noexcept:
    cdef char[20] digits
    cdef int count = 0
    while True:
        digits[count] = 48 + value % 10
        value //= 10
        count += 1
        if not value:
            break
    while count:
        count -= 1
        out[0] = digits[count]
        out += 1
    return out


cdef char* put_repr(char* out, const Text* text, double value) except NULL:
    """Append repr(value) of a number whose JSON text is `text`.

    A decimal of at most 15 digits without trailing zeros is the shortest text of its double, which
    is what repr returns. Between 1e-4 and 1e15 repr uses no exponent.
    """
    cdef Py_ssize_t size = text.size
    cdef bint fraction = memchr(text.start, b".", size) is not NULL
    cdef bytes written
    if size > 15 or not 1e-4 <= (value if value >= 0 else -value) < 1e15:
        written = repr(value).encode()
        return put(out, PyBytes_AS_STRING(written), PyBytes_GET_SIZE(written))
    if not fraction:
        return put(put(out, text.start, size), b".0", 2)
    while text.start[size - 1] == b"0" and text.start[size - 2] != b".":
        size -= 1
    return put(out, text.start, size)


cdef bytes make_id(const FixFields* fields, const Text* device):
    """Return the id that waylog.messages.fix_id makes of these fields."""
    cdef char[DEVICE_BYTES_MAX + 96 + ID_BYTES_MAX] seed
    cdef char[ID_TIME_DIGITS + 2 * DIGEST_BYTES] written
    cdef const Text* trigger = &fields.optional[TRIGGER]
    cdef int64_t time = fields.time
    cdef int digit
    cdef char* end = put_text(seed, device)
    end[0] = 0
    end = put_integer(end + 1, time)
    end[0] = 0
    if fields.identity.start is not NULL:
        end = put_text(end + 1, &fields.identity)
    else:
        end = put_repr(end + 1, &fields.lat_text, fields.lat)
        end[0] = 0
        end = put_repr(end + 1, &fields.lon_text, fields.lon)
        end[0] = 0
        end += 1
        if trigger.start is not NULL:
            end = put(end, trigger.start + 1, trigger.size - 2)
    cdef bytes digest = blake2b(seed[:end - seed], digest_size=DIGEST_BYTES).digest()
    cdef const unsigned char* digested = <const unsigned char*> PyBytes_AS_STRING(digest)
    for digit in range(ID_TIME_DIGITS):
        written[ID_TIME_DIGITS - 1 - digit] = b"0123456789abcdef"[time & 15]
        time >>= 4
    for digit in range(DIGEST_BYTES):
        written[ID_TIME_DIGITS + 2 * digit] = b"0123456789abcdef"[digested[digit] >> 4]
        written[ID_TIME_DIGITS + 2 * digit + 1] = b"0123456789abcdef"[digested[digit] & 15]
    return PyBytes_FromStringAndSize(written, sizeof(written))


cdef Py_ssize_t write_record(
    const FixFields* fields, const Text* device, Py_ssize_t user_size, int64_t received, char* out
) noexcept:
    """Write the record to `out`, at most RECORD_BYTES_MAX; return its size.

    `fields.identity` is the fix's id. `user_size` is that of the user in front of the device's
    slash.
    """
    cdef int index
    cdef bint is_first = True
    cdef const Text* value
    cdef char* end = put_text(put(out, b'{"id":"', 7), &fields.identity)
    end = put_text(put(end, b'","device":"', 12), device)
    end = put(put(end, b'","user":"', 10), device.start, user_size)
    end = put_text(put(end, b'","lat":', 8), &fields.lat_text)
    end = put_text(put(end, b',"lon":', 7), &fields.lon_text)
    end = put_integer(put(end, b',"time":', 8), fields.time)
    end = put_integer(put(end, b',"received":', 12), received)
    for index in range(OPTIONAL_COUNT):
        value = &fields.optional[index]
        if value.start is not NULL and value.size >= 0:
            end = put_text(put_text(end, &PREFIX_OF[index]), value)
    end = put_text(put(end, b',"source":"', 11), &fields.source)
    end = put(end, b'"', 1)
    for index in range(fields.others_count):
        value = &fields.others[index]
        if value.size < 0:
            continue
        if is_first:
            end = put(end, b',"attributes":{"', 16)
        else:
            end = put(end, b',"', 2)
        end = put_text(end, value)
        is_first = False
    if not is_first:
        end = put(end, b"}", 1)
    return put(end, b"}", 1) - out
