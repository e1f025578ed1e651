"""Cursors: the place of a viewer in the streams of fixes and addresses, which it says again.

Offsets of the log count what everybody sends, by partitions that follow from the names of devices.
So they are sealed, by a key that all workers of an installation share: what a viewer is told has
no meaning but to be shown again.
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

#: The name of the key among the platform's secrets.
CURSORS_SECRET: Final = "cursors"  # noqa: S105

#: Next offset by topic and partition.
Cursor = dict[tuple[str, int], int]

_PART: Final = re.compile(r"[la]\d{1,9}-\d{1,18}")
_PARTS_MAX: Final = 2_000
#: The length would else tell how many digits the offsets have.
_PADDED_TO: Final = 64


class BadCursor(ValueError):
    """Not an id of one of our events."""


def written(topic: str, partition: int, offset: int) -> str:
    """One next offset, e.g. `l0-17`."""
    return f"{topic[0]}{partition}-{offset}"


def encode_cursor(cursor: Cursor) -> str:
    """Next offsets, not sealed, e.g. `l0-17.l1-4.a0-12`."""
    return ".".join(written(*key, offset) for key, offset in cursor.items())


def decode_cursor(text: str) -> Cursor:
    """Raises BadCursor."""
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
    """Makes the ids of events that viewers are told, with a key of 32 bytes."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @cached_property
    def _box(self) -> SecretBox:
        return SecretBox(self._key)

    def seal(self, cursor: str) -> str:
        """An encoded cursor as the id of an event."""
        padded = cursor.encode().ljust(-(-len(cursor) // _PADDED_TO) * _PADDED_TO)
        return base64.urlsafe_b64encode(self._box.encrypt(padded)).decode()

    def open(self, event_id: str) -> Cursor:
        """The cursor that an id has; also that of one of before they were sealed.

        Raises BadCursor.
        """
        with suppress(BadCursor):
            return decode_cursor(event_id)
        try:
            sealed = base64.b64decode(event_id, b"-_", validate=True)
            return decode_cursor(self._box.decrypt(sealed).decode("ascii").rstrip())
        except (ValueError, CryptoError):
            raise BadCursor(f"{event_id[:60]!r} is not the id of an event of this stream") from None
