"""Parsers of the two JSON forms that nearly all devices send: our own, and OwnTracks' locations.

`gateway.formats.positions` and `gateway.formats.owntracks` are the complete parsers. They make the
same fixes of what is parsed here; a test compares them. Each function returns the end of the object,
or NULL for anything unusual, which is left to the complete parser. The time's range is not checked.
"""

from libc.stdint cimport int64_t
from libc.string cimport memcmp

from gateway.fixes.fix_record cimport (
    ALTITUDE,
    ACCURACY,
    BATTERY,
    CHARGING,
    COURSE,
    FixFields,
    ID_BYTES_MAX,
    LEAST,
    MOST,
    OPTIONAL_COUNT,
    OPTIONAL_NAMES,
    OTHERS_MAX,
    PAYLOAD_BYTES_MAX,
    SPEED,
    TRIGGER,
    VERTICAL_ACCURACY,
    clear,
)
from gateway.fixes.json_scanner cimport (
    Text,
    Value,
    has_space,
    is_alphanumeric,
    is_named,
    is_same,
    object_start,
    read_member,
)

from gateway.formats.positions import UNIQUE_ID_CHARACTERS

cdef enum:
    SPEED_KMH_MAX = 400

cdef double SECONDS_MAX = 1e12  # whose milliseconds are still an int64_t
cdef Py_ssize_t UNIQUE_BYTES = UNIQUE_ID_CHARACTERS

# Speeds in whole km/h, which is what OwnTracks sends, as m/s.
cdef list SPEEDS = [repr(round(kmh / 3.6, 4)).encode() for kmh in range(SPEED_KMH_MAX + 1)]


cdef const char* read_position(const char* start, FixFields* fields) except? NULL:
    """Read an object of our own JSON, of at most PAYLOAD_BYTES_MAX."""
    cdef Text name
    cdef Value value
    cdef int index
    cdef const char* position = object_start(start)
    clear(fields)
    fields.source.start = b"positions"
    fields.source.size = 9
    while position is not NULL and position[0] != b"}":
        position = read_member(position, &name, &value)
        if position is NULL:
            return NULL
        if is_named(&name, b"lat", 3):
            if not take_coordinate(&fields.lat_text, &fields.lat, &value, 90):
                return NULL
        elif is_named(&name, b"lon", 3):
            if not take_coordinate(&fields.lon_text, &fields.lon, &value, 180):
                return NULL
        elif is_named(&name, b"time", 4):
            if value.kind != b"0" or not value.whole or fields.time:
                return NULL
            fields.time = <int64_t> value.number
        elif is_named(&name, b"id", 2):
            if (
                fields.identity.start is not NULL or value.kind != b'"' or has_space(&value.text)
                or not 0 < value.text.size <= ID_BYTES_MAX
            ):
                return NULL
            fields.identity = value.text
            fields.is_unique = value.text.size >= UNIQUE_BYTES
        elif is_named(&name, b"device", 6):
            if value.kind != b'"':
                return NULL
            fields.device = value.text
            fields.devices += 1
        else:
            for index in range(OPTIONAL_COUNT):
                if is_same(&name, &OPTIONAL_NAMES[index]):
                    break
            else:
                return NULL
            if index == TRIGGER:
                if not take_trigger(&fields.optional[index], &value):
                    return NULL
            elif fields.optional[index].start is not NULL:
                return NULL
            elif index == CHARGING:
                if value.kind != b"t" and value.kind != b"f":
                    return NULL
                fields.optional[index] = value.text
            elif (
                value.kind != b"0" or not LEAST[index] <= value.number <= MOST[index]
                or is_negative_zero(&value)
            ):
                return NULL
            else:
                fields.optional[index] = value.text
    if (
        position is NULL or position - start >= PAYLOAD_BYTES_MAX
        or fields.lat_text.start is NULL or fields.lon_text.start is NULL
    ):
        return NULL
    return position + 1


cdef const char* read_location(const char* start, FixFields* fields) except? NULL:
    """Read a message `location` of OwnTracks, of at most PAYLOAD_BYTES_MAX."""
    cdef Text name
    cdef Value value
    cdef int index
    cdef bint is_location = False
    cdef const char* position = object_start(start)
    clear(fields)
    fields.source.start = b"owntracks"
    fields.source.size = 9
    while position is not NULL and position[0] != b"}":
        position = read_member(position, &name, &value)
        if position is NULL:
            return NULL
        if is_named(&name, b"_type", 5):
            if is_location or value.kind != b'"' or not is_named(&value.text, b"location", 8):
                return NULL
            is_location = True
        elif is_named(&name, b"lat", 3):
            if not take_coordinate(&fields.lat_text, &fields.lat, &value, 90):
                return NULL
        elif is_named(&name, b"lon", 3):
            if not take_coordinate(&fields.lon_text, &fields.lon, &value, 180):
                return NULL
        elif is_named(&name, b"tst", 3):
            if (
                value.kind != b"0" or not value.whole or fields.time
                or value.number > SECONDS_MAX
            ):
                return NULL
            fields.time = <int64_t> value.number * 1000
        elif is_named(&name, b"_id", 3):
            if (
                fields.identity.start is not NULL or value.kind != b'"'
                or not 0 < value.text.size <= ID_BYTES_MAX or not is_alphanumeric(&value.text)
            ):
                return NULL
            fields.identity = value.text
        elif is_named(&name, b"t", 1):
            if not take_trigger(&fields.optional[TRIGGER], &value):
                return NULL
        elif is_named(&name, b"vel", 3):
            if not take_speed(&fields.optional[SPEED], &value):
                return NULL
        elif is_named(&name, b"bs", 2):
            if not take_battery_state(&fields.optional[CHARGING], &value):
                return NULL
        elif not is_left_out(&name):
            index = optional_member(&name)
            if index < 0:
                if not take_other(fields, &name, &value):
                    return NULL
            elif not take_owntracks_number(&fields.optional[index], &value, index):
                return NULL
    if (
        position is NULL or position - start >= PAYLOAD_BYTES_MAX or not is_location
        or fields.lat_text.start is NULL or fields.lon_text.start is NULL or not fields.time
    ):
        return NULL
    return position + 1


