"""Keys of the fixes that the log has, so that a repeated fix is stored only once."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Realloc
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from gateway.fixes.siphash cimport SipKey, sip_key, siphash13

import os

from gateway.fixes.siphash import KEY_BYTES

cdef extern from *:
    void __builtin_prefetch(const void* address) nogil

DEFAULT_CAPACITY = 500_000

cdef enum:
    NAME_BYTES_MAX = 1024  # of device and id together; longer names are copied to the heap
    SLOTS_MIN = 1024
    UNSAVED_MAX = 4 * 1024 * 1024  # keys that wait to be written to disk


# The hash is keyed like Python's own: once for the process, before the first key is made.
cdef bytes _random_key = os.urandom(KEY_BYTES)
cdef SipKey SECRET = sip_key(PyBytes_AS_STRING(_random_key))


def use_secret(bytes secret):
    """Key all hashes of this process with a secret that outlives it; call it before the first hash.

    Raises ValueError if the secret does not have KEY_BYTES bytes.
    """
    global SECRET
    if PyBytes_GET_SIZE(secret) != KEY_BYTES:
        raise ValueError(f"a secret has {KEY_BYTES} bytes")
    SECRET = sip_key(PyBytes_AS_STRING(secret))


cdef int64_t key_of(bytes device, const char* fix_id, Py_ssize_t size) except? -1:
    """Return `fix_key` of a device in UTF-8 and the bytes of an id."""
    cdef char[NAME_BYTES_MAX] name
    cdef bytes longer
    cdef Py_ssize_t device_size = PyBytes_GET_SIZE(device)
    if device_size + 1 + size > NAME_BYTES_MAX:
        longer = device + b"\0" + fix_id[:size]
        return <int64_t> siphash13(&SECRET, PyBytes_AS_STRING(longer), PyBytes_GET_SIZE(longer))
    memcpy(name, PyBytes_AS_STRING(device), device_size)
    name[device_size] = 0
    memcpy(name + device_size + 1, fix_id, size)
    return <int64_t> siphash13(&SECRET, name, device_size + 1 + size)


def fix_key(str device, str fix_id):
    """Return the 64-bit key of a fix.

    The key depends on the device as well as the id, so that nobody can occupy the ids of another
    user's device. The hash is keyed with a secret, so that nobody can construct collisions.
    """
    cdef bytes encoded = fix_id.encode("utf-8", "surrogatepass")
    return key_of(
        device.encode("utf-8", "surrogatepass"),
        PyBytes_AS_STRING(encoded),
        PyBytes_GET_SIZE(encoded),
    )


cdef int64_t key_of_device(bytes device) noexcept:
    # The input differs from that of every fix, as a name contains no zero byte.
    return <int64_t> siphash13(&SECRET, PyBytes_AS_STRING(device), PyBytes_GET_SIZE(device))


def device_key(str device):
    """Return the 64-bit key of a device."""
    return key_of_device(device.encode("utf-8", "surrogatepass"))


cdef uint64_t* find(const Table* table, uint64_t key) noexcept nogil:
    """Return the slot of a key, or the empty slot for it; at least half of the slots are empty."""
    cdef uint64_t at = key & table.mask
    while table.slots[at] and table.slots[at] != key:
        at = (at + 1) & table.mask
    return table.slots + at


cdef int create(Table* table, uint64_t slots) except -1:
    table.slots = <uint64_t*> PyMem_Calloc(slots, sizeof(uint64_t))
    if table.slots is NULL:
        raise MemoryError
    table.mask = slots - 1
    table.filled = 0
    return 0


cdef int grow(Table* table) except -1:
    cdef Table larger
    cdef uint64_t at
    create(&larger, 2 * (table.mask + 1))
    for at in range(table.mask + 1):
        if table.slots[at]:
            find(&larger, table.slots[at])[0] = table.slots[at]
    larger.filled = table.filled
    PyMem_Free(table.slots)
    table[0] = larger
    return 0


cdef class KnownFixes:
    """Keys of the fixes that the log has.

    Memory has a set of the newest keys in two generations, each half of the capacity. When the
    younger generation is full it becomes the older one, and the previous older one is dropped
    as a whole. Dropping costs nothing per key, and at least half of the capacity is always
    remembered. The sets use open addressing: 16 to 32 bytes a key.

    If the keys of all fixes are kept on disk (`keep`), the disk is searched for a fix that is not
    newer than all others of its device: only such a fix can be a repetition.
    """

    def __cinit__(self, capacity=DEFAULT_CAPACITY):
        self._generation_size = max(1, capacity // 2)
        create(&self._younger, SLOTS_MIN)
        create(&self._older, SLOTS_MIN)

    def __dealloc__(self):
        PyMem_Free(self._younger.slots)
        PyMem_Free(self._older.slots)
        PyMem_Free(self._unsaved)

    def keep(self, StoredKeys stored not None, DeviceTimes times not None):
        """Use keys on disk, and collect keys added from now on for `take_unsaved`."""
        self.stored = stored
        self.times = times

    def watch(self, DeviceTimes times not None):
        """Use the greatest times of devices without keys on disk."""
        self.times = times

    def take_unsaved(self):
        """Return the keys that were added since the last call, as unsigned 64-bit integers."""
        cdef bytes keys = (<char*> self._unsaved)[:self._unsaved_count * sizeof(uint64_t)]
        PyMem_Free(self._unsaved)
        self._unsaved = NULL
        self._unsaved_count = self._unsaved_room = 0
        return keys

    @property
    def unsaved(self):
        """The number of keys that `take_unsaved` would return."""
        return self._unsaved_count

    cdef void prefetch(self, int64_t key) noexcept:
        """Prefetch the memory of a key that is looked up soon, to avoid one or two cache misses."""
        __builtin_prefetch(self._younger.slots + (<uint64_t> key & self._younger.mask))
        __builtin_prefetch(self._older.slots + (<uint64_t> key & self._older.mask))

    cdef bint holds(self, int64_t key) noexcept:
        # 0 marks an empty slot, so key 0 is stored as 1.
        cdef uint64_t sought = <uint64_t> key if key else 1
        return find(&self._younger, sought)[0] != 0 or find(&self._older, sought)[0] != 0

    cdef bint is_stored(self, const FixKey* fix) noexcept:
        """Return whether the disk has the key of a fix that memory does not have."""
        if self.stored is None or not self.times.is_late(fix.device, fix.time):
            return False
        return self.stored.holds(<uint64_t> fix.key if fix.key else 1)

    def __contains__(self, int64_t key):
        """Return whether the log has the fix, as far as memory and disk know."""
        return self.holds(key) or (
            self.stored is not None and self.stored.holds(<uint64_t> key if key else 1)
        )

    def __len__(self):
        return self._younger.filled + self._older.filled

    cpdef add(self, int64_t key):
        """Remember a key; adding it again makes it stay longer."""
        cdef uint64_t sought = <uint64_t> key if key else 1
        cdef uint64_t* slot = find(&self._younger, sought)
        if not slot[0]:
            slot[0] = sought
            self._younger.filled += 1
            if self.stored is not None and not find(&self._older, sought)[0]:
                self._save(sought)
            if 2 * self._younger.filled > self._younger.mask:
                grow(&self._younger)
        if self._younger.filled >= self._generation_size:
            PyMem_Free(self._older.slots)
            self._older = self._younger
            create(&self._younger, SLOTS_MIN)

    cpdef add_old(self, int64_t key):
        """Remember an old key on disk only, without using room in memory."""
        if self.stored is not None:
            self._save(<uint64_t> key if key else 1)

    cdef int _save(self, uint64_t key) except -1:
        cdef void* grown
        cdef Py_ssize_t room = max(2 * self._unsaved_room, <Py_ssize_t> SLOTS_MIN)
        if self._unsaved_count == self._unsaved_room:
            if self._unsaved_count >= UNSAVED_MAX:
                # The disk accepts nothing: lost keys are read from the log after the next start.
                self.unsaved_lost += 1
                return 0
            grown = PyMem_Realloc(self._unsaved, room * sizeof(uint64_t))
            if grown is NULL:
                raise MemoryError
            self._unsaved = <uint64_t*> grown
            self._unsaved_room = room
        self._unsaved[self._unsaved_count] = key
        self._unsaved_count += 1
        return 0
