"""Bodies of our own JSON that have nothing unusual about them, straight to the log's records.

`gateway.formats.positions` reads everything; of what is read here it makes the same records, which
a test compares.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t
from libc.string cimport memchr, memcmp, strlen

from gateway.mqtt.fixes cimport FORM_POSITION, TopicRoute

import msgspec

from gateway.formats import BATCH_ITEMS_MAX
from gateway.formats.positions import DEFAULT_DEVICE, UNIQUE_ID_CHARACTERS

# Key for gateway.known_fixes, device, record, and whether its id is the client's own.
Record = tuple

cdef enum:
    ROUTES_MAX = 2000  # devices of one sender that are remembered
    ID_START = 7       # of a record: {"id":"

cdef Py_ssize_t UNIQUE_BYTES = UNIQUE_ID_CHARACTERS
cdef Py_ssize_t ITEMS_MAX = BATCH_ITEMS_MAX
cdef object split_items = msgspec.json.Decoder(list[msgspec.Raw]).decode

cdef const char* DEVICE = b'"device":'
cdef const char* IDENTITY = b'"id":'


cdef const char* find(const char* start, const char* end, const char* wanted) noexcept:
    """Where the value of a member begins; NULL if there is no such member."""
    cdef Py_ssize_t size = strlen(wanted)
    while end - start >= size:
        start = <const char*> memchr(start, 34, end - start - size + 1)
        if start is NULL:
            return NULL
        if memcmp(start, wanted, size) == 0:
            start += size
            while start < end and start[0] == b" ":
                start += 1
            return start
        start += 1
    return NULL


cdef const char* closing_quote(const char* start, const char* end) noexcept:
    """Where a text ends that begins at `start`; `start` itself if none does."""
    cdef const char* closing
    if start == end or start[0] != b'"':
        return start
    closing = <const char*> memchr(start + 1, 34, end - start - 1)
    return start if closing is NULL else closing


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
        cdef list items
        cdef const char* start = PyBytes_AS_STRING(body)
        if PyBytes_GET_SIZE(body) and start[0] == b"{":
            if not self._add(body, received, records):
                return None
            return records
        if not PyBytes_GET_SIZE(body) or start[0] != b"[":
            return None
        try:
            items = split_items(body)
        except (msgspec.DecodeError, RecursionError, ValueError):
            return None
        if not 0 < len(items) <= ITEMS_MAX:
            return None
        for item in items:
            if not self._add(bytes(item), received, records):
                return None
        return records

    cdef bint _add(self, bytes item, int64_t received, list records) except -1:
        cdef const char* start = PyBytes_AS_STRING(item)
        cdef const char* end = start + PyBytes_GET_SIZE(item)
        cdef const char* name = find(start, end, DEVICE)
        cdef const char* closing
        cdef int64_t key = 0
        cdef TopicRoute route
        cdef bytes record
        if name is NULL:
            route = self._route(b"")
        else:
            closing = closing_quote(name, end)
            if closing - name < 2:
                return False
            route = self._route(name[1:closing - name])
        # The client's own name for a fix is told from the record's id in `client_ids`.
        name = find(start, end, IDENTITY)
        if name is not NULL:
            closing = closing_quote(name, end)
            if closing - name - 1 < UNIQUE_BYTES:
                return False
        record = route.record(item, received, &key)
        if record is None:
            return False
        records.append((key, route._device, record, name is not NULL))
        return True

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
        if self._device is None:
            route.device_members = 1 if name else 0
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
