"""A forwarding at work: what of it waits in this process, in each partition, and how it fares."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final
from urllib.parse import urlsplit

from consumers.connect.data.records import SinkRecord
from waylog.forwarding.definition import Forwarding, Progress

#: Records and bytes that may wait of one forwarding, over all partitions.
WAITING_MAX: Final = 500
WAITING_BYTES_MAX: Final = 512 * 1024
#: Places where records were missed that are remembered, in each partition.
GAPS_MAX: Final = 8


class Entry:
    """A forwarding in one partition."""

    __slots__ = ("forwarded", "gaps", "gaps_from", "hold", "is_live", "missed", "offset",
                 "partition", "refusal", "refused", "settled", "settled_from", "stored",
                 "stored_at", "tried", "waiting")  # fmt: skip

    def __init__(self, partition: int, offset: int | None, stored: Progress | None) -> None:
        self.partition: Final = partition
        #: The next record that is to be taken; None: that has yet to be looked up.
        self.offset = offset
        #: Whether it takes what the group reads; else it is read for again, from `offset` on.
        self.is_live = stored is not None and stored.live
        #: Records that were taken and are not forwarded yet, by offset.
        self.waiting: Final[dict[int, SinkRecord]] = {}
        #: The newest progress that the log has, None if that is not known, and when it was written
        #: on the clock of the worker.
        self.stored = stored
        self.stored_at = float("-inf")
        #: The group's offset must not pass this one before the log has where it goes on.
        self.hold: int | None = None
        self.missed = 0 if stored is None else stored.missed
        #: Where they were (see Progress).
        self.gaps = () if stored is None else stored.gaps
        self.gaps_from = 0 if stored is None else stored.gaps_from
        if stored is not None and stored.missed and not (self.gaps or self.gaps_from):
            self.gaps_from = stored.offset  # a worker of an earlier version did not say it
        #: From where on all is sent as the forwarding is since `settled` (see Progress).
        self.settled = None if stored is None else stored.settled
        self.settled_from = 0 if stored is None else stored.settled_from
        #: The offset behind what was taken for the last attempt.
        self.tried = 0
        #: Records that the server will never take, and why it did not take the last one.
        self.refused = 0 if stored is None else stored.refused
        self.refusal = None if stored is None else stored.refusal
        #: When the newest record was stored that is forwarded, ms since 1970.
        self.forwarded = None if stored is None else stored.forwarded

    def position(self, group_position: int) -> int | None:
        """Return the offset below which nothing has to be forwarded any more."""
        if self.waiting:
            return next(iter(self.waiting))
        if self.is_live and self.offset is not None:
            return max(self.offset, group_position)
        return self.offset

    def read_to(self, group_position: int) -> int:
        """Return the offset below which nothing is looked at any more, but for what waits."""
        return max(self.offset or 0, group_position) if self.is_live else self.offset or 0

    def miss(self, start: int, end: int) -> None:
        """Take note that the log has deleted the records from `start` up to `end`."""
        if self.gaps and self.gaps[-1][1] >= start:
            start = self.gaps[-1][0]
            self.gaps = self.gaps[:-1]
        self.gaps = (*self.gaps, (start, end))
        if len(self.gaps) > GAPS_MAX:
            self.gaps_from = self.gaps[0][1]
            self.gaps = self.gaps[1:]


class Route:
    """A forwarding of a user."""

    __slots__ = ("entries", "error", "error_time", "failures", "forwarding", "id", "is_in_flight",
                 "is_paused_by_administrator", "is_queued", "is_slow", "later", "not_before",
                 "origin", "user", "waited_since", "waiting_bytes", "waiting_count")  # fmt: skip

    def __init__(self, user: str, forwarding_id: str, forwarding: Forwarding) -> None:
        self.user: Final = user
        self.id: Final = forwarding_id
        self.forwarding = forwarding
        self.origin = origin_of(forwarding.url)
        self.entries: Final[dict[int, Entry]] = {}
        self.waiting_count = 0
        self.waiting_bytes = 0
        #: Since when nothing of what waits has been forwarded.
        self.waited_since = 0.0
        #: Attempts that have failed in a row, and when the next one may be made.
        self.failures = 0
        self.not_before = 0.0
        #: Its last answer took long, or never came.
        self.is_slow = False
        #: An administrator has paused it.
        self.is_paused_by_administrator = False
        self.is_in_flight = False
        self.is_queued = False
        #: The number under which the schedule has it for later.
        self.later: int | None = None
        self.error: str | None = None
        self.error_time: int | None = None

    def change(self, forwarding: Forwarding) -> None:
        """Take a changed forwarding: it is tried at once."""
        self.forwarding = forwarding
        self.origin = origin_of(forwarding.url)
        self.failures, self.not_before = 0, 0.0

    @property
    def is_paused(self) -> bool:
        """Whether nothing is to be forwarded now."""
        return self.is_paused_by_administrator or self.forwarding.paused_by is not None

    @property
    def is_full(self) -> bool:
        """Whether no further record may wait."""
        return self.waiting_count >= WAITING_MAX or self.waiting_bytes >= WAITING_BYTES_MAX

    @property
    def has_room(self) -> bool:
        """Whether it is worth while to read for it again."""
        return 2 * self.waiting_count < WAITING_MAX and 2 * self.waiting_bytes < WAITING_BYTES_MAX

    def restore(self, progress: Progress) -> None:
        """Take what the log has of how it fared; the newest of several partitions counts."""
        if progress.error is not None and (progress.error_time or 0) >= (self.error_time or 0):
            self.error, self.error_time = progress.error, progress.error_time

    def wants(self, device: str, stored_ms: int) -> bool:
        """Tell whether a record of a device, named without its user, is forwarded."""
        return stored_ms >= self.forwarding.since and self.forwarding.has(device)

    def add(self, entry: Entry, record: SinkRecord, now: float) -> int:
        """Have a record wait; return its bytes."""
        size = size_of(record)
        if not self.waiting_count:
            self.waited_since = now
        entry.waiting[record.offset] = record
        self.waiting_count += 1
        self.waiting_bytes += size
        return size

    def remove(self, entry: Entry, offset: int) -> int:
        """Have a record wait no longer; return its bytes, 0 if it does not wait."""
        record = entry.waiting.pop(offset, None)
        if record is None:
            return 0
        size = size_of(record)
        self.waiting_count -= 1
        self.waiting_bytes -= size
        return size

    def batch(self, most: int) -> list[SinkRecord]:
        """Return the first records that wait, in the order of each partition, to be sent now."""
        found = list(islice(self._waiting(), most))
        for record in found:
            self.entries[record.original_partition or 0].tried = record.offset + 1
        return found

    def _waiting(self) -> Iterator[SinkRecord]:
        for entry in self.entries.values():
            yield from entry.waiting.values()


def size_of(record: SinkRecord) -> int:
    """Return about the bytes that a waiting record occupies."""
    return 500 + len(record.value or b"")


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL, which is what may be down."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.lower()}"
