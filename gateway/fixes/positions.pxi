# Reads positions in our own JSON; a part of fixes.pyx.


cdef const char* read_position(const char* start, Position* read) except? NULL:
    """Read an object of our own JSON, of at most PAYLOAD_BYTES_MAX; returns what follows it.

    NULL for everything that is not as it is stored, the time's range excepted.
    """
    cdef Text name
    cdef Value value
    cdef Text* target
    cdef const char* position = object_start(start)
    read.identity.start = read.accuracy.start = read.altitude.start = read.vertical.start = NULL
    read.speed.start = read.course.start = read.battery.start = read.charging.start = NULL
    read.trigger.start = read.lat_text.start = read.lon_text.start = read.device.start = NULL
    read.time = 0
    read.devices = 0
    while position is not NULL and position[0] != b"}":
        position = read_member(position, &name, &value)
        if position is NULL:
            return NULL
        if is_named(&name, b"lat", 3):
            target = &read.lat_text
            read.lat = value.number
        elif is_named(&name, b"lon", 3):
            target = &read.lon_text
            read.lon = value.number
        elif is_named(&name, b"time", 4):
            if value.kind != b"0" or not value.whole or read.time:
                return NULL
            read.time = <int64_t> value.number
            continue
        elif is_named(&name, b"id", 2):
            target = &read.identity
        elif is_named(&name, b"trigger", 7):
            if not is_alphanumeric(&value.text):
                return NULL
            target = &read.trigger
        elif is_named(&name, b"accuracy", 8):
            target = &read.accuracy
        elif is_named(&name, b"altitude", 8):
            target = &read.altitude
        elif is_named(&name, b"vertical_accuracy", 17):
            target = &read.vertical
        elif is_named(&name, b"speed", 5):
            target = &read.speed
        elif is_named(&name, b"course", 6):
            if value.number >= 360:
                return NULL
            target = &read.course
        elif is_named(&name, b"battery", 7):
            if value.number > 100:
                return NULL
            target = &read.battery
        elif is_named(&name, b"charging", 8):
            target = &read.charging
        elif is_named(&name, b"device", 6):
            if value.kind != b'"':
                return NULL
            read.device = value.text
            read.devices += 1
            continue
        else:
            return NULL
        if target.start is not NULL:
            return NULL  # a member that stands twice
        if target is &read.identity or target is &read.trigger:
            if value.kind != b'"' or has_space(&value.text):
                return NULL
        elif target is &read.charging:
            if value.kind != b"t" and value.kind != b"f":
                return NULL
        elif value.kind != b"0":
            return NULL
        elif value.number < 0 and not (
            target is &read.lat_text or target is &read.lon_text or target is &read.altitude
        ):
            return NULL
        target[0] = value.text
    if (
        position is NULL or position - start >= PAYLOAD_BYTES_MAX
        or read.lat_text.start is NULL or read.lon_text.start is NULL
        or not -90 <= read.lat <= 90 or not -180 <= read.lon <= 180
        or (read.trigger.start is not NULL and not 0 < read.trigger.size <= ID_BYTES_MAX)
    ):
        return NULL
    return position + 1
