"""The fixes that nearly all devices send, from their JSON to the log's record in one pass.

What is read here is what `gateway.formats.positions` and `gateway.formats.owntracks` would make the
same fix of (a test compares them on everything); whatever is the least unusual is left to them.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.math cimport NAN
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from gateway.fixes.known_fixes cimport FixKey, key_of, key_of_device

from hashlib import blake2b

from gateway.formats.positions import UNIQUE_ID_CHARACTERS
from gateway.formats.values import DAY_MS, YEAR_2000_MS
from waylog.messages import fix_id

cdef extern from "Python.h":
    double PyOS_string_to_double(const char* text, char** end, object overflow) except? -1

cdef enum:
    PAYLOAD_BYTES_MAX = 1024  # of what is read here
    DEVICE_BYTES_MAX = 256
    ID_BYTES_MAX = 64
    ID_TIME_DIGITS = 12       # hexadecimal, in front of the digest
    DIGEST_BYTES = 6
    OTHERS_MAX = 32           # members that become attributes
    SPEED_KMH_MAX = 400
    NOT_GIVEN = -2

cdef int64_t LATEST_AHEAD_MS = DAY_MS
cdef int64_t EARLIEST_MS = YEAR_2000_MS
cdef Py_ssize_t UNIQUE_BYTES = UNIQUE_ID_CHARACTERS

# 10^0 to 10^22 are exact, and so is an integer of 15 digits: their quotient is the nearest double.
cdef double[23] POWERS_OF_TEN = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
]

# Speeds in whole km/h, which is what OwnTracks sends, as m/s.
cdef list SPEEDS = [repr(round(kmh / 3.6, 4)).encode() for kmh in range(SPEED_KMH_MAX + 1)]


cdef struct Value:
    Text text        # of a string without its quotes
    double number    # of a number
    char kind        # '"', '0' number, 't', 'f', 'n', '[' a list of strings and numbers
    bint whole       # a number without fraction


include "scanner.pxi"
include "positions.pxi"
include "records.pxi"


cdef int64_t wall_clock_ms() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t> now.tv_sec * 1000 + now.tv_nsec // 1_000_000


cdef inline char* put(char* out, const char* text, Py_ssize_t size) noexcept:
    memcpy(out, text, size)
    return out + size


cdef bytes id_of(int64_t time, const char* seed, Py_ssize_t size):
    """The id that waylog.messages.fix_id makes of the time and of what else tells fixes apart."""
    cdef char[ID_TIME_DIGITS + 2 * DIGEST_BYTES] written
    cdef int digit
    for digit in range(ID_TIME_DIGITS):
        written[ID_TIME_DIGITS - 1 - digit] = b"0123456789abcdef"[time & 15]
        time >>= 4
    cdef bytes digest = blake2b(seed[:size], digest_size=DIGEST_BYTES).digest()
    cdef const unsigned char* digested = <const unsigned char*> PyBytes_AS_STRING(digest)
    for digit in range(DIGEST_BYTES):
        written[ID_TIME_DIGITS + 2 * digit] = b"0123456789abcdef"[digested[digit] >> 4]
        written[ID_TIME_DIGITS + 2 * digit + 1] = b"0123456789abcdef"[digested[digit] & 15]
    return PyBytes_FromStringAndSize(written, sizeof(written))


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


cdef inline char* put_member(
    char* out, const char* name, Py_ssize_t size, const Text* value
) noexcept:
    """A member that may be missing or unknown; `name` with its comma, quotes and colon."""
    if value.start is NULL or value.size < 0:
        return out
    return put(put(out, name, size), value.start, value.size)


cdef char* put_repr(char* out, const Text* text, double value) except NULL:
    """repr(value) of a number that stands in JSON as `text`.

    A decimal of at most 15 digits is the shortest that stands for its double, which is what repr
    writes, once its last zeros are gone; and there are no exponents between 1e-4 and 1e15.
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


