# cython: boundscheck=False, wraparound=False, cdivision=True
"""Messages from bytes of the Kafka protocol, by the plan of their API and version.

Every read step checks a pointer against the end of the data. Messages are dicts. A `records` field
is a memoryview of the received buffer, never a copy.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_Copy, PyDict_SetItem
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from broker_core.protocol.plan cimport (
    KIND_BOOL,
    KIND_BYTES,
    KIND_INT16,
    KIND_INT32,
    KIND_INT64,
    KIND_INT8,
    KIND_RECORDS,
    KIND_STRING,
    KIND_STRUCT,
    KIND_UINT16,
    KIND_UINT32,
    KIND_UUID,
    FieldPlan,
    Plan,
)

from broker_core.protocol.errors import RemoteProtocolError

cdef extern from "Python.h":
    const Py_ssize_t PY_SSIZE_T_MAX
    object PyUnicode_DecodeUTF8(const char* text, Py_ssize_t size, const char* errors)

# A dict takes over a hundred times the bytes of the smallest struct on the wire. Therefore the
# number of array elements in a message is limited, not only its length.
cdef enum:
    ELEMENTS_MAX = 50_000
    REQUEST_STRING_MAX = 0x7FFF
    TAGS_MAX = 1_000


#: Bytes of a string in a request: what every version of every message can carry, the records of
#: coordinators too. Kafka takes no longer ones.
STRING_MAX = REQUEST_STRING_MAX


cdef struct Reader:
    const unsigned char* start
    const unsigned char* position
    const unsigned char* end
    Py_ssize_t elements_left
    Py_ssize_t string_max


cdef int need(Reader* reader, Py_ssize_t size) except -1:
    if size < 0 or reader.end - reader.position < size:
        raise RemoteProtocolError(
            f"{size} bytes expected at {reader.position - reader.start}, "
            f"{reader.end - reader.position} left"
        )
    return 0


cdef inline uint16_t load16(const unsigned char* at) noexcept nogil:
    return <uint16_t>((at[0] << 8) | at[1])


cdef inline uint32_t load32(const unsigned char* at) noexcept nogil:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3]


cdef inline uint64_t load64(const unsigned char* at) noexcept nogil:
    return (<uint64_t>load32(at) << 32) | load32(at + 4)


cdef uint32_t read_long_uvarint(Reader* reader) except? 0xFFFFFFFF:
    cdef uint32_t value = 0
    cdef int shift = 0
    cdef unsigned char byte
    while True:
        need(reader, 1)
        byte = reader.position[0]
        reader.position += 1
        if shift == 28 and byte > 15:
            raise RemoteProtocolError("varint of more than 32 bits")
        value |= <uint32_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7


cdef inline uint32_t read_uvarint(Reader* reader) except? 0xFFFFFFFF:
    # Nearly all are of one byte: lengths below 127, or the number of tagged fields, none.
    if reader.position < reader.end and reader.position[0] < 0x80:
        reader.position += 1
        return (reader.position - 1)[0]
    return read_long_uvarint(reader)


cdef Py_ssize_t read_length(Reader* reader, bint flexible, bint wide) except? -2:
    """Read a length prefix; -1 is null. `wide` means int32 in the old encoding, otherwise int16."""
    cdef Py_ssize_t length
    if flexible:
        return <Py_ssize_t>read_uvarint(reader) - 1
    if wide:
        need(reader, 4)
        length = <int32_t>load32(reader.position)
        reader.position += 4
    else:
        need(reader, 2)
        length = <int16_t>load16(reader.position)
        reader.position += 2
    if length < -1:
        raise RemoteProtocolError(f"length {length}")
    return length


cdef object read_value(Reader* reader, FieldPlan field, object view):
    cdef int kind = field.kind
    cdef Py_ssize_t length, offset
    cdef const unsigned char* at
    cdef double real
    cdef uint64_t bits
    if kind == KIND_INT32:
        need(reader, 4)
        at = reader.position
        reader.position += 4
        return <int32_t>load32(at)
    if kind == KIND_INT64:
        need(reader, 8)
        at = reader.position
        reader.position += 8
        return <int64_t>load64(at)
    if kind == KIND_INT16:
        need(reader, 2)
        at = reader.position
        reader.position += 2
        return <int16_t>load16(at)
    if kind == KIND_STRING:
        length = read_length(reader, field.flexible, False)
        if length < 0:
            if not field.value_nullable:
                raise RemoteProtocolError(f"{field.name} is null")
            return None
        if length > reader.string_max:
            raise RemoteProtocolError(f"{field.name} is a string of {length} bytes")
        need(reader, length)
        at = reader.position
        reader.position += length
        try:
            return PyUnicode_DecodeUTF8(<const char*>at, length, NULL)
        except UnicodeDecodeError as error:
            raise RemoteProtocolError(f"{field.name} is not UTF-8") from error
    if kind == KIND_BYTES or kind == KIND_RECORDS:
        length = read_length(reader, field.flexible, True)
        if length < 0:
            if not field.value_nullable:
                raise RemoteProtocolError(f"{field.name} is null")
            return None
        need(reader, length)
        at = reader.position
        reader.position += length
        if kind == KIND_RECORDS:
            offset = at - reader.start
            return view[offset:offset + length]
        return PyBytes_FromStringAndSize(<const char*>at, length)
    if kind == KIND_STRUCT:
        if field.value_nullable:
            need(reader, 1)
            reader.position += 1
            if <int8_t>(reader.position - 1)[0] < 0:
                return None
        return read_struct(reader, field.struct, view)
    if kind == KIND_BOOL:
        need(reader, 1)
        reader.position += 1
        return (reader.position - 1)[0] != 0
    if kind == KIND_INT8:
        need(reader, 1)
        reader.position += 1
        return <int8_t>(reader.position - 1)[0]
    if kind == KIND_UUID:
        need(reader, 16)
        at = reader.position
        reader.position += 16
        return PyBytes_FromStringAndSize(<const char*>at, 16)
    if kind == KIND_UINT16:
        need(reader, 2)
        at = reader.position
        reader.position += 2
        return load16(at)
    if kind == KIND_UINT32:
        need(reader, 4)
        at = reader.position
        reader.position += 4
        return load32(at)
    need(reader, 8)
    bits = load64(reader.position)
    reader.position += 8
    memcpy(&real, &bits, 8)
    return real


cdef object read_array(Reader* reader, FieldPlan field, object view):
    cdef Py_ssize_t count = read_length(reader, field.flexible, True)
    cdef Py_ssize_t index
    cdef list values
    if count < 0:
        if not field.nullable:
            raise RemoteProtocolError(f"{field.name} is null")
        return None
    # Checked before anything is allocated: the announced elements must at least fit in the data.
    if count * field.size_min > reader.end - reader.position:
        raise RemoteProtocolError(f"{field.name} announces {count} elements in too few bytes")
    reader.elements_left -= count
    if reader.elements_left < 0:
        raise RemoteProtocolError(f"more than {ELEMENTS_MAX} array elements in one message")
    values = []
    for index in range(count):
        values.append(read_value(reader, field, view))
    return values


cdef inline object read_field(Reader* reader, FieldPlan field, object view):
    if field.array:
        return read_array(reader, field, view)
    return read_value(reader, field, view)


cdef int read_tagged(Reader* reader, Plan plan, dict message, object view) except -1:
    cdef uint32_t count = read_uvarint(reader)
    cdef uint32_t index, tag, size
    cdef const unsigned char* end
    cdef const unsigned char* outer_end
    cdef FieldPlan field
    if count > TAGS_MAX:
        raise RemoteProtocolError(f"{count} tagged fields")
    for index in range(count):
        tag = read_uvarint(reader)
        size = read_uvarint(reader)
        need(reader, size)
        end = reader.position + size
        field = plan.tagged.get(tag) if plan is not None else None
        if field is not None:
            outer_end = reader.end
            reader.end = end
            message[field.name] = read_field(reader, field, view)
            reader.end = outer_end
        reader.position = end
    return 0


cdef dict read_struct(Reader* reader, Plan plan, object view):
    cdef dict message = <dict>PyDict_Copy(plan.absent)
    cdef FieldPlan field
    cdef Py_ssize_t index
    for index in range(PyList_GET_SIZE(plan.fields)):
        field = <FieldPlan>plan.fields[index]
        PyDict_SetItem(message, field.name, read_field(reader, field, view))
    if plan.flexible:
        read_tagged(reader, plan, message, view)
    return message


def decode(Plan plan not None, view, Py_ssize_t start=0, Py_ssize_t string_max=PY_SSIZE_T_MAX):
    """Decode one message from `view` at `start`; return (message, position after it).

    `string_max` limits the bytes of each string. `records` fields are slices of `view`, which
    should be a memoryview. Raises RemoteProtocolError.
    """
    cdef Py_buffer buffer
    cdef Reader reader
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        reader.start = <const unsigned char*>buffer.buf
        reader.end = reader.start + buffer.len
        reader.position = reader.start + start
        reader.elements_left = ELEMENTS_MAX
        reader.string_max = string_max
        need(&reader, 0)
        message = read_struct(&reader, plan, view)
        return message, reader.position - reader.start
    finally:
        PyBuffer_Release(&buffer)


def decode_request_header(view, Py_ssize_t start=0):
    """Decode a request header of version 1.

    Returns (api key, api version, correlation id, client id, position after the header). In version
    2 tagged fields follow: see `skip_tagged_fields`. Raises RemoteProtocolError.
    """
    cdef Py_buffer buffer
    cdef Reader reader
    cdef Py_ssize_t length
    cdef int16_t key, version
    cdef int32_t correlation
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        reader.start = <const unsigned char*>buffer.buf
        reader.end = reader.start + buffer.len
        reader.position = reader.start + start
        reader.elements_left = 0
        need(&reader, 8)
        key = <int16_t>load16(reader.position)
        version = <int16_t>load16(reader.position + 2)
        correlation = <int32_t>load32(reader.position + 4)
        reader.position += 8
        length = read_length(&reader, False, False)
        client_id = None
        if length >= 0:
            need(&reader, length)
            client_id = PyUnicode_DecodeUTF8(<const char*>reader.position, length, "replace")
            # Each byte that is not UTF-8 has become three.
            if length > REQUEST_STRING_MAX // 3 and len(client_id.encode()) > REQUEST_STRING_MAX:
                raise RemoteProtocolError("the client id is not UTF-8")
            reader.position += length
        return key, version, correlation, client_id, reader.position - reader.start
    finally:
        PyBuffer_Release(&buffer)


def skip_tagged_fields(view, Py_ssize_t start):
    """Return the position after a section of tagged fields; raises RemoteProtocolError."""
    cdef Py_buffer buffer
    cdef Reader reader
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        reader.start = <const unsigned char*>buffer.buf
        reader.end = reader.start + buffer.len
        reader.position = reader.start + start
        reader.elements_left = 0
        need(&reader, 0)
        read_tagged(&reader, None, None, view)
        return reader.position - reader.start
    finally:
        PyBuffer_Release(&buffer)
