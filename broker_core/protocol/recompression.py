"""Recompression of batches with the codec of a topic's `compression.type`."""

from __future__ import annotations

import struct
from typing import Final

from broker_core.protocol.batch_header import HEADER_BYTES, BatchHeader
from broker_core.protocol.compression import EXPANDED_BYTES_MAX, compress, decompress
from broker_core.protocol.crc32c import crc32c

Buffer = bytes | bytearray | memoryview

_COMPRESSION_MASK: Final = 0x07
_LENGTH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
_AT_LENGTH, _AT_CRC, _AT_ATTRIBUTES = 8, 17, 21
_UNCOUNTED_BYTES: Final = 12  # base offset and the length field itself


def recompress(
    data: Buffer, header: BatchHeader, codec: int, expanded_bytes_max: int = EXPANDED_BYTES_MAX
) -> Buffer:
    """Return a batch of `data` compressed with `codec`; one that uses it already stays as it is.

    The records themselves are not changed. Raises CorruptMessage, MessageTooLarge.
    """
    batch = memoryview(data)[header.position : header.position + header.size]
    if header.compression == codec:
        return batch
    records = bytes(batch[HEADER_BYTES:])
    if header.compression:
        records = decompress(header.compression, records, expanded_bytes_max)
    if codec:
        records = compress(codec, records)
    changed = bytearray(batch[:HEADER_BYTES])
    changed += records
    _LENGTH.pack_into(changed, _AT_LENGTH, len(changed) - _UNCOUNTED_BYTES)
    attributes = header.attributes & ~_COMPRESSION_MASK | codec
    _ATTRIBUTES.pack_into(changed, _AT_ATTRIBUTES, attributes)
    _CRC.pack_into(changed, _AT_CRC, crc32c(memoryview(changed)[_AT_ATTRIBUTES:]))
    return changed
