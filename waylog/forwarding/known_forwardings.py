"""All forwardings and their progress, sealed as in the log, and opened when they are asked for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from waylog.forwarding.definition import (
    Forwarding,
    Progress,
    decode_forwarding,
    decode_progress,
    parse_key,
    parse_progress_key,
    record_key,
)
from waylog.forwarding.pauses import KnownPauses, decode_pause, parse_pause_key
from waylog.kafka.topics import FORWARDING
from waylog.malformed import MALFORMED
from waylog.sealing.sealing import is_sealed

if TYPE_CHECKING:
    from waylog.sealing.value_keys import KeyRing

logger = logging.getLogger(__name__)


class KnownForwardings:
    """One thread takes records, others may ask."""

    def __init__(self, keys: KeyRing) -> None:
        self._keys: Final = keys
        #: Values by user and id; those of progress by partition, too.
        self._forwardings: Final[dict[str, dict[str, bytes]]] = {}
        self._progress: Final[dict[tuple[str, str], dict[int, bytes]]] = {}
        #: Values of what administrators have paused, by the keys of their records.
        self._pauses: dict[bytes, bytes] = {}

    def take(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        """Take a record of one of the two topics; never raises."""
        try:
            if topic == FORWARDING and parse_pause_key(key or b"") is not None:
                self._take_pause(key or b"", value)
            elif topic == FORWARDING:
                self._take_forwarding(*parse_key(key or b""), value)
            else:
                self._take_progress(*parse_progress_key(key or b""), value)
        except MALFORMED:
            logger.warning("a record of topic %s is none of ours", topic)

    def _take_forwarding(self, user: str, forwarding_id: str, value: bytes | None) -> None:
        # Dictionaries are replaced: another thread may be going through the one before.
        others = dict(self._forwardings.get(user, {}))
        if value is None:
            others.pop(forwarding_id, None)
        else:
            others[forwarding_id] = value
        if others:
            self._forwardings[user] = others
        else:
            self._forwardings.pop(user, None)

    def _take_progress(
        self, user: str, forwarding_id: str, partition: int, value: bytes | None
    ) -> None:
        key = (user, forwarding_id)
        others = dict(self._progress.get(key, {}))
        if value is None:
            others.pop(partition, None)
        else:
            others[partition] = value
        if others:
            self._progress[key] = others
        else:
            self._progress.pop(key, None)

    def _take_pause(self, key: bytes, value: bytes | None) -> None:
        others = {each: one for each, one in self._pauses.items() if each != key}
        self._pauses = others if value is None else others | {key: value}

    def users(self) -> list[str]:
        """Return the users who have forwardings."""
        return sorted(self._forwardings)

    def pauses(self) -> KnownPauses:
        """Return what administrators have paused; raises as `of_user` does."""
        found = KnownPauses()
        for key, value in self._pauses.items():
            plain = self._opened(key, value)
            try:
                if plain is not None:
                    found.put(parse_pause_key(key) or "", decode_pause(plain))
            except MALFORMED:
                logger.warning("what an administrator has paused cannot be read")
        return found

    def of_user(self, user: str) -> dict[str, Forwarding]:
        """Return the forwardings of a user by id; raises LogUnreachable, ConfigError."""
        found: dict[str, Forwarding] = {}
        for forwarding_id, value in self._forwardings.get(user, {}).items():
            plain = self._opened(record_key(user, forwarding_id), value)
            try:
                if plain is not None:
                    found[forwarding_id] = decode_forwarding(plain)
            except MALFORMED:
                logger.warning("a forwarding of user %r cannot be read", user)
        return found

    def progress(self, user: str, forwarding_id: str) -> dict[int, Progress]:
        """Return the progress of a forwarding by partition; raises as `of_user` does."""
        found: dict[int, Progress] = {}
        for partition, value in self._progress.get((user, forwarding_id), {}).items():
            plain = self._opened(record_key(user, forwarding_id, partition), value)
            try:
                if plain is not None:
                    found[partition] = decode_progress(plain)
            except MALFORMED:
                logger.warning("the progress of a forwarding of user %r cannot be read", user)
        return found

    def _opened(self, key: bytes, value: bytes) -> bytes | None:
        """Return the plain value; None if its key was destroyed, or it was tampered with."""
        from waylog.sealing.value_encryption import NotAuthentic

        if not is_sealed(value):
            return value
        try:
            return self._keys.open_value(value, key)
        except NotAuthentic:
            return None
