"""What a process without the master key does with a log whose values may be sealed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from operator import methodcaller
from typing import TYPE_CHECKING, Final

from waylog.config import ConfigError
from waylog.kafka.clients import LogForbidden
from waylog.kafka.ranges.topic_reader import read_topic
from waylog.kafka.topics import VALUE_KEY
from waylog.sealing.sealing import ENVIRONMENT, MAGIC, is_sealed, key_id_of, seals_forwardings

if TYPE_CHECKING:
    from confluent_kafka import Message

_FOREIGN_MAX: Final = 10_000

_value: Final = methodcaller("value")

_KEY_IS_MISSING: Final = (
    f"the log's values are sealed: {ENVIRONMENT} has to name the file of the master key "
    "(`waylog up --encrypt-values` does that)"
)


def refuse_sealed_log(bootstrap_servers: str) -> None:
    """Raise ConfigError for a log whose values are sealed; LogUnreachable.

    For writers: what they wrote would lie in the clear beside sealed values. The keys of users'
    forwardings do not count, since those are sealed on each platform.
    """
    known: set[bytes] = set()
    try:
        for record in read_topic(bootstrap_servers, VALUE_KEY):
            name = record.key() or b""
            if record.value() is None:
                known.discard(name)
            elif not seals_forwardings(name.rpartition(b"\n")[0].decode("utf-8", "replace")):
                known.add(name)
    except LogForbidden:
        # Without the right to the keys nothing could be sealed with them either.
        return
    if known:
        raise ConfigError(_KEY_IS_MISSING)


class Unopened:
    """Lets messages through as they are, except those that the log's keys seal.

    Other programs may write values that begin as sealed ones do. Only the id of a key tells them
    apart: if these were refused, anybody who may write to a topic could stop its readers.
    """

    def __init__(self, bootstrap_servers: str, properties: Mapping[str, str] | None = None) -> None:
        """`properties` are those with which the client logs in."""
        self._bootstrap_servers: Final = bootstrap_servers
        self._properties: Final = properties
        #: Ids that are of no key of the log. A key is in the log before the values it seals, so
        #: they never become one.
        self._foreign: Final[set[bytes]] = set()

    def checked(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages; raises ConfigError for a sealed one, LogUnreachable."""
        # In C: this is asked of every record that is read.
        values = filter(None, map(_value, messages))
        if any(map(bytes.startswith, values, repeat(MAGIC))):
            self.check(each.value() for each in messages)
        return messages if isinstance(messages, list) else list(messages)

    def check(self, values: Iterable[bytes | None]) -> None:
        """Raise ConfigError if the log seals one of the values, LogUnreachable."""
        found = {key_id_of(each) for each in values if each is not None and is_sealed(each)}
        unknown = found - self._foreign
        if unknown:
            self._refuse_known(unknown)
            if len(self._foreign) >= _FOREIGN_MAX:
                self._foreign.clear()
            self._foreign.update(unknown)

    def _refuse_known(self, ids: set[bytes]) -> None:
        wanted = {each.hex().encode() for each in ids}
        known: set[bytes] = set()
        try:
            for record in read_topic(self._bootstrap_servers, VALUE_KEY, self._properties):
                key_id = (record.key() or b"").rpartition(b"\n")[2]
                if record.value() is None:
                    known.discard(key_id)
                elif key_id in wanted:
                    known.add(key_id)
        except LogForbidden:
            # A reader without the right to the keys cannot open values either, whoever sealed them.
            known = wanted
        if known:
            raise ConfigError(_KEY_IS_MISSING)
