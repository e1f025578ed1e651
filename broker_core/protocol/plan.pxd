cdef enum:
    KIND_BOOL = 0
    KIND_INT8 = 1
    KIND_INT16 = 2
    KIND_UINT16 = 3
    KIND_INT32 = 4
    KIND_UINT32 = 5
    KIND_INT64 = 6
    KIND_FLOAT64 = 7
    KIND_UUID = 8
    KIND_STRING = 9
    KIND_BYTES = 10
    KIND_RECORDS = 11
    KIND_STRUCT = 12


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
