"""The forwardings of users, and how far they are, as the log has them when somebody asks.

Values stay sealed until a user's are asked for: without the key others' receipts are as ever.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from waylog.audit.log_reader import LogReader
from waylog.forwarding.keys import NO_KEY, forwarding_keys
from waylog.forwarding.known_forwardings import KnownForwardings
from waylog.forwarding.pauses import KnownPauses, parse_pause_key
from waylog.forwarding.reach import LogState, Reach
from waylog.kafka.ranges.log_ranges import Range, Watermarks
from waylog.kafka.topics import FORWARDING, FORWARDING_PROGRESS

if TYPE_CHECKING:
    from waylog.sealing.value_keys import KeyRing

#: Values by user and key.
_Values = dict[str, dict[bytes, bytes]]

#: Seconds in which open transactions may end; that of a killed worker takes longer.
_DECIDED_S: Final = 5.0
_LOOK_AGAIN_S: Final = 0.05

#: Whose pauses are that name no user.
_NOBODY: Final = ""


class ForwardingsUnknown(Exception):
    """What a user's forwardings have sent cannot be told; the message says why."""


class ForwardingRecords:
    """The newest records of both topics. One that is kept goes on where it has read to."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers: Final = bootstrap_servers
        self._positions: Final[dict[tuple[str, int], int]] = {}
        #: Values of forwardings, of pauses and of progress, by user and key.
        self._forwardings: Final[_Values] = {}
        self._pauses: Final[_Values] = {}
        self._progress: Final[_Values] = {}
        self._everybodys: KnownPauses | None = None
        #: Records that are not read yet because they are too many for one answer.
        self._left = 0
        self._knows_users = False

    def refresh(self, log: LogReader, records_max: int | None = None) -> None:
        """Read what is new, at most so many records of each topic; raises as LogReader does.

        Progress is read only if there are forwardings.
        """
        self._left, self._everybodys = 0, None
        self._read(log, FORWARDING, records_max)
        self._knows_users = not self._left
        if self._forwardings:
            self._read(log, FORWARDING_PROGRESS, records_max)

    def _read(self, log: LogReader, topic: str, records_max: int | None) -> None:
        marks, ends = _decided(log, topic)
        for partition, (low, high) in marks.items():
            place = (topic, partition)
            position = self._positions.get(place, low)
            if position > high:
                # It is another topic than it was.
                for values in self._all(topic):
                    values.clear()
                position = low
            end = high if records_max is None else min(high, max(position, low) + records_max)
            for records in log.read_as_stored(topic, {partition: Range(position, end)}):
                for record in records:
                    self._take(topic, record.key(), record.value())
            self._positions[place] = end
            self._left += max(high, ends[partition]) - end

    def _take(self, topic: str, key: bytes | str | None, value: bytes | str | None) -> None:
        if not isinstance(key, bytes):
            return
        if topic == FORWARDING_PROGRESS:
            kept = self._progress
        else:
            kept = self._forwardings if parse_pause_key(key) is None else self._pauses
        user = key.partition(b"\n")[0].decode("utf-8", "replace")
        values = kept.setdefault(user, {})
        if isinstance(value, bytes):
            values[key] = value
        else:
            values.pop(key, None)
            if not values:
                del kept[user]

    def _all(self, topic: str) -> tuple[_Values, ...]:
        return (self._forwardings, self._pauses) if topic == FORWARDING else (self._progress,)

    @property
    def is_empty(self) -> bool:
        """True if nobody has any forwarding."""
        return not self._forwardings

    def of_user(self, user: str, log: LogState) -> list[Reach]:
        """Return the forwardings of a user, in the order of their names.

        Raises ForwardingsUnknown, and LogUnreachable, ConfigError for a wrong key.
        """
        own = self._forwardings.get(user)
        if own is None and self._knows_users:
            return []
        if own is None or self._left:
            raise ForwardingsUnknown(
                f"{self._left} records that tell how far forwardings are have yet to be read; the "
                "next answer goes on"
            )
        keys = forwarding_keys(self._servers)
        if keys is None:
            raise ForwardingsUnknown(NO_KEY)
        known = KnownForwardings(keys)
        _feed(known, FORWARDING, own)
        _feed(known, FORWARDING, self._pauses.get(user, {}))
        _feed(known, FORWARDING_PROGRESS, self._progress.get(user, {}))
        pauses = known.pauses()
        for pause_id, pause in self._pauses_of_everybody(keys).items():
            pauses.put(pause_id, pause)
        reaches = [
            Reach(
                *(user, each, forwarding, known.progress(user, each)),
                pauses.of(user, each, forwarding),
                log,
            )
            for each, forwarding in known.of_user(user).items()
        ]
        return sorted(reaches, key=lambda each: (each.forwarding.name, each.id))

    def _pauses_of_everybody(self, keys: KeyRing) -> KnownPauses:
        if self._everybodys is None:
            known = KnownForwardings(keys)
            _feed(known, FORWARDING, self._pauses.get(_NOBODY, {}))
            self._everybodys = known.pauses()
        return self._everybodys


def _decided(log: LogReader, topic: str) -> tuple[dict[int, Watermarks], dict[int, int]]:
    """Return the watermarks of committed records, and the ends that they have reached if possible.

    What is committed behind a transaction that is still open cannot be read; a group may have gone
    on by it already.
    """
    deadline = time.monotonic() + _DECIDED_S
    marks = log.watermarks(topic)
    ends = log.undecided_ends(topic, marks)
    while any(marks[each].high < end for each, end in ends.items()):
        if time.monotonic() > deadline:
            break
        time.sleep(_LOOK_AGAIN_S)
        marks |= log.watermarks(topic)
    return marks, ends


def _feed(known: KnownForwardings, topic: str, values: Mapping[bytes, bytes]) -> None:
    for key, value in values.items():
        known.take(topic, key, value)
