"""The codecs of waylog.kafka.protocol.compression with the errors that a broker sends."""

from __future__ import annotations

from typing import Final

from broker_core.errors import CorruptMessage, MessageTooLarge, UnsupportedCompressionType
from waylog.kafka.protocol import compression
from waylog.kafka.protocol.compression import Buffer, Compression

__all__ = ["EXPANDED_BYTES_MAX", "Compression", "codec_named", "compress", "decompress"]

EXPANDED_BYTES_MAX: Final = compression.EXPANDED_BYTES_MAX


def codec_named(name: str) -> Compression:
    """Return the codec with this name in Kafka's setting `compression.type`.

    Raises UnsupportedCompressionType; `producer` and `uncompressed` mean NONE.
    """
    try:
        return Compression.named(name)
    except compression.UnknownCodec as problem:
        raise UnsupportedCompressionType(str(problem)) from None


def compress(codec: int, data: Buffer) -> bytes:
    """Compress the records of a batch; raises UnsupportedCompressionType."""
    try:
        return compression.compress(codec, data)
    except compression.UnknownCodec as problem:
        raise UnsupportedCompressionType(str(problem)) from None


def decompress(codec: int, data: Buffer, max_bytes: int = EXPANDED_BYTES_MAX) -> bytes:
    """Decompress the records of a batch.

    Raises CorruptMessage for invalid data, MessageTooLarge for more than `max_bytes`,
    UnsupportedCompressionType.
    """
    try:
        return compression.decompress(codec, data, max_bytes)
    except compression.ExpandsTooFar as problem:
        raise MessageTooLarge(str(problem)) from None
    except compression.UnknownCodec as problem:
        raise UnsupportedCompressionType(str(problem)) from None
    except compression.CompressionError as problem:
        raise CorruptMessage(str(problem)) from None
