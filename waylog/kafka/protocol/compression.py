"""The codecs of record batches for clients and brokers, with a limit on what a batch expands to.

A batch of a few kilobytes can expand to gigabytes. Every codec here therefore decompresses a stream
that stops at `max_bytes`, or, if the format begins with the length (snappy), checks that first.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

Buffer = bytes | bytearray | memoryview

EXPANDED_BYTES_MAX: Final = 32 * 1024 * 1024
_ZSTD_WINDOW_BYTES_MAX: Final = 32 * 1024 * 1024  # level 19 of a one-megabyte batch needs 1 MiB
_LZ4_RATIO: Final = 16  # higher than for records of fixes
_LZ4_BYTES_MIN: Final = 4096
#: Frames, or members, of a batch: producers write one. Each costs some microseconds, and may have
#: no more than ten bytes.
_FRAMES_MAX: Final = 1_000
#: Bytes of a frame that are given to its decompressor at first.
_FED_BYTES_MIN: Final = 64 * 1024
_GZIP_WBITS: Final = 31  # zlib's value for "with gzip header and trailer"

# Framing of the Java library snappy-java ("xerial"), which Kafka's Java clients use: magic,
# version, lowest compatible version, then blocks of a big-endian length and raw snappy.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
_XERIAL_BLOCK_BYTES: Final = 32 * 1024


class CompressionError(Exception):
    """Records that are compressed cannot be read."""


class ExpandsTooFar(CompressionError):
    """Records expand to more bytes than are allowed."""


class UnknownCodec(CompressionError):
    """There is no such codec."""


class Compression(IntEnum):
    """Codec of a batch: the lowest three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def named(cls, name: str) -> Compression:
        """Return the codec with this name in Kafka's setting `compression.type`.

        Raises UnknownCodec; `producer` and `uncompressed` mean NONE.
        """
        if name in {"none", "producer", "uncompressed"}:
            return cls.NONE
        try:
            return cls[name.upper()]
        except KeyError:
            raise UnknownCodec(f"{name!r} is not a compression type") from None


def compress(codec: int, data: Buffer) -> bytes:
    """Compress the records of a batch; raises UnknownCodec."""
    if codec == Compression.NONE:
        return bytes(data)
    if codec == Compression.GZIP:
        from isal import igzip

        return igzip.compress(data, 1)
    if codec == Compression.SNAPPY:
        return _compress_xerial(data)
    if codec == Compression.LZ4:
        import lz4.frame

        return bytes(lz4.frame.compress(data))
    if codec == Compression.ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(level=1).compress(data)
    raise UnknownCodec(f"{codec} is not a compression type")


def decompress(codec: int, data: Buffer, max_bytes: int = EXPANDED_BYTES_MAX) -> bytes:
    """Decompress the records of a batch.

    Raises CompressionError for invalid data, ExpandsTooFar for more than `max_bytes`,
    UnknownCodec.
    """
    if codec == Compression.NONE:
        if len(data) > max_bytes:
            raise _too_large(max_bytes)
        return bytes(data)
    if codec == Compression.GZIP:
        return _decompress_gzip(data, max_bytes)
    if codec == Compression.SNAPPY:
        return _decompress_snappy(data, max_bytes)
    if codec == Compression.LZ4:
        return _decompress_lz4(data, max_bytes)
    if codec == Compression.ZSTD:
        return _decompress_zstd(data, max_bytes)
    raise UnknownCodec(f"{codec} is not a compression type")


def _too_large(max_bytes: int) -> ExpandsTooFar:
    return ExpandsTooFar(f"a compressed batch expands to more than {max_bytes} bytes")


def _unreadable(problem: Exception) -> CompressionError:
    return CompressionError(f"compressed records cannot be read: {problem}")


def _too_many_frames() -> CompressionError:
    return CompressionError(f"compressed records are in more than {_FRAMES_MAX} frames")


