"""Compressed bodies (RFC 9110, section 8.4.1), expanded in a thread and up to a size alone."""

from __future__ import annotations

import zlib
from typing import Final

import zstandard

_GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS
_RAW_DEFLATE: Final = -zlib.MAX_WBITS
_ZLIB_METHOD: Final = 8
_GZIP_MEMBERS_MAX: Final = 1000


class ExpandedTooLarge(Exception):
    """The body is larger than it may be."""


class UnknownEncoding(Exception):
    """No encoding of ours."""


def expanded(encoding: str, body: bytes, bytes_max: int) -> bytes:
    """A body as it was before `gzip`, `deflate` or `zstd`; blocks, without holding the interpreter.

    Raises UnknownEncoding, ExpandedTooLarge, and ValueError for what is not so encoded.
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
    # Some clients say deflate and leave out the header of zlib.
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
