# cython: boundscheck=False, wraparound=False, cdivision=True
"""Messages as bytes of the Kafka protocol, by the plan of their API and version.

The write buffer grows. Messages are dicts; a large payload is not copied.
"""

from cpython.buffer cimport (
    PyBUF_SIMPLE,
    PyBuffer_Release,
    PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItem
from cpython.list cimport PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject
from libc.stdint cimport (
    int8_t,
    int16_t,
    int32_t,
    int64_t,
    uint8_t,
    uint16_t,
    uint32_t,
    uint64_t,
)
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

from broker_core.protocol.errors import LocalProtocolError

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

# Payloads from this size on are sent without copying; smaller ones are cheaper to copy.
cdef enum:
    COPY_BELOW = 8192


cdef class Writer:
    """A buffer that grows; large payloads are kept as separate parts and not copied."""

    cdef unsigned char* data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity
    cdef list parts
    # Number of bytes in `parts`.
    cdef Py_ssize_t total

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

    cdef Writer writer
    cdef FieldPlan field
    cdef Py_ssize_t count

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