def _stream(new_stream: Any, data: Buffer, max_bytes: int, error: Any) -> bytes:
    """Decompress one or more consecutive members, as gzip allows."""
    parts: list[bytes] = []
    size = 0
    view = memoryview(data)
    position = frames = 0
    while position < len(view):
        frames += 1
        if frames > _FRAMES_MAX:
            raise _too_many_frames()
        stream = new_stream()
        step = _FED_BYTES_MIN
        while not stream.eof:
            given = view[position : position + step]
            if not given:
                raise CompressionError("compressed records end early")
            try:
                # One byte over the limit distinguishes data that just fits from data that is too
                # large.
                part = stream.decompress(given, max_length=max_bytes - size + 1)
            except error as problem:
                raise _unreadable(problem) from None
            size += len(part)
            if size > max_bytes:
                raise _too_large(max_bytes)
            parts.append(part)
            # What is behind the end of a member is copied: of a short one, all that was given.
            position += len(given) - len(stream.unused_data or b"")
            step *= 4
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompress_gzip(data: Buffer, max_bytes: int) -> bytes:
    from isal import isal_zlib

    def new_stream() -> Any:
        return isal_zlib.decompressobj(wbits=_GZIP_WBITS)

    return _stream(new_stream, data, max_bytes, isal_zlib.error)


def _decompress_lz4(data: Buffer, max_bytes: int) -> bytes:
    import lz4.frame

    size = len(data)
    if size <= _FED_BYTES_MIN:
        # Nearly all batches are one short frame.
        room = min(_LZ4_RATIO * size + _LZ4_BYTES_MIN, max_bytes + 1)
        context = lz4.frame.create_decompression_context()
        try:
            whole: bytes
            whole, read, is_end = lz4.frame.decompress_chunk(context, data, max_length=room)
        except RuntimeError as problem:
            raise _unreadable(problem) from None
        if is_end and read == size:
            if len(whole) > max_bytes:
                raise _too_large(max_bytes)
            return whole
    return _decompress_lz4_frames(data, max_bytes)


def _decompress_lz4_frames(data: Buffer, max_bytes: int) -> bytes:
    import lz4.frame

    parts: list[bytes] = []
    left = max_bytes + 1
    view = memoryview(data)
    position = frames = 0
    while position < len(view):
        frames += 1
        if frames > _FRAMES_MAX:
            raise _too_many_frames()
        stream = lz4.frame.LZ4FrameDecompressor()
        step = _FED_BYTES_MIN
        room = 0
        while not stream.eof:
            given = view[position : position + step] if stream.needs_input else b""
            position += len(given)
            step *= 4
            # The decompressor allocates all the room it is given at once: begin small, and grow.
            room = max(4 * room, _LZ4_RATIO * len(given) + _LZ4_BYTES_MIN)
            try:
                part = stream.decompress(given, max_length=min(room, left))
            except RuntimeError as problem:
                raise _unreadable(problem) from None
            parts.append(part)
            left -= len(part)
            if left <= 0:
                raise _too_large(max_bytes)
            if not given and not part and not stream.eof:
                raise CompressionError("compressed records end early")
        # What is behind the end of a frame is copied: of a short one, all that was given.
        position -= len(stream.unused_data or b"")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompress_zstd(data: Buffer, max_bytes: int) -> bytes:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
    try:
        with decompressor.stream_reader(data, read_across_frames=True) as reader:
            expanded = reader.read(max_bytes + 1)
    except zstandard.ZstdError as problem:
        raise _unreadable(problem) from None
    if len(expanded) > max_bytes:
        raise _too_large(max_bytes)
    return expanded


def _snappy_length(block: Buffer) -> int:
    """Return the decompressed length in a raw snappy block: a little-endian varint, 32 bits."""
    length = 0
    for index, byte in enumerate(bytes(block[:5])):
        length |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return length
    raise CompressionError("compressed records cannot be read: snappy length is not a number")


def _decompress_snappy(data: Buffer, max_bytes: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        _check_length(view, max_bytes, max_bytes)
        return _expand_block(view)
    if len(view) < len(_XERIAL_HEADER):
        raise CompressionError("compressed records end early")
    parts: list[bytes] = []
    position, size = len(_XERIAL_HEADER), 0
    while position < len(view):
        length = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if not 0 < length <= len(view) - position:
            raise CompressionError("compressed records end early")
        block = view[position : position + length]
        _check_length(block, max_bytes - size, max_bytes)
        part = _expand_block(block)
        parts.append(part)
        size += len(part)
        position += length
    return b"".join(parts)


def _check_length(block: memoryview, room: int, max_bytes: int) -> None:
    if _snappy_length(block) > room:
        raise _too_large(max_bytes)


def _expand_block(block: memoryview) -> bytes:
    import cramjam

    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as problem:
        raise _unreadable(problem) from None


def _compress_xerial(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)
