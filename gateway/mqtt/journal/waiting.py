"""Messages that wait for sessions not resumed yet, from the log or from another worker.

They are kept apart from the records of the sessions, which are read more often.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

import msgspec

from gateway.mqtt.journal.journal_codec import JournalCodec
from gateway.mqtt.journal.stored import (
    SessionKey,
    StoredDelivery,
    StoredPart,
    StoredSession,
    is_sendable,
)
from gateway.mqtt.left_out import LeftOut
from gateway.mqtt.packets.message import Message
from waylog.malformed import MALFORMED

logger = logging.getLogger(__name__)

#: Messages that one step decodes.
_READ_A_STEP: Final = 200

Waiting = tuple[StoredDelivery, Message]
_Version = tuple[str, int, int]


class StoredWaiting:
    """The waiting messages of one worker's stored sessions: encoded parts by session and number."""

    def __init__(self, forms: JournalCodec) -> None:
        #: Messages that no client could read.
        self.purged = 0
        self._forms = forms
        self._left_out = LeftOut()
        self._parts: dict[SessionKey, dict[int, bytes]] = {}
        # Decoded messages of clients that are about to be connected, with the session's version.
        self._prepared: dict[SessionKey, tuple[_Version, list[Waiting]]] = {}
        self._decoder = msgspec.msgpack.Decoder(StoredPart)

    def __contains__(self, key: SessionKey) -> bool:
        return key in self._parts

    def add(self, key: SessionKey, number: int, value: bytes) -> None:
        """Keep a part that was read from the log."""
        self._parts.setdefault(key, {})[number] = value

    def replace(self, key: SessionKey, worker: str, at: int, waiting: list[StoredDelivery]) -> int:
        """Replace the parts by what a worker has handed over; return the number of parts."""
        self._parts.pop(key, None)
        if not waiting:
            return 0
        self.add(key, 0, msgspec.msgpack.encode(StoredPart(worker, at, waiting)))
        return 1

    def rename(self, key: SessionKey, named: SessionKey) -> None:
        """Keep the parts of a session under another key."""
        parts = self._parts.pop(key, None)
        if parts is not None:
            self._parts[named] = parts

    def forget(self, key: SessionKey) -> None:
        """Drop the parts of a session that is over, live here, or another worker's."""
        self._parts.pop(key, None)

    def of(self, key: SessionKey, stored: StoredSession) -> Iterator[StoredDelivery]:
        """Yield the deliveries that wait for a client, in order.

        Parts written by another stop than the session's record are not used.
        """
        yield from stored.waiting
        parts = self._parts.get(key, {})
        for number in range(stored.parts):
            part = self._part(parts.get(number))
            if part is None or (part.worker, part.at) != (stored.worker, stored.at):
                logger.error("what waits for a client of %r is not in the log whole", key[0])
                return
            yield from part.waiting

    def _part(self, value: bytes | None) -> StoredPart | None:
        try:
            return None if value is None else self._decoder.decode(value)
        except MALFORMED:
            return None

    def prepare(self, key: SessionKey, stored: StoredSession) -> Iterator[None]:
        """Decode the messages that wait for a client step by step before its session is resumed.

        This changes nothing else. The caller then calls `unprepare`, whether the client was
        connected or not.
        """
        prepared: list[Waiting] = []
        for number, each in enumerate(self._read(key, stored), 1):
            prepared.append(each)
            if not number % _READ_A_STEP:
                yield
        self._prepared[key] = _version_of(stored), prepared

    def unprepare(self, key: SessionKey) -> None:
        """Discard the decoded messages of a client."""
        self._prepared.pop(key, None)

    def take(self, key: SessionKey, stored: StoredSession) -> list[Waiting]:
        """Return and remove the messages that wait for a session that is resumed now."""
        version, waiting = self._prepared.pop(key, (None, []))
        if version != _version_of(stored):
            waiting = list(self._read(key, stored))
        self._parts.pop(key, None)
        return waiting

    def _read(self, key: SessionKey, stored: StoredSession) -> Iterator[Waiting]:
        for each in self.of(key, stored):
            try:
                message = self._forms.message(each.message, stored.at)
                sendable = is_sendable(message)
            except Exception as error:
                self._left_out.tell(each.message.topic, error)
                continue
            if sendable:
                yield each, message
            else:
                self.purged += 1


def _version_of(stored: StoredSession) -> _Version:
    # The time alone may be equal when workers pass a session on at once.
    return stored.worker, stored.at, stored.epoch
