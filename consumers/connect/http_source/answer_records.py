"""Records out of an answer: which are new, and the offset that comes after them. Sans-IO."""

from __future__ import annotations

import hashlib
import logging
from typing import Any, Final, NamedTuple

import msgspec

from consumers.connect.data.exceptions import DataException
from consumers.connect.http_source.json_pointer import MISSING
from consumers.connect.http_source.positions import NoPosition
from consumers.connect.http_source.properties import Settings
from waylog.malformed import MALFORMED

logger = logging.getLogger(__name__)

_DIGEST_BYTES: Final = 16

Offset = str | int | float


class Found(NamedTuple):
    """A record of an answer: its key and value as texts."""

    key: str | None
    value: str


class AnswerRecords:
    """Remembers the records of the last answer: servers repeat those at the offset itself."""

    def __init__(self, settings: Settings) -> None:
        self._settings: Final = settings
        self._known: frozenset[bytes] = frozenset()

    def read(self, body: bytes, offset: Offset | None) -> tuple[list[Found], Offset | None]:
        """Return the records that the last answer did not have, and the newest offset.

        `offset` is the newest one so far. Raises DataException for what is no JSON, or has no
        records where they should be.
        """
        try:
            document = msgspec.json.decode(body)
        except MALFORMED as error:
            raise DataException(f"the answer is no JSON: {error}") from error
        records = self._settings.records.find(document)
        if records is MISSING:
            raise DataException("the answer has nothing where its records should be")
        if not isinstance(records, list):
            records = [] if records is None else [records]
        found: list[Found] = []
        digests: set[bytes] = set()
        for record in records:
            text = msgspec.json.encode(record)
            digest = hashlib.blake2b(text, digest_size=_DIGEST_BYTES).digest()
            offset = self._later(offset, record)
            if digest not in self._known and digest not in digests:
                found += self._found(record, text)
            digests.add(digest)
        self._known = frozenset(digests)
        return found, offset

    def _found(self, record: Any, text: bytes) -> list[Found]:
        settings = self._settings
        key = None if settings.key is None else settings.key.find(record)
        if settings.template is not None:
            try:
                if not isinstance(record, dict):
                    raise NoPosition("it is no object")
                text = msgspec.json.encode(settings.template.value(record))
            except NoPosition as error:
                # The next answers have it again; it would never become a position.
                logger.warning("a record is left out: %s", error)
                return []
        return [Found(_key_text(key), text.decode())]

    def _later(self, offset: Offset | None, record: Any) -> Offset | None:
        if self._settings.offset is None:
            return offset
        found = self._settings.offset.find(record)
        if isinstance(found, bool) or not isinstance(found, (str, int, float)):
            return offset
        if offset is None or isinstance(found, str) != isinstance(offset, str):
            return found
        return max(offset, found)


def _key_text(key: Any) -> str | None:
    if key is None or key is MISSING:
        return None
    return key if isinstance(key, str) else msgspec.json.encode(key).decode()
