# cython: boundscheck=False, wraparound=False, cdivision=True
"""The plans of the codec: which fields a struct has in one version, and of which kinds.

schema.py makes them from Kafka's message definitions; decoder.pyx and encoder.pyx execute them.
"""

_KINDS = {
    "bool": KIND_BOOL,
    "int8": KIND_INT8,
    "int16": KIND_INT16,
    "uint16": KIND_UINT16,
    "int32": KIND_INT32,
    "uint32": KIND_UINT32,
    "int64": KIND_INT64,
    "float64": KIND_FLOAT64,
    "uuid": KIND_UUID,
    "string": KIND_STRING,
    "bytes": KIND_BYTES,
    "records": KIND_RECORDS,
    "struct": KIND_STRUCT,
}
# Indexed by kind; a length prefix has at least two bytes in the old encoding and one in the new
# one.
_SIZES_MIN = (1, 1, 2, 2, 4, 4, 8, 8, 16, 1, 1, 1, 0)


cdef class FieldPlan:
    """The codec's plan for one field in one version."""

    def __init__(self, str name, str kind, *, bint array, bint nullable, bint flexible,
                 default, Plan struct):
        self.name = name
        self.kind = _KINDS[kind]
        self.array = array
        self.nullable = nullable
        self.value_nullable = nullable and not array
        self.flexible = flexible
        self.default = default
        self.struct = struct
        if struct is not None:
            self.size_min = struct.size_min
        else:
            self.size_min = _SIZES_MIN[self.kind]


cdef class Plan:
    """The fields of one struct in one version, in the order on the wire."""

    def __init__(self, list fields, dict tagged, bint flexible, dict absent):
        cdef FieldPlan each
        self.fields = fields
        self.tagged = tagged
        self.tags = sorted(tagged)
        self.flexible = flexible
        self.absent = absent
        self.size_min = 1 if flexible else 0
        for each in fields:
            self.size_min += 1 if each.array or each.nullable else each.size_min