cdef inline bint is_negative_zero(const Value* value) noexcept:
    # -0.0 == 0.0, but a complete reader may write it otherwise.
    return value.number == 0 and value.text.start[0] == b"-"


cdef bint take_coordinate(Text* text, double* number, const Value* value, double most) noexcept:
    """Take a latitude or a longitude; return False for one that stands twice or is out of range."""
    if text.start is not NULL or value.kind != b"0" or not -most <= value.number <= most:
        return False
    text[0] = value.text
    number[0] = value.number
    return True


cdef bint take_trigger(Text* text, const Value* value) noexcept:
    if (
        text.start is not NULL or value.kind != b'"' or not 0 < value.text.size <= ID_BYTES_MAX
        or not is_alphanumeric(&value.text)
    ):
        return False
    # With its quotes, as it stands in the record.
    text.start = value.text.start - 1
    text.size = value.text.size + 2
    return True


cdef bint take_speed(Text* text, const Value* value):
    """Take a speed in whole km/h as m/s; what is negative is unknown."""
    cdef bytes speed
    if (
        text.start is not NULL or value.kind != b"0" or not value.whole
        or value.number > SPEED_KMH_MAX
    ):
        return False
    text[0] = value.text
    if value.number < 0:
        text.size = -1
        return True
    speed = SPEEDS[<int> value.number]
    text.start = speed  # which the list keeps
    text.size = len(speed)
    return True


cdef bint take_battery_state(Text* text, const Value* value) noexcept:
    """Take `bs`: 0 unknown, 1 unplugged, 2 charging, 3 full."""
    if (
        text.start is not NULL or value.kind != b"0" or not value.whole
        or not 0 <= value.number <= 3
    ):
        return False
    if value.number == 0:
        text[0] = value.text
        text.size = -1
    elif value.number == 1:
        text.start = b"false"
        text.size = 5
    else:
        text.start = b"true"
        text.size = 4
    return True


cdef bint take_owntracks_number(Text* text, const Value* value, int index) noexcept:
    """Take a number; one below its range is what apps write for "unknown"."""
    if (
        text.start is not NULL or value.kind != b"0" or value.number > MOST[index]
        or (is_negative_zero(value) and index != ALTITUDE)
    ):
        return False
    text[0] = value.text
    if value.number < LEAST[index]:
        text.size = -1
    return True


cdef bint take_other(FixFields* fields, const Text* name, const Value* value) noexcept:
    """Take a member as an attribute, unless it is empty; False for a name that stands twice."""
    cdef int index
    cdef Text* other
    for index in range(fields.others_count):
        other = &fields.others[index]
        # It stands before `name`, so there are more bytes behind it than `name` has.
        if other.start[name.size] == b'"' and is_named(name, other.start, name.size):
            return False
    if name.size == 0 or fields.others_count == OTHERS_MAX or may_have_token(&value.text):
        return False
    other = &fields.others[fields.others_count]
    other.start = name.start
    if value.kind == b"n" or (value.kind == b'"' and not value.text.size):
        other.size = -1
    else:
        other.size = value.text.start + value.text.size - name.start
        if value.kind == b'"':
            other.size += 1
    fields.others_count += 1
    return True


cdef bint may_have_token(const Text* text) noexcept:
    """Tell whether there may be a token of the platform in a text: a complete parser replaces it."""
    cdef Py_ssize_t index
    for index in range(text.size - 2):
        if memcmp(text.start + index, b"wl_", 3) == 0:
            return True
    return False


cdef int optional_member(const Text* name) noexcept:
    if is_named(name, b"acc", 3):
        return ACCURACY
    if is_named(name, b"alt", 3):
        return ALTITUDE
    if is_named(name, b"vac", 3):
        return VERTICAL_ACCURACY
    if is_named(name, b"cog", 3):
        return COURSE
    if is_named(name, b"batt", 4):
        return BATTERY
    return -1


cdef bint is_left_out(const Text* name) noexcept:
    """Tell whether a member is neither read nor kept as an attribute."""
    return (
        is_named(name, b"topic", 5)
        or is_named(name, b"source", 6)
        or is_named(name, b"qos", 3)
        or is_named(name, b"retained", 8)
        or is_named(name, b"modeId", 6)
        or is_named(name, b"token", 5)
        or is_named(name, b"api_key", 7)
        or is_named(name, b"access_token", 12)
        or is_named(name, b"password", 8)
    )
