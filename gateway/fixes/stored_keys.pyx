"""Sorted runs of keys in mapped files: the fixes that the log has, beyond those in memory.

As keys are hashes, the position of a key in a run can be estimated: a search touches two pages of
each run.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport uint64_t
from libc.stdio cimport FILE, fclose, fdopen, fflush, fwrite
from libc.stdlib cimport qsort
from libc.string cimport memcpy

import os

cdef extern from *:
    """
    typedef unsigned __int128 waylog_uint128;
    """
    ctypedef unsigned long long waylog_uint128

#: The head of a file: a magic number with the version, then the number of keys.
HEAD = b"waylog-k"
HEAD_BYTES = 16
KEY_SIZE = sizeof(uint64_t)

cdef enum:
    RUNS_MERGED_MAX = 64
    WRITTEN_AT_ONCE = 8192  # keys in one write


cdef uint64_t place(uint64_t key, uint64_t count) noexcept nogil:
    """Return the expected position of a key among evenly distributed ones."""
    return <uint64_t> ((<waylog_uint128> key * <waylog_uint128> count) >> 64)


cdef bint in_run(const Run* run, uint64_t key) noexcept nogil:
    cdef uint64_t low = 0, high = run.count, at, step = 8
    if not high:
        return False
    at = place(key, high)
    # The second guess is corrected by the key at the first.
    if run.keys[at] > key:
        step += place(run.keys[at] - key, run.count)
        high = at
        at = at - step if at > step else 0
    elif run.keys[at] < key:
        step += place(key - run.keys[at], run.count)
        low = at + 1
        at = at + step if high - at > step else high - 1
    else:
        return True
    step = 16
    while low < high:
        if run.keys[at] == key:
            return True
        if run.keys[at] < key:
            low = at + 1
            at = at + step
            if at >= high or step > 4096:
                at = low + (high - low) // 2
        else:
            high = at
            at = at - step if at > step else 0
            if at < low or step > 4096:
                at = low + (high - low) // 2
        step *= 4
    return False


cdef class StoredKeys:
    """The key files in use. Raises ValueError for a file that is not a file of keys."""

    def __cinit__(self):
        self._mapped = []

    def __dealloc__(self):
        PyMem_Free(self._runs)

    def use(self, mapped):
        """Use these mapped files (objects with a buffer) in place of the previous ones."""
        cdef Py_buffer view
        cdef Py_ssize_t index
        cdef list taken = list(mapped)
        cdef Run* runs = <Run*> PyMem_Calloc(max(1, len(taken)), sizeof(Run))
        if runs is NULL:
            raise MemoryError
        try:
            for index in range(len(taken)):
                PyObject_GetBuffer(taken[index], &view, PyBUF_SIMPLE)
                # `_mapped` keeps a reference to the object, so the memory stays valid.
                runs[index].keys = <const uint64_t*> ((<const char*> view.buf) + <int> HEAD_BYTES)
                runs[index].count = key_count(taken[index], view.len)
                PyBuffer_Release(&view)
        except BaseException:
            PyMem_Free(runs)
            raise
        PyMem_Free(self._runs)
        self._runs = runs
        self._count = len(taken)
        self._mapped = taken

    cdef bint holds(self, uint64_t key) noexcept:
        cdef Py_ssize_t index
        # Newest first: most repetitions are of recent fixes.
        for index in range(self._count - 1, -1, -1):
            if in_run(&self._runs[index], key):
                return True
        return False

    def __contains__(self, key):
        return self.holds(<uint64_t> key)

    def __len__(self):
        cdef Py_ssize_t index
        cdef uint64_t keys = 0
        for index in range(self._count):
            keys += self._runs[index].count
        return keys

    @property
    def runs(self):
        """The number of files in use."""
        return self._count


def key_count(mapped, Py_ssize_t size):
    """Return the number of keys in a file; raises ValueError if it is not a complete key file."""
    if size < HEAD_BYTES or bytes(mapped[:len(HEAD)]) != HEAD:
        raise ValueError("not a file of keys")
    count = int.from_bytes(mapped[len(HEAD):HEAD_BYTES], "little")
    if size != HEAD_BYTES + KEY_SIZE * count:
        raise ValueError("a file of keys that is not whole")
    return count


cdef int ascending(const void* one, const void* other) noexcept nogil:
    cdef uint64_t first = (<const uint64_t*> one)[0], second = (<const uint64_t*> other)[0]
    return (first > second) - (first < second)


def sorted_keys(bytes keys):
    """Return the keys sorted and without duplicates; raises ValueError for a partial key.

    Sorts without the interpreter's lock (GIL).
    """
    cdef size_t size = len(keys), count = size // sizeof(uint64_t), at, kept = 0
    cdef uint64_t* values
    if size % sizeof(uint64_t):
        raise ValueError("not a number of whole keys")
    values = <uint64_t*> PyMem_RawMalloc(size)
    if values is NULL:
        raise MemoryError
    try:
        memcpy(values, <const char*> keys, size)
        with nogil:
            qsort(values, count, sizeof(uint64_t), ascending)
            for at in range(count):
                if not kept or values[at] != values[kept - 1]:
                    values[kept] = values[at]
                    kept += 1
        return (<const char*> values)[:kept * sizeof(uint64_t)]
    finally:
        PyMem_RawFree(values)


def merge(sources, int descriptor):
    """Write the keys of several mapped files to a new one, without duplicates; return their number.

    Raises OSError, and ValueError for too many files. Runs without the interpreter's lock (GIL).
    """
    cdef Run[RUNS_MERGED_MAX] runs
    cdef uint64_t[RUNS_MERGED_MAX] at
    cdef uint64_t[WRITTEN_AT_ONCE] out
    cdef Py_buffer view
    cdef Py_ssize_t index, count = len(sources), waiting = 0
    cdef uint64_t written = 0, least
    cdef bint found, failed = False
    cdef FILE* file
    if not 0 < count <= RUNS_MERGED_MAX:
        raise ValueError("too many files at once")
    for index in range(count):
        PyObject_GetBuffer(sources[index], &view, PyBUF_SIMPLE)
        runs[index].keys = <const uint64_t*> ((<const char*> view.buf) + <int> HEAD_BYTES)
        runs[index].count = key_count(sources[index], view.len)
        at[index] = 0
        PyBuffer_Release(&view)
    file = fdopen(os.dup(descriptor), "wb")
    if file is NULL:
        raise OSError("a file of keys cannot be written")
    with nogil:
        while not failed:
            found = False
            least = 0
            for index in range(count):
                if at[index] < runs[index].count and (
                    not found or runs[index].keys[at[index]] < least
                ):
                    least = runs[index].keys[at[index]]
                    found = True
            if not found:
                break
            for index in range(count):
                while at[index] < runs[index].count and runs[index].keys[at[index]] == least:
                    at[index] += 1
            out[waiting] = least
            waiting += 1
            written += 1
            if waiting == WRITTEN_AT_ONCE:
                failed = fwrite(out, sizeof(uint64_t), waiting, file) != <size_t> waiting
                waiting = 0
        if not failed:
            failed = fwrite(out, sizeof(uint64_t), waiting, file) != <size_t> waiting
        failed = fflush(file) != 0 or failed
        fclose(file)
    if failed:
        raise OSError("a file of keys cannot be written")
    return written
