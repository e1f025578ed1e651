from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t


cdef class FieldPlan:
    cdef readonly str name
    cdef readonly int kind
    cdef readonly bint array
    # Applies to the array, if the field is one; its elements are never null.
    cdef readonly bint nullable
    cdef readonly bint value_nullable
    cdef readonly bint flexible
    cdef readonly object default
    cdef readonly Plan struct
    # The fewest bytes that a value (of an array: an element) takes on the wire.
    cdef readonly Py_ssize_t size_min


cdef class Plan:
    cdef readonly list fields
    cdef readonly dict tagged
    cdef readonly list tags
    cdef readonly bint flexible
    # Defaults of the fields that this version does not have.
    cdef readonly dict absent
    cdef readonly Py_ssize_t size_min


cdef class Writer:
    cdef unsigned char* data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity
    cdef list parts
    # Number of bytes in `parts`.
    cdef Py_ssize_t total
    cdef int reserve(self, Py_ssize_t more) except -1
    cdef int put8(self, uint8_t value) except -1
    cdef int put16(self, uint16_t value) except -1
    cdef int put32(self, uint32_t value) except -1
    cdef int put64(self, uint64_t value) except -1
    cdef int put_uvarint(self, uint32_t value) except -1
    cdef int put_raw(self, const void* data, Py_ssize_t size) except -1
    cdef int put_payload(self, object payload) except -1
    cdef int cut(self) except -1


cdef class Elements:
    cdef Writer writer
    cdef FieldPlan field
    cdef Py_ssize_t count
    cdef int write_to(self, Writer writer) except -1
