"""The fuzz targets of our own clients: their parsers, with bytes of a broker.

Run by tests/fuzz/run.py, which compiles them with coverage and AddressSanitizer.
"""

from __future__ import annotations

import struct
import sys
from contextlib import suppress

import atheris
import google_crc32c

from waylog.kafka.fetched_records import AbortedTransactions, read_batches

with atheris.instrument_imports(include=["waylog.kafka.protocol.requests"]):
    from waylog.kafka.protocol import requests as kafka_requests
    from waylog.kafka.protocol.requests import MalformedAnswer

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


TARGETS = {"fetched-batches": fuzz_fetched_batches, "answers": fuzz_answers}

if __name__ == "__main__":
    target = TARGETS[sys.argv.pop(1)]
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()
