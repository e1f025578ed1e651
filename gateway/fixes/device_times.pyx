"""The greatest time of any fix of each device: a newer fix cannot be a repetition."""

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int64_t, uint64_t

from gateway.formats.values import DAY_MS

cdef enum:
    SLOTS_MIN = 1024

# Fixes may be at most so far (ms) ahead of their arrival.
cdef int64_t AHEAD_MS = DAY_MS

#: Devices whose times are remembered.
DEVICES_MAX = 1_000_000


cdef class DeviceTimes:
    """The greatest fix times by device key (gateway.fixes.known_fixes), at most `devices_max`.

    A device takes 32 to 64 bytes. When the table is full, all devices are forgotten. From then on
    (`forgot`) a device that is not in the table may have sent before: its fixes count as late until
    a day after it is seen again, since no fix is more than a day ahead of its arrival.
    """

    def __cinit__(self, devices_max=DEVICES_MAX):
        self._devices_max = max(1, devices_max)
        self._slots = <DeviceTime*> PyMem_Calloc(SLOTS_MIN, sizeof(DeviceTime))
        if self._slots is NULL:
            raise MemoryError
        self._mask = SLOTS_MIN - 1

    def __dealloc__(self):
        PyMem_Free(self._slots)

    def __len__(self):
        return self._filled

    cdef DeviceTime* find(self, int64_t device) noexcept:
        """Return the slot of a device, or the empty slot for it."""
        cdef uint64_t at = <uint64_t> device & self._mask
        while self._slots[at].device and self._slots[at].device != device:
            at = (at + 1) & self._mask
        return self._slots + at

    cdef bint is_late(self, int64_t device, int64_t time) noexcept:
        cdef DeviceTime* slot = self.find(device if device else 1)
        return time <= slot.time if slot.device else self.forgot

    cdef int note(self, int64_t device, int64_t time, int64_t received) except -1:
        """Record that the log has a fix of a device."""
        device = device if device else 1
        cdef DeviceTime* slot = self.find(device)
        if slot.device:
            if time > slot.time:
                slot.time = time
            return 0
        if self._filled >= self._devices_max:
            PyMem_Free(self._slots)
            self._slots = NULL
            self._resize(SLOTS_MIN)
            self.forgot = True
            slot = self.find(device)
        elif 2 * (self._filled + 1) > self._mask:
            self._resize(2 * (self._mask + 1))
            slot = self.find(device)
        slot.device = device
        slot.time = max(time, received + AHEAD_MS) if self.forgot else time
        self._filled += 1
        return 0

    cdef int _resize(self, uint64_t room) except -1:
        cdef DeviceTime* old = self._slots
        cdef uint64_t count = self._mask + 1 if old is not NULL else 0
        cdef uint64_t at
        self._slots = <DeviceTime*> PyMem_Calloc(room, sizeof(DeviceTime))
        if self._slots is NULL:
            self._slots = old
            raise MemoryError
        self._mask = room - 1
        if old is NULL:
            self._filled = 0
        for at in range(count):
            if old[at].device:
                self.find(old[at].device)[0] = old[at]
        PyMem_Free(old)
        return 0

    def time_of(self, int64_t device):
        """Return the greatest time of a device (ms since 1970), or None if it is not known."""
        cdef DeviceTime* slot = self.find(device if device else 1)
        return slot.time if slot.device else None

    def restore(self, int64_t device, int64_t time):
        """Restore a time that `time_of` has returned before."""
        cdef bint forgot = self.forgot
        self.forgot = False
        self.note(device, time, 0)
        self.forgot = self.forgot or forgot

    def add(self, int64_t device, int64_t time, int64_t received):
        """Record that the log has a fix of a device, with its own time and that of its arrival."""
        self.note(device, time, received)

    def may_repeat(self, int64_t device, int64_t time):
        """Return whether a fix of a device may have been sent before."""
        return self.is_late(device, time)
