"""The fuzz targets of our own clients, with bytes of a broker; schemas of a registry, and values.

Values are read as connectors get them, too.

Run by tests/fuzz/run.py, which compiles them with coverage and AddressSanitizer.
"""

from __future__ import annotations

import struct
import sys
from contextlib import suppress

import atheris
import google_crc32c
import msgspec

from waylog.kafka.fetched_records import AbortedTransactions, read_batches
from waylog.malformed import MALFORMED
from waylog.serialization.avro_schema import decoded_schema
from waylog.serialization.json_document import JsonDocument
from waylog.serialization.protobuf_printer import proto_text
from waylog.serialization.protobuf_schema import ProtobufSchema
from waylog.serialization.registered_schemas import record_schema
from waylog.serialization.serializer import SerializationError

with atheris.instrument_imports(include=["waylog.kafka.protocol.requests"]):
    from waylog.kafka.protocol import requests as kafka_requests
    from waylog.kafka.protocol.requests import MalformedAnswer

with atheris.instrument_imports(
    include=["gateway.schema_registry", "waylog.serialization.protobuf_parser"]
):
    from gateway.schema_registry.errors import RegistryError
    from gateway.schema_registry.schema_types import incompatibilities, parse

with atheris.instrument_imports(include=["consumers.connect.converters"]):
    from consumers.connect.converters.json_schema_reading import json_schema_reading
    from consumers.connect.converters.json_schema_writing import JsonSchemaValues
    from consumers.connect.converters.protobuf_names import ProtobufOptions
    from consumers.connect.converters.protobuf_reading import protobuf_reading
    from consumers.connect.converters.protobuf_writing import protobuf_writing
    from consumers.connect.data.exceptions import DataException

_READERS = (
    kafka_requests.read_metadata,
    kafka_requests.read_init_producer_id,
    kafka_requests.read_produce,
    kafka_requests.read_list_offsets,
    kafka_requests.read_fetch,
    kafka_requests.read_sasl_handshake,
    kafka_requests.read_sasl_authenticate,
)
_LENGTH_AT, _CRC_AT, _ATTRIBUTES_AT, _HEAD_BYTES = 8, 17, 21, 61


def fuzz_fetched_batches(data: bytes) -> None:
    """Fuzz record batches with valid checksums: they are read in order, or rejected."""
    buffer = bytearray(data)
    start = 0
    while start + _HEAD_BYTES <= len(buffer):
        (length,) = struct.unpack_from(">i", buffer, start + _LENGTH_AT)
        end = start + _LENGTH_AT + 4 + length
        if end > len(buffer) or length < _HEAD_BYTES - _LENGTH_AT - 4:
            break
        crc = google_crc32c.value(bytes(buffer[start + _ATTRIBUTES_AT : end]))
        struct.pack_into(">I", buffer, start + _CRC_AT, crc)
        start = end
    for aborted, any_codec in (((), False), (((1, 0), (2, 5)), True)):
        with suppress(MalformedAnswer):
            records, _, _ = read_batches(
                bytes(buffer), "t", 3, 2, AbortedTransactions(aborted), any_codec
            )
            assert all(record.offset() >= 2 for record in records)


def fuzz_answers(data: bytes) -> None:
    """Fuzz the answers of a broker, with the parser of each request."""
    for read in _READERS:
        with suppress(MalformedAnswer):
            read(bytes(data))


_TYPES = ("AVRO", "PROTOBUF", "JSON")
_SCHEMAS = (
    '{"type":"record","name":"R","fields":[{"name":"a","type":["null","R"]},'
    '{"name":"b","type":{"type":"map","values":"bytes"}}]}',
    'syntax="proto3"; message M { map<string, M> m = 1; oneof o { string s = 2; double d = 3; } }',
    "{}",
)


def fuzz_schemas(data: bytes) -> None:
    """Fuzz two schemas of a type: they are refused, or kept, parsed again and compared."""
    if not data:
        return
    kind = _TYPES[data[0] % len(_TYPES)]
    first, _, second = data[1:].decode("utf-8", "replace").partition("\0")
    with suppress(RegistryError):
        one = parse(kind, first, (), ())
        # What is kept is the same schema when it is read back.
        assert parse(kind, one.text, (), ()).guid == one.guid
        other = parse(kind, second, (), (), normalize=True)
        for reader, writer in ((one, other), (other, one)):
            incompatibilities(reader, writer)
        # Whether a schema that contains itself reads itself is for Avro's package to say.
        assert kind == "AVRO" or not incompatibilities(one, one)


def fuzz_schema_values(data: bytes) -> None:
    """Fuzz bytes as a value of each type: what is read can be written and read again."""
    if not data:
        return
    kind = data[0] % len(_TYPES)
    schema = record_schema(_TYPES[kind], _SCHEMAS[kind])
    with suppress(SerializationError):
        value = schema.read(bytes(data[1:]))
        with suppress(SerializationError):
            assert schema.write(schema.read(schema.write(value))) is not None


def fuzz_converters(data: bytes) -> None:
    """Fuzz a JSON Schema or a schema of Protobuf, and a value: connectors get it, or an error.

    What they get can be written again.
    """
    if not data:
        return
    text, _, value = bytes(data[1:]).partition(b"\0")
    # As the converters themselves do.
    with suppress(DataException, SerializationError, *MALFORMED, ArithmeticError):
        if data[0] % 2:
            values = JsonSchemaValues(numeric_decimals=False, replace_null_with_default=True)
            document = JsonDocument(decoded_schema(text), {})
            schema = json_schema_reading(document, values, optional_unless_required=False)
            read = values.reader(schema)(msgspec.json.decode(value))
            values.writer(schema)(read)
            return
        options = ProtobufOptions(optional_for_nullables=bool(data[0] & 2))
        message = ProtobufSchema(text.decode("utf-8", "replace")).read_message(value)
        reading = protobuf_reading(message.DESCRIPTOR, options)
        read = reading.read(message)
        file, name, put = protobuf_writing(reading.schema, options)
        kept = ProtobufSchema(proto_text(file), message=name)
        put(written := kept.new_message(), read)
        kept.write(written)


TARGETS = {
    "fetched-batches": fuzz_fetched_batches,
    "answers": fuzz_answers,
    "schemas": fuzz_schemas,
    "schema-values": fuzz_schema_values,
    "converters": fuzz_converters,
}

if __name__ == "__main__":
    target = TARGETS[sys.argv.pop(1)]
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()
