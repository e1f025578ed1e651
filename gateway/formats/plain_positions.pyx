"""Bodies of our own JSON that have nothing unusual about them, straight to the log's records.

`gateway.formats.positions` reads everything; of what is read here it makes the same records, which
a test compares.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t

from gateway.mqtt.fixes cimport FORM_POSITION, Position, TopicRoute, read_position

from gateway.formats import BATCH_ITEMS_MAX
from gateway.formats.positions import DEFAULT_DEVICE, UNIQUE_ID_CHARACTERS

# Key for gateway.known_fixes, device, record, and whether its id is the client's own.
Record = tuple

cdef enum:
    ROUTES_MAX = 2000  # devices of one sender that are remembered
    ID_START = 7       # of a record: {"id":"

cdef Py_ssize_t UNIQUE_BYTES = UNIQUE_ID_CHARACTERS
cdef Py_ssize_t ITEMS_MAX = BATCH_ITEMS_MAX


cdef inline const char* after_space(const char* at) noexcept:
    # The zero behind the bytes is no space.
    while at[0] == b" " or at[0] == b"\n" or at[0] == b"\r" or at[0] == b"\t":
        at += 1
    return at


cdef class PlainPositions:
    """Reads for one sender: a user, and its device where that is named outside of the body."""

    cdef str _user
    cdef str _device
    cdef dict _routes

    def __init__(self, str user, str device=None):
        self._user = user
        self._device = device
        self._routes = {}

    def records(self, bytes body, int64_t received):
        """Key, device and record of each position; None to have the body read by `positions`."""
        cdef list records = []
        cdef const char* at = after_space(PyBytes_AS_STRING(body))
        cdef const char* end = PyBytes_AS_STRING(body) + PyBytes_GET_SIZE(body)
        cdef bint several = at[0] == b"["
        if several:
            at = after_space(at + 1)
        while True:
            at = self._add(at, received, records)
            if at is NULL:
                return None
            at = after_space(at)
            if not several:
                break
            if at[0] == b"]":
                at = after_space(at + 1)
                break
            if at[0] != b"," or len(records) == ITEMS_MAX:
                return None
            at = after_space(at + 1)
        return records if at == end else None

    cdef const char* _add(self, const char* item, int64_t received, list records) except? NULL:
        """Take the position that begins here; returns what follows it, NULL for an unusual one."""
        cdef Position position
        cdef const char* end = read_position(item, &position)
        cdef int64_t key = 0
        cdef bint named
        cdef TopicRoute route
        cdef bytes record
        if end is NULL or position.devices > 1:
            return NULL
        if not position.devices:
            route = self._route(b"")
        elif not position.device.size:
            return NULL
        else:
            route = self._route(position.device.start[:position.device.size])
        if not route.form:
            return NULL
        # The client's own name for a fix is told from the record's id in `client_ids`.
        named = position.identity.start is not NULL
        if named and position.identity.size < UNIQUE_BYTES:
            return NULL
        record = route.position_record(&position, received, &key)
        if record is None:
            return NULL
        records.append((key, route._device, record, named))
        return end

    cdef TopicRoute _route(self, bytes name):
        """Where positions go that name this device; "" for those that name none."""
        cdef TopicRoute route = self._routes.get(name)
        cdef str device
        if route is not None:
            return route
        device = self._device
        if device is None:
            device = name.decode("utf-8", "replace") if name else DEFAULT_DEVICE
            if "/" in device:
                device = None
        route = TopicRoute(
            "", True, None, None if device is None else f"{self._user}/{device}", FORM_POSITION
        )
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
        self._routes[name] = route
        return route


def answer(list records):
    """What our own clients read when the log has some records (gateway.acknowledgements)."""
    cdef list ids = []
    cdef list own = []
    cdef bytes record
    cdef bytes quoted
    cdef Py_ssize_t end
    for item in records:
        record = item[2]
        end = record.index(b'"', ID_START)
        quoted = record[ID_START - 1:end + 1]
        ids.append(quoted)
        if item[3]:
            own.append(quoted)
    body = b'{"accepted":%d,"ids":[%b],"rejected":[]' % (len(records), b",".join(ids))
    if own:
        return b'%b,"acked":[%b]}' % (body, b",".join(own))
    return body + b"}"
