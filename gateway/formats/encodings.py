"""Text of bodies that is not in plain UTF-8, which is all that parsers read."""

from __future__ import annotations

import codecs
import re
from typing import Final

from gateway.formats import Context

_CHARSET: Final = re.compile(r"charset\s*=\s*\"?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
#: Encodings of a byte for each character, which headers name; others than UTF-8 are rarely sent.
_BYTES: Final = frozenset(("iso8859-1", "iso8859-15", "cp1252"))
_WIDE: Final = frozenset(("utf-16", "utf-16-le", "utf-16-be"))
#: The first bytes of JSON in UTF-8, without a mark.
_PLAIN: Final = (b"{", b"[")
_WIDE_JSON: Final = (b"{\0", b"[\0", b"\0{", b"\0[")


def in_utf8(body: bytes, context: Context) -> bytes:
    """Return a body in UTF-8, without a byte order mark.

    UTF-16 is recognised by its first bytes. Other encodings are those of the content type, and only
    if the body is not UTF-8 anyway: frameworks name a charset that nobody meant. What is in none of
    these is returned as it is.
    """
    content_type = (context.headers or {}).get("Content-Type", "")
    if body[:1] in _PLAIN and body[1:2] != b"\0" and "=" not in content_type:
        return body
    if body.startswith(codecs.BOM_UTF8):
        return body[len(codecs.BOM_UTF8) :]
    charset = _charset_of(content_type)
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif body[:2] in _WIDE_JSON or (charset in _WIDE and b"\0" in body[:2]):
        encoding = "utf-16-be" if body.startswith(b"\0") else "utf-16-le"
    elif charset in _BYTES and not _is_utf8(body):
        encoding = charset
    else:
        return body
    try:
        return body.decode(encoding).encode()
    except UnicodeError:
        return body


def _charset_of(content_type: str) -> str:
    """Return Python's name of the charset that a content type names, "" for none or unknown."""
    found = _CHARSET.search(content_type)
    if found is None:
        return ""
    try:
        return codecs.lookup(found[1]).name
    except LookupError:
        return ""


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