cdef class TopicRoute:
    """The way of messages that one client publishes to one topic.

    `device` is the device's name as it is stored, if it is known already; `parse` None means that
    nothing is for the log. What is `metered` is for the complete reader, which has it counted.
    """

    def __init__(
        self, str topic, bint allowed, parse, str device=None, int form=FORM_OTHER, rule=None,
        bint metered=False,
    ):
        self.topic = topic
        self.allowed = allowed
        self.parse = parse
        #: A gateway.mqtt.publishing.mapping.TopicRule that says which topic of the log is meant.
        self.rule = rule
        self._named = device if rule is not None else None
        if (
            device is not None and not metered
            and is_plain(device) and len(device) <= DEVICE_BYTES_MAX
        ):
            self._device = device.encode()
            self._device_key = key_of_device(self._device)
            self._user_size = device.index("/")
            self.form = form

    @property
    def user(self):
        """The user that the topic, or the rule for it, names."""
        return self.topic.split("/")[1] if self._named is None else self._named.split("/")[0]

    @property
    def device(self):
        """The device that the topic, or the rule for it, names."""
        return self.topic.split("/")[2] if self._named is None else self._named.split("/")[1]

    @property
    def is_quick(self):
        """Tell whether `record` reads what is ordinary of these messages."""
        return self.form != FORM_OTHER

    cdef bytes record(self, bytes payload, int64_t received, FixKey* key):
        """The record of a fix and its key for `known_fixes`; None to have it read by `parse`."""
        if not self.form or not self.allowed or PyBytes_GET_SIZE(payload) > PAYLOAD_BYTES_MAX:
            return None
        if self.form == FORM_POSITION:
            return self._position(payload, received, key)
        return self._owntracks(payload, received, key)

    def record_of(self, bytes payload, int64_t received):
        """The same for Python."""
        cdef FixKey key
        record = self.record(payload, received, &key)
        return None if record is None else (record, key.key)

    cdef bytes _position(self, bytes payload, int64_t received, FixKey* key):
        cdef Position position
        cdef const char* end = read_position(PyBytes_AS_STRING(payload), &position)
        if end is NULL or not at_end(payload, end):
            return None
        cdef char[RECORD_BYTES_MAX] out
        cdef Py_ssize_t size = self.write_position(&position, received, key, out)
        return PyBytes_FromStringAndSize(out, size) if size else None

    cdef Py_ssize_t write_position(
        self, Position* position, int64_t received, FixKey* key, char* out
    ) except -1:
        """Write the record of a position that was read, as `record`, at most RECORD_BYTES_MAX.

        Returns its size, 0 where `record` returns None. `position.identity.size` is that of its id.
        """
        cdef bytes made
        cdef Text* identity = &position.identity
        if not EARLIEST_MS <= position.time <= received + LATEST_AHEAD_MS:
            return 0
        if identity.start is NULL or identity.size < UNIQUE_BYTES:
            if identity.start is not NULL and not identity.size:
                return 0
            if identity.start is NULL:
                made = self._made_id(
                    position.time, &position.lat_text, position.lat, &position.lon_text,
                    position.lon, &position.trigger,
                )
            else:
                made = fix_id(
                    self._device.decode(), position.time, position.lat, position.lon,
                    string_of(&position.trigger), string_of(identity),
                ).encode()
            identity.start = PyBytes_AS_STRING(made)
            identity.size = PyBytes_GET_SIZE(made)
        elif identity.size > ID_BYTES_MAX:
            return 0
        key.key = key_of(self._device, identity.start, identity.size)
        key.device = self._device_key
        key.time = position.time
        cdef char* end = self._put_head(
            out, identity, &position.lat_text, &position.lon_text, position.time, received
        )
        end = put_member(end, b',"accuracy":', 12, &position.accuracy)
        end = put_member(end, b',"altitude":', 12, &position.altitude)
        end = put_member(end, b',"vertical_accuracy":', 21, &position.vertical)
        end = put_member(end, b',"speed":', 9, &position.speed)
        end = put_member(end, b',"course":', 10, &position.course)
        end = put_member(end, b',"battery":', 11, &position.battery)
        end = put_member(end, b',"charging":', 12, &position.charging)
        if position.trigger.start is not NULL:
            end = put(put_member(end, b',"trigger":"', 12, &position.trigger), b'"', 1)
        end = put(end, b',"source":"positions"}', 22)
        return end - out

    cdef bytes _made_id(
        self, int64_t time, const Text* lat_text, double lat, const Text* lon_text, double lon,
        const Text* trigger,
    ):
        """waylog.messages.fix_id of a fix that has no name of its own."""
        cdef char[DEVICE_BYTES_MAX + 96 + ID_BYTES_MAX] seed
        cdef char* end = put(seed, PyBytes_AS_STRING(self._device), PyBytes_GET_SIZE(self._device))
        end[0] = 0
        end = put_integer(end + 1, time)
        end[0] = 0
        end = put_repr(end + 1, lat_text, lat)
        end[0] = 0
        end = put_repr(end + 1, lon_text, lon)
        end[0] = 0
        end += 1
        if trigger.start is not NULL:
            end = put(end, trigger.start, trigger.size)
        return id_of(time, seed, end - seed)

    cdef char* _put_head(
        self, char* out, const Text* identity, const Text* lat, const Text* lon, int64_t time,
        int64_t received,
    ) noexcept:
        cdef const char* device = PyBytes_AS_STRING(self._device)
        out = put(put(out, b'{"id":"', 7), identity.start, identity.size)
        out = put(put(out, b'","device":"', 12), device, PyBytes_GET_SIZE(self._device))
        out = put(put(out, b'","user":"', 10), device, self._user_size)
        out = put(put(out, b'","lat":', 8), lat.start, lat.size)
        out = put(put(out, b',"lon":', 7), lon.start, lon.size)
        out = put_integer(put(out, b',"time":', 8), time)
        return put_integer(put(out, b',"received":', 12), received)

    cdef bytes _owntracks(self, bytes payload, int64_t received, FixKey* key):
        cdef Text lat_text, lon_text, identity, trigger, acc, alt, vac, cog, batt, tst, bs
        cdef Text[OTHERS_MAX] others  # with name, quotes and colon
        cdef int count = 0
        cdef double lat = 0, lon = 0
        cdef int64_t time = 0, speed = NOT_GIVEN
        cdef int charging = 0, index
        cdef bint is_location = False
        cdef Text name
        cdef Value value
        cdef Text* target
        cdef const char* start
        cdef const char* position = object_start(PyBytes_AS_STRING(payload))
        cdef bytes made, speed_text
        cdef char[DEVICE_BYTES_MAX + 32 + ID_BYTES_MAX] seed
        cdef char* end
        lat_text.start = lon_text.start = identity.start = trigger.start = acc.start = NULL
        alt.start = vac.start = cog.start = batt.start = tst.start = bs.start = NULL
        while position is not NULL and position[0] != b"}":
            start = position
            position = read_member(position, &name, &value)
            if position is NULL:
                return None
            target = NULL
            if is_named(&name, b"_type", 5):
                if is_location or value.kind != b'"' or not is_named(&value.text, b"location", 8):
                    return None
                is_location = True
                continue
            if is_named(&name, b"lat", 3):
                target = &lat_text
                lat = value.number
            elif is_named(&name, b"lon", 3):
                target = &lon_text
                lon = value.number
            elif is_named(&name, b"tst", 3):
                if not value.whole:
                    return None
                target = &tst
                time = <int64_t> value.number * 1000
            elif is_named(&name, b"_id", 3):
                target = &identity
            elif is_named(&name, b"t", 1):
                target = &trigger
            elif is_named(&name, b"acc", 3):
                target = &acc
            elif is_named(&name, b"alt", 3):
                target = &alt
            elif is_named(&name, b"vac", 3):
                target = &vac
            elif is_named(&name, b"vel", 3):
                if speed != NOT_GIVEN or value.kind != b"0" or not value.whole:
                    return None
                if value.number > SPEED_KMH_MAX:
                    return None
                speed = -1 if value.number < 0 else <int64_t> value.number
                continue
            elif is_named(&name, b"cog", 3):
                if value.number >= 360:
                    return None
                target = &cog
            elif is_named(&name, b"batt", 4):
                if value.number > 100:
                    return None
                target = &batt
            elif is_named(&name, b"bs", 2):
                if value.kind != b"0" or not value.whole or not 0 <= value.number <= 3:
                    return None
                target = &bs
                charging = <int> value.number
            elif is_left_out(&name):
                continue
            if target is NULL:
                if value.kind == b"n" or (value.kind == b'"' and not value.text.size):
                    continue
                if count == OTHERS_MAX or name.size == 0:
                    return None
                others[count].start = name.start
                others[count].size = value.text.start + value.text.size - name.start
                if value.kind == b'"':
                    others[count].size += 1
                count += 1
                continue
            if target.start is not NULL:
                return None
            if target is &identity or target is &trigger:
                if value.kind != b'"' or not 0 < value.text.size <= ID_BYTES_MAX:
                    return None
                if not is_alphanumeric(&value.text):
                    return None
            elif value.kind != b"0":
                return None
            target[0] = value.text
            if value.number < 0 and (
                target is &acc or target is &vac or target is &cog or target is &batt
            ):
                target.size = -1  # what apps write for "unknown"
        if position is NULL or not at_end(payload, position + 1):
            return None
        if (
            not is_location or lat_text.start is NULL or lon_text.start is NULL
            or tst.start is NULL or not -90 <= lat <= 90 or not -180 <= lon <= 180
            or not EARLIEST_MS <= time <= received + LATEST_AHEAD_MS
        ):
            return None
        if identity.start is NULL:
            made = self._made_id(time, &lat_text, lat, &lon_text, lon, &trigger)
        else:
            # waylog.messages.fix_id for an app's own message id.
            end = put(seed, PyBytes_AS_STRING(self._device), PyBytes_GET_SIZE(self._device))
            end[0] = 0
            end = put_integer(end + 1, time)
            end[0] = 0
            end = put(end + 1, identity.start, identity.size)
            made = id_of(time, seed, end - seed)
        identity.start = PyBytes_AS_STRING(made)
        identity.size = PyBytes_GET_SIZE(made)
        key.key = key_of(self._device, identity.start, identity.size)
        key.device = self._device_key
        key.time = time
        cdef char[RECORD_BYTES_MAX] out
        end = self._put_head(out, &identity, &lat_text, &lon_text, time, received)
        end = put_member(end, b',"accuracy":', 12, &acc)
        end = put_member(end, b',"altitude":', 12, &alt)
        end = put_member(end, b',"vertical_accuracy":', 21, &vac)
        if speed >= 0:
            speed_text = SPEEDS[speed]
            end = put(put(end, b',"speed":', 9), speed_text, PyBytes_GET_SIZE(speed_text))
        end = put_member(end, b',"course":', 10, &cog)
        end = put_member(end, b',"battery":', 11, &batt)
        if charging == 1:
            end = put(end, b',"charging":false', 17)
        elif charging:
            end = put(end, b',"charging":true', 16)
        if trigger.start is not NULL:
            end = put(put_member(end, b',"trigger":"', 12, &trigger), b'"', 1)
        end = put(end, b',"source":"owntracks"', 21)
        if count:
            end = put(end, b',"attributes":{', 15)
            for index in range(count):
                if index:
                    end = put(end, b",", 1)
                end = put(put(end, b'"', 1), others[index].start, others[index].size)
            end = put(end, b"}", 1)
        end = put(end, b"}", 1)
        return PyBytes_FromStringAndSize(out, end - out)


cdef bint is_left_out(const Text* name) noexcept:
    """Members of a location that are neither read nor kept as attributes."""
    return (
        is_named(name, b"topic", 5)
        or is_named(name, b"source", 6)
        or is_named(name, b"qos", 3)
        or is_named(name, b"retained", 8)
        or is_named(name, b"modeId", 6)
    )


cdef str string_of(const Text* text):
    return None if text.start is NULL else text.start[:text.size].decode("ascii")


def is_plain(str name):
    """Tell whether a device's name is stored as it is: ASCII, and nothing that a name may not have."""
    user, _, device = name.partition("/")
    # What begins like a token may be one: `gateway.formats` looks at it more closely.
    return bool(user) and bool(device) and not device.startswith("wl_") and all(
        "!" <= character <= "~" and character not in '"\\/+#' for character in user + device
    )
