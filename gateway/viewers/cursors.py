"""Cursors: positions in the streams of fixes and addresses, with which a viewer resumes.

Log offsets reveal how much all users send, and partitions depend on the names of devices. So
cursors are encrypted, with a key that all workers of an installation share; all that a viewer can
do with one is to send it back.
"""

from __future__ import annotations

import base64
import re
from contextlib import suppress
from functools import cached_property
from typing import Final

from nacl.exceptions import CryptoError
from nacl.secret import SecretBox

from waylog.kafka.topics import ADDRESS, LOCATION

#: The name of the key among the installation's secrets.
CURSORS_SECRET: Final = "cursors"  # noqa: S105

#: Next offset by topic and partition.
Cursor = dict[tuple[str, int], int]

_PART: Final = re.compile(r"[la]\d{1,9}-\d{1,18}")
_PARTS_MAX: Final = 2_000
#: Cursors are padded to multiples of this, or their length would reveal the digits of offsets.
_PADDED_TO: Final = 64


class BadCursor(ValueError):
    """The text is not an event id of this gateway."""


def written(topic: str, partition: int, offset: int) -> str:
    """Return one next offset, e.g. `l0-17`."""
    return f"{topic[0]}{partition}-{offset}"


def encode_cursor(cursor: Cursor) -> str:
    """Return next offsets, not encrypted, e.g. `l0-17.l1-4.a0-12`."""
    return ".".join(written(*key, offset) for key, offset in cursor.items())


def decode_cursor(text: str) -> Cursor:
    """Return the next offsets in an encoded cursor. Raises BadCursor."""
    cursor: Cursor = {}
    if not text:
        return cursor
    parts = text.split(".")
    if len(parts) > _PARTS_MAX:
        raise BadCursor("the id of an event is too long")
    for part in parts:
        if _PART.fullmatch(part) is None:
            raise BadCursor(f"{text[:60]!r} is not the id of an event of this stream")
        partition, _, offset = part[1:].partition("-")
        cursor[(LOCATION if part[0] == "l" else ADDRESS, int(partition))] = int(offset)
    return cursor


class CursorSeal:
    """Encrypts cursors to event ids for viewers, with a key of 32 bytes."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @cached_property
    def _box(self) -> SecretBox:
        return SecretBox(self._key)

    def seal(self, cursor: str) -> str:
        """Return an encoded cursor as an encrypted event id."""
        padded = cursor.encode().ljust(-(-len(cursor) // _PADDED_TO) * _PADDED_TO)
        return base64.urlsafe_b64encode(self._box.encrypt(padded)).decode()

    def open(self, event_id: str) -> Cursor:
        """Return the cursor in an event id, also in an unencrypted one of an earlier version.

        Raises BadCursor.
        """
        with suppress(BadCursor):
            return decode_cursor(event_id)
        try:
            sealed = base64.b64decode(event_id, b"-_", validate=True)
            return decode_cursor(self._box.decrypt(sealed).decode("ascii").rstrip())
        except (ValueError, CryptoError):
            raise BadCursor(f"{event_id[:60]!r} is not the id of an event of this stream") from None
