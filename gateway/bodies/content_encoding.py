"""Decompression of request bodies (RFC 9110, section 8.4.1) in a thread, up to a size limit."""

from __future__ import annotations

import zlib
from typing import Final

import zstandard

_GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS
_RAW_DEFLATE: Final = -zlib.MAX_WBITS
_ZLIB_METHOD: Final = 8
_GZIP_MEMBERS_MAX: Final = 1000


class ExpandedTooLarge(Exception):
    """The decompressed body exceeds the size limit."""


class UnknownEncoding(Exception):
    """The content encoding is not supported."""


def expanded(encoding: str, body: bytes, bytes_max: int) -> bytes:
    """Return a body decompressed from `gzip`, `deflate` or `zstd`. Blocks, but releases the GIL.

    Raises UnknownEncoding, ExpandedTooLarge, and ValueError for data that is not in that encoding.
    """
    if encoding in ("gzip", "x-gzip", "deflate"):
        plain = _inflated(body, bytes_max)
    elif encoding == "zstd":
        try:
            with zstandard.ZstdDecompressor().stream_reader(
                body, read_across_frames=True
            ) as reader:
                plain = reader.read(bytes_max + 1)
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from error
    else:
        raise UnknownEncoding(encoding)
    if len(plain) > bytes_max:
        raise ExpandedTooLarge
    return plain


def _inflated(body: bytes, bytes_max: int) -> bytes:
    # Some clients send raw deflate data, without the zlib header, as `deflate`.
    raw = body[:2] != b"\x1f\x8b" and body[:1] and body[0] & 0xF != _ZLIB_METHOD
    plain = b""
    for _ in range(_GZIP_MEMBERS_MAX):
        inflater = zlib.decompressobj(_RAW_DEFLATE if raw else _GZIP_OR_ZLIB)
        try:
            plain += inflater.decompress(body, bytes_max + 1 - len(plain))
        except zlib.error as error:
            raise ValueError(str(error)) from error
        if len(plain) > bytes_max:
            return plain
        if not inflater.eof:
            raise ValueError("the end is missing")
        body = inflater.unused_data
        if not body:
            return plain
    raise ValueError("too many members")
