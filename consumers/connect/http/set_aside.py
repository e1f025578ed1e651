"""Records that a server has answered and not taken, while it takes others.

They wait, each key for itself, and what comes behind them with the same key waits, too. Offsets are
committed up to the first of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

from consumers.connect.data.records import Place, SinkRecord
from consumers.connect.http.lanes import order_key
from consumers.connect.plugins.backoff import Backoff

#: Of more the next ones are not taken until there is room: they are in memory.
RECORDS_MAX: Final = 1000


class Divided(NamedTuple):
    """Records of a batch, by what is to be done with them."""

    free: list[SinkRecord]
    held: list[SinkRecord]  # they wait behind others of their key
    blocked: list[SinkRecord]  # they would have to, and there is no room


class _Waiting:
    """The records of one key."""

    def __init__(self, due: float) -> None:
        self.records: list[SinkRecord] = []
        self.attempts = 1
        self.due = due


class SetAside:
    """The records that wait; times are of one monotonic clock, in seconds."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff: Final = backoff
        self._by_key: Final[dict[Any, _Waiting]] = {}

    def __len__(self) -> int:
        return sum(len(each.records) for each in self._by_key.values())

    def divide(self, records: Sequence[SinkRecord]) -> Divided:
        """Divide a batch, and keep those of it that have to wait."""
        divided = Divided([], [], [])
        if not self._by_key:
            divided.free.extend(records)
            return divided
        count = len(self)
        for record in records:
            waiting = self._by_key.get(order_key(record))
            if waiting is None:
                divided.free.append(record)
            elif count < RECORDS_MAX and not divided.blocked:
                waiting.records.append(record)
                divided.held.append(record)
                count += 1
            else:
                divided.blocked.append(record)
        return divided

    def has_room(self, records: Sequence[SinkRecord]) -> bool:
        """Tell whether so many more may wait."""
        return len(self) + len(records) <= RECORDS_MAX

    def add(self, records: Iterable[SinkRecord], now: float) -> None:
        """Keep records that a server has not taken, and those behind them with the same key."""
        for record in records:
            waiting = self._by_key.setdefault(
                order_key(record), _Waiting(now + self._backoff.pause_s(1))
            )
            waiting.records.append(record)

    def due(self, now: float) -> list[SinkRecord]:
        """Return the records that are to be sent again."""
        return [each for found in self._by_key.values() if found.due <= now
                for each in found.records]  # fmt: skip

    def next_due(self) -> float | None:
        """Return when the next ones are due."""
        return min((each.due for each in self._by_key.values()), default=None)

    def settle(
        self, done: Collection[Place], postponed: Collection[Place], retry_s: float, now: float
    ) -> None:
        """Take note of what became of those that were due; the pause is `retry_s` at least."""
        for key, waiting in list(self._by_key.items()):
            waiting.records = [each for each in waiting.records if each.place not in done]
            if not waiting.records:
                del self._by_key[key]
            elif waiting.records[0].place in postponed:
                waiting.attempts += 1
                waiting.due = now + max(self._backoff.pause_s(waiting.attempts), retry_s)

    def first_offsets(self) -> dict[tuple[str, int], int]:
        """Return the offset of the first record that waits, by topic and partition."""
        first: dict[tuple[str, int], int] = {}
        for waiting in self._by_key.values():
            for record in waiting.records:
                topic, partition, offset = record.place
                place = (topic, partition or 0)
                first[place] = min(offset, first.get(place, offset))
        return first

    def forget(self, partitions: Collection[tuple[str, int]]) -> None:
        """Forget the records of partitions: they come again, or others have them."""
        for key, waiting in list(self._by_key.items()):
            waiting.records = [each for each in waiting.records if each.place[:2] not in partitions]
            if not waiting.records:
                del self._by_key[key]
