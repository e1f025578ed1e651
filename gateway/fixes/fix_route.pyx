"""Parses the fixes that nearly all devices send, from JSON to the log's record in one pass."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from gateway.fixes.fix_readers cimport read_location, read_position
from gateway.fixes.fix_record cimport (
    DEVICE_BYTES_MAX,
    FixFields,
    PAYLOAD_BYTES_MAX,
    RECORD_BYTES_MAX,
    make_id,
    write_record,
)
from gateway.fixes.json_scanner cimport Text, at_end
from gateway.fixes.known_fixes cimport FixKey, key_of, key_of_device

from gateway.formats.values import DAY_MS, YEAR_2000_MS

cdef int64_t LATEST_AHEAD_MS = DAY_MS
cdef int64_t EARLIEST_MS = YEAR_2000_MS


cdef int64_t wall_clock_ms() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t> now.tv_sec * 1000 + now.tv_nsec // 1_000_000


cdef class FixRoute:
    """The route of one device's payloads of one form.

    The form is FORM_OTHER, and nothing is parsed here, if the device's name cannot be stored as it
    is.
    """

    def __init__(self, str device, int form):
        if device is not None and is_plain(device) and len(device) <= DEVICE_BYTES_MAX:
            self._device = device.encode()
            self._device_key = key_of_device(self._device)
            self._user_size = device.index("/")
            self.form = form

    cdef bytes record(self, bytes payload, int64_t received, FixKey* key):
        """Return the record of a fix and set its key; None if the complete parser is needed."""
        cdef FixFields fields
        cdef char[RECORD_BYTES_MAX] out
        cdef const char* start = PyBytes_AS_STRING(payload)
        cdef const char* end
        if not self.form or PyBytes_GET_SIZE(payload) > PAYLOAD_BYTES_MAX:
            return None
        if self.form == FORM_POSITION:
            end = read_position(start, &fields)
        else:
            end = read_location(start, &fields)
        if end is NULL or not at_end(payload, end):
            return None
        cdef Py_ssize_t size = self.write(&fields, received, key, out)
        return PyBytes_FromStringAndSize(out, size) if size else None

    def record_of(self, bytes payload, int64_t received):
        """Return the record of a fix and its key (`record` for Python), or None."""
        cdef FixKey key
        record = self.record(payload, received, &key)
        return None if record is None else (record, key.key)

    @property
    def is_quick(self):
        """Return whether `record` parses the ordinary ones of these payloads."""
        return self.form != FORM_OTHER

    cdef Py_ssize_t write(
        self, FixFields* fields, int64_t received, FixKey* key, char* out
    ) except -1:
        """Write the record of parsed fields to `out`, at most RECORD_BYTES_MAX.

        Returns its size, or 0 where `record` returns None. `fields.identity` becomes the fix's id.
        """
        cdef bytes made
        cdef Text device
        if not EARLIEST_MS <= fields.time <= received + LATEST_AHEAD_MS:
            return 0
        device.start = PyBytes_AS_STRING(self._device)
        device.size = PyBytes_GET_SIZE(self._device)
        if not fields.is_unique:
            made = make_id(fields, &device)
            fields.identity.start = PyBytes_AS_STRING(made)
            fields.identity.size = PyBytes_GET_SIZE(made)
        key.key = key_of(self._device, fields.identity.start, fields.identity.size)
        key.device = self._device_key
        key.time = fields.time
        return write_record(fields, &device, self._user_size, received, out)


def is_plain(str name):
    """Tell whether a device's name is stored as it is: ASCII, and nothing that a name may not have."""
    user, _, device = name.partition("/")
    # What begins like a token may be one: `gateway.formats` looks at it more closely.
    return bool(user) and bool(device) and not device.startswith("wl_") and all(
        "!" <= character <= "~" and character not in '"\\/+#' for character in user + device
    )
