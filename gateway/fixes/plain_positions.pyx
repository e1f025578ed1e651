"""Converts plain request bodies in our own JSON directly to the records of the log.

`gateway.formats.positions` parses all bodies. For those that are parsed here it makes the same
records; a test compares them.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from gateway.fixes.fix_readers cimport read_position
from gateway.fixes.fix_record cimport FixFields, RECORD_BYTES_MAX
from gateway.fixes.fix_route cimport FORM_POSITION, FixRoute
from gateway.fixes.json_scanner cimport skip_space
from gateway.fixes.known_fixes cimport FixKey

from gateway.formats import BATCH_ITEMS_MAX
from gateway.formats.positions import DEFAULT_DEVICE

cdef enum:
    ROUTES_MAX = 2000  # devices of one sender that are remembered
    ID_START = 7       # offset of the id in a record: {"id":"
    QUOTED = 3         # bytes of an id's quotes and the comma after it

cdef Py_ssize_t ITEMS_MAX = BATCH_ITEMS_MAX


cdef class PlainRecords:
    """The encoded records of one request body, in one block of memory."""

    def __cinit__(self):
        self._devices = []

    def __dealloc__(self):
        PyMem_Free(self._bytes)
        PyMem_Free(self._written)

    def __len__(self):
        return self._count

    def __iter__(self):
        """Yield the key (gateway.fixes.known_fixes), the device and the record of each fix.

        The last value tells whether the id is the client's own.
        """
        cdef Py_ssize_t index
        cdef Written* written
        for index in range(self._count):
            written = &self._written[index]
            yield (
                written.key.key,
                self._devices[index],
                self._bytes[written.start:written.start + written.size],
                bool(written.named),
            )

    cdef int add(
        self, bytes device, const char* record, size_t size, size_t identity_size, const FixKey* key,
        bint named,
    ) except -1:
        cdef void* grown
        cdef size_t capacity = self._capacity + size
        cdef Py_ssize_t places = 4 * self._places + 1
        cdef Written* written
        if self._size + size > self._capacity:
            if self._count:
                capacity *= 2  # after a second record more are likely
            grown = PyMem_Realloc(self._bytes, capacity)
            if grown is NULL:
                raise MemoryError
            self._bytes = <char*> grown
            self._capacity = capacity
        if self._count == self._places:
            grown = PyMem_Realloc(self._written, places * sizeof(Written))
            if grown is NULL:
                raise MemoryError
            self._written = <Written*> grown
            self._places = places
        memcpy(self._bytes + self._size, record, size)
        written = &self._written[self._count]
        written.key = key[0]
        written.start = self._size
        written.size = size
        written.identity_size = identity_size
        written.named = named
        self._devices.append(device)
        self._size += size
        self._count += 1
        return 0

    @property
    def ids(self):
        """The ids of the records as JSON strings, separated by commas."""
        return self.joined_ids(False)

    @property
    def own_ids(self):
        """The ids that are the clients' own as JSON strings, separated by commas."""
        return self.joined_ids(True)

    cdef bytes joined_ids(self, bint own):
        cdef Py_ssize_t index, size = 0
        cdef bytes joined
        cdef char* out
        cdef Written* written
        for index in range(self._count):
            if self._written[index].named or not own:
                size += self._written[index].identity_size + QUOTED
        if not size:
            return b""
        joined = PyBytes_FromStringAndSize(NULL, size - 1)
        out = PyBytes_AS_STRING(joined)
        size = 0
        for index in range(self._count):
            written = &self._written[index]
            if own and not written.named:
                continue
            if size:
                out[size - 1] = b","
            # Includes the quotes, which the record has as well.
            memcpy(
                out + size, self._bytes + written.start + ID_START - 1, written.identity_size + 2
            )
            size += written.identity_size + QUOTED
        return joined


cdef class PlainPositions:
    """Parses the bodies of one sender: a user, and its device if that is named outside the body.

    `knows(device)` tells whether the user has had a fix of a device accepted; it is called until it
    does. Until then the complete parser reads the positions of that device.
    """

    cdef str _user
    cdef str _device
    cdef object _knows
    cdef dict _routes

    def __init__(self, str user, str device=None, knows=None):
        self._user = user
        self._device = device
        self._knows = knows
        self._routes = {}

    def records(self, bytes body, int64_t received):
        """Return the PlainRecords of a body; None if `positions` has to parse it."""
        cdef PlainRecords records = PlainRecords.__new__(PlainRecords)
        cdef const char* at = skip_space(PyBytes_AS_STRING(body))
        cdef const char* end = PyBytes_AS_STRING(body) + PyBytes_GET_SIZE(body)
        cdef bint several = at[0] == b"["
        if several:
            at = skip_space(at + 1)
        while True:
            at = self._add(at, received, records)
            if at is NULL:
                return None
            at = skip_space(at)
            if not several:
                break
            if at[0] == b"]":
                at = skip_space(at + 1)
                break
            if at[0] != b"," or records._count == ITEMS_MAX:
                return None
            at = skip_space(at + 1)
        return records if at == end else None

    cdef const char* _add(
        self, const char* item, int64_t received, PlainRecords records
    ) except? NULL:
        """Append the position that begins here; return what follows it, NULL for an unusual one."""
        cdef FixFields fields
        cdef const char* end = read_position(item, &fields)
        cdef FixKey key
        cdef bint named
        cdef FixRoute route
        cdef char[RECORD_BYTES_MAX] record
        cdef Py_ssize_t size
        if end is NULL or fields.devices > 1:
            return NULL
        if not fields.devices:
            route = self._route(b"")
        elif not fields.device.size:
            return NULL
        else:
            route = self._route(fields.device.start[:fields.device.size])
        if not route.form:
            return NULL
        # `client_ids` tells a client's own name for a fix from the record's id.
        named = fields.identity.start is not NULL
        if named and not fields.is_unique:
            return NULL
        size = route.write(&fields, received, &key, record)
        if not size:
            return NULL
        records.add(route._device, record, size, fields.identity.size, &key, named)
        return end

    cdef FixRoute _route(self, bytes name):
        """Return the route of positions that name this device, or none if the name is empty."""
        cdef FixRoute route = self._routes.get(name)
        cdef str device
        if route is not None:
            return route
        device = self._device
        if device is None:
            device = name.decode("utf-8", "replace") if name else DEFAULT_DEVICE
            if "/" in device:
                device = None
        if device is not None:
            device = f"{self._user}/{device}"
        route = FixRoute(device, FORM_POSITION)
        if route.form and self._knows is not None and not self._knows(device):
            return FixRoute(None, FORM_POSITION)
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
        self._routes[name] = route
        return route


def answer(PlainRecords records):
    """Return the answer to our own clients for stored records.

    See gateway.http.ingest.app_responses.
    """
    body = b'{"accepted":%d,"ids":[%b],"rejected":[]' % (records._count, records.ids)
    own = records.own_ids
    if own:
        return b'%b,"acked":[%b]}' % (body, own)
    return body + b"}"
