"""Bytes of records as people can read them."""

from __future__ import annotations

from typing import Final

_DUMP_BYTES: Final = 16


def readable_text(value: bytes) -> str | None:
    """Return bytes as text if all of it can be shown, None otherwise."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if all(each.isprintable() or each in "\n\t" for each in text) else None


def hex_dump(value: bytes) -> str:
    """Return lines of sixteen bytes: place, hexadecimal, and letters where there are some."""
    lines = []
    for start in range(0, len(value), _DUMP_BYTES):
        piece = value[start : start + _DUMP_BYTES]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
        lines.append(f"{start:08x}  {piece.hex(' '):{3 * _DUMP_BYTES - 1}}  {text}")
    return "\n".join(lines)
