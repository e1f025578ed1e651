# cython: boundscheck=False, wraparound=False, cdivision=True
"""The primitive types of the Kafka protocol, and the codec that executes a schema plan.

Every read step checks a pointer against the end of the data; the write buffer grows. Messages are
dicts. A `records` field is a memoryview of the received buffer, never a copy.
"""

from cpython.buffer cimport (
    PyBUF_SIMPLE,
    PyBuffer_Release,
    PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Copy, PyDict_GetItem, PyDict_SetItem
from cpython.list cimport PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject
from libc.stdint cimport (
    int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t,
)
from libc.string cimport memcpy

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    object PyUnicode_DecodeUTF8(const char* text, Py_ssize_t size, const char* errors)

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

# A dict takes over a hundred times the bytes of the smallest struct on the wire. Therefore the
# number of array elements in a message is limited, not only its length.
cdef enum:
    ELEMENTS_MAX = 50_000
    TAGS_MAX = 1_000
    # Payloads from this size on are sent without copying; smaller ones are cheaper to copy.
    COPY_BELOW = 8192

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


class ProtocolError(ValueError):
    """Bytes or a message violate the protocol."""


class RemoteProtocolError(ProtocolError):
    """The peer sent bytes that violate the protocol."""


class LocalProtocolError(ProtocolError):
    """A message to be encoded does not fit its schema."""


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


# ---------------------------------------------------------------------------------------- reading

cdef struct Reader:
    const unsigned char* start
    const unsigned char* position
    const unsigned char* end
    Py_ssize_t elements_left


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


cdef uint32_t read_uvarint(Reader* reader) except? 0xFFFFFFFF:
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


def decode(Plan plan not None, view, Py_ssize_t start=0):
    """Decode one message from `view` at `start`; return (message, position after it).

    Raises RemoteProtocolError. `records` fields are slices of `view`, which should be a memoryview.
    """
    cdef Py_buffer buffer
    cdef Reader reader
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        reader.start = <const unsigned char*>buffer.buf
        reader.end = reader.start + buffer.len
        reader.position = reader.start + start
        reader.elements_left = ELEMENTS_MAX
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


# ---------------------------------------------------------------------------------------- writing

cdef class Writer:
    """A buffer that grows; large payloads are kept as separate parts and not copied."""

    def __cinit__(self):
        self.capacity = 512
        self.size = 0
        self.parts = []
        self.total = 0
        self.data = <unsigned char*>PyMem_Malloc(self.capacity)
        if self.data == NULL:
            raise MemoryError()

    def __dealloc__(self):
        PyMem_Free(self.data)

    cdef int reserve(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t wanted = self.size + more
        cdef unsigned char* data
        if wanted > self.capacity:
            while self.capacity < wanted:
                self.capacity *= 2
            data = <unsigned char*>PyMem_Realloc(self.data, self.capacity)
            if data == NULL:
                raise MemoryError()
            self.data = data
        return 0

    cdef int put8(self, uint8_t value) except -1:
        self.reserve(1)
        self.data[self.size] = value
        self.size += 1
        return 0

    cdef int put16(self, uint16_t value) except -1:
        self.reserve(2)
        self.data[self.size] = <unsigned char>(value >> 8)
        self.data[self.size + 1] = <unsigned char>value
        self.size += 2
        return 0

    cdef int put32(self, uint32_t value) except -1:
        self.reserve(4)
        store32(self.data + self.size, value)
        self.size += 4
        return 0

    cdef int put64(self, uint64_t value) except -1:
        self.reserve(8)
        store32(self.data + self.size, <uint32_t>(value >> 32))
        store32(self.data + self.size + 4, <uint32_t>value)
        self.size += 8
        return 0

    cdef int put_uvarint(self, uint32_t value) except -1:
        self.reserve(5)
        while value >= 0x80:
            self.data[self.size] = <unsigned char>(value | 0x80)
            self.size += 1
            value >>= 7
        self.data[self.size] = <unsigned char>value
        self.size += 1
        return 0

    cdef int put_raw(self, const void* data, Py_ssize_t size) except -1:
        self.reserve(size)
        memcpy(self.data + self.size, data, size)
        self.size += size
        return 0

    cdef int put_payload(self, object payload) except -1:
        """Add a payload: copy a small one, keep a reference to a large one.

        An object with a length that is no buffer is kept as it is, for the code that sends the
        parts.
        """
        cdef Py_buffer buffer
        if not PyObject_CheckBuffer(payload):
            self.cut()
            self.parts.append(payload)
            self.total += len(payload)
            return 0
        PyObject_GetBuffer(payload, &buffer, PyBUF_SIMPLE)
        try:
            if buffer.len < COPY_BELOW:
                self.put_raw(buffer.buf, buffer.len)
                return 0
            self.cut()
            self.parts.append(payload)
            self.total += buffer.len
        finally:
            PyBuffer_Release(&buffer)
        return 0

    cdef int cut(self) except -1:
        if self.size:
            self.parts.append(PyBytes_FromStringAndSize(<const char*>self.data, self.size))
            self.total += self.size
            self.size = 0
        return 0


cdef class Elements:
    """The elements of an array of a message, encoded as they come.

    It takes the place of the array in the message. Long answers take a tenth of the memory, and
    are not encoded at once.
    """

    def __init__(self, Plan plan not None, str name not None):
        """`name`: the field of the message. Raises LocalProtocolError if it is no array in it."""
        cdef FieldPlan each
        self.writer = Writer()
        self.field = None
        for each in plan.fields:
            if each.name == name and each.array:
                self.field = each
        if self.field is None:
            raise LocalProtocolError(f"{name} is no array of the message")

    def __len__(self):
        return self.count

    def extend(self, values):
        """Encode elements behind the others. Raises LocalProtocolError."""
        for each in values:
            write_value(self.writer, self.field, each)
            self.count += 1

    cdef int write_to(self, Writer writer) except -1:
        self.writer.cut()
        for part in self.writer.parts:
            writer.put_payload(part)
        return 0


cdef inline void store32(unsigned char* at, uint32_t value) noexcept nogil:
    at[0] = <unsigned char>(value >> 24)
    at[1] = <unsigned char>(value >> 16)
    at[2] = <unsigned char>(value >> 8)
    at[3] = <unsigned char>value


cdef int write_length(Writer writer, Py_ssize_t length, bint flexible, bint wide) except -1:
    """Write a length prefix; -1 is null."""
    if flexible:
        return writer.put_uvarint(<uint32_t>(length + 1))
    if wide:
        if length > 0x7FFFFFFF:
            raise LocalProtocolError(f"length {length}")
        return writer.put32(<uint32_t><int32_t>length)
    if length > 0x7FFF:
        raise LocalProtocolError(f"string of {length} bytes")
    return writer.put16(<uint16_t><int16_t>length)


cdef int write_value(Writer writer, FieldPlan field, object value) except -1:
    cdef int kind = field.kind
    cdef const char* text
    cdef Py_ssize_t length
    cdef double real
    cdef uint64_t bits
    if kind == KIND_INT32:
        return writer.put32(<uint32_t><int32_t>value)
    if kind == KIND_INT64:
        return writer.put64(<uint64_t><int64_t>value)
    if kind == KIND_INT16:
        return writer.put16(<uint16_t><int16_t>value)
    if kind == KIND_STRING:
        if value is None:
            check_nullable(field)
            return write_length(writer, -1, field.flexible, False)
        text = PyUnicode_AsUTF8AndSize(value, &length)
        write_length(writer, length, field.flexible, False)
        return writer.put_raw(text, length)
    if kind == KIND_BYTES or kind == KIND_RECORDS:
        if value is None:
            check_nullable(field)
            return write_length(writer, -1, field.flexible, True)
        write_length(writer, len(value), field.flexible, True)
        return writer.put_payload(value)
    if kind == KIND_STRUCT:
        if field.value_nullable:
            if value is None:
                return writer.put8(0xFF)
            writer.put8(1)
        elif value is None:
            check_nullable(field)
        return write_struct(writer, field.struct, value)
    if kind == KIND_BOOL:
        return writer.put8(1 if value else 0)
    if kind == KIND_INT8:
        return writer.put8(<uint8_t><int8_t>value)
    if kind == KIND_UUID:
        if len(value) != 16:
            raise LocalProtocolError(f"{field.name}: a UUID has 16 bytes")
        return writer.put_raw(PyBytes_AS_STRING(value), 16)
    if kind == KIND_UINT16:
        return writer.put16(<uint16_t>value)
    if kind == KIND_UINT32:
        return writer.put32(<uint32_t>value)
    real = value
    memcpy(&bits, &real, 8)
    return writer.put64(bits)


cdef int check_nullable(FieldPlan field) except -1:
    if not field.value_nullable:
        raise LocalProtocolError(f"{field.name} is null")
    return 0


cdef int write_field(Writer writer, FieldPlan field, object value) except -1:
    if not field.array:
        return write_value(writer, field, value)
    if value is None:
        if not field.nullable:
            raise LocalProtocolError(f"{field.name} is null")
        return write_length(writer, -1, field.flexible, True)
    write_length(writer, len(value), field.flexible, True)
    if type(value) is Elements:
        return (<Elements>value).write_to(writer)
    for each in value:
        write_value(writer, field, each)
    return 0


cdef int write_struct(Writer writer, Plan plan, dict message) except -1:
    cdef FieldPlan field
    cdef PyObject* found
    cdef Py_ssize_t index
    for index in range(PyList_GET_SIZE(plan.fields)):
        field = <FieldPlan>plan.fields[index]
        found = PyDict_GetItem(message, field.name)
        try:
            write_field(writer, field, field.default if found == NULL else <object>found)
        except (OverflowError, TypeError) as error:
            raise LocalProtocolError(f"{field.name}: {error}") from error
    if plan.flexible:
        write_tagged(writer, plan, message)
    return 0


cdef int write_tagged(Writer writer, Plan plan, dict message) except -1:
    cdef FieldPlan field
    cdef Writer inner
    cdef list present
    if not plan.tags:
        return writer.put_uvarint(0)
    present = []
    for tag in plan.tags:
        field = <FieldPlan>plan.tagged[tag]
        value = message.get(field.name, field.default)
        # Defaults are not sent; the default of an array is an empty list.
        if value != field.default and not (field.array and not value and field.default == ()):
            present.append((tag, field, value))
    writer.put_uvarint(<uint32_t>len(present))
    for tag, each, value in present:
        inner = Writer()
        write_field(inner, <FieldPlan>each, value)
        inner.cut()
        writer.put_uvarint(<uint32_t>tag)
        writer.put_uvarint(<uint32_t>inner.total)
        for part in inner.parts:
            writer.put_payload(part)
    return 0


def encode(Plan plan not None, dict message not None):
    """Encode one message; return its bytes. Raises LocalProtocolError."""
    cdef Writer writer = Writer()
    write_struct(writer, plan, message)
    writer.cut()
    if len(writer.parts) == 1:
        return writer.parts[0]
    return b"".join(writer.parts)


def encode_response_frame(
    Plan plan not None, int32_t correlation_id, bint flexible_header, dict message not None
):
    """Encode a whole response: length, header, body; return a list of buffers to send in order.

    Large payloads (fetched records) are in the list as they were given, without a copy.
    Raises LocalProtocolError.
    """
    cdef Writer writer = Writer()
    cdef Py_ssize_t total
    writer.put32(0)
    writer.put32(<uint32_t>correlation_id)
    if flexible_header:
        writer.put_uvarint(0)
    write_struct(writer, plan, message)
    writer.cut()
    total = writer.total - 4
    if total > 0x7FFFFFFF:
        raise LocalProtocolError(f"response of {total} bytes")
    # The first part was created here, and nobody else has a reference to it yet.
    store32(<unsigned char*>PyBytes_AS_STRING(writer.parts[0]), <uint32_t>total)
    return writer.parts
