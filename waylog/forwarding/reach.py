"""What has become of a fix at a forwarding, told by the offsets of its progress. Sans-IO.

In each partition a forwarding has an offset below which everything has been sent, refused or left
out. Of one that is live it is the group's, which may be further than its progress says. Whoever
asks reads the group's offsets before the progress: what falls behind meanwhile tells its own offset
before the group passes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from waylog.forwarding.definition import Forwarding, Progress, letter_source
from waylog.forwarding.pauses import Pause

#: So long after a change of devices or server a worker has taken it, if it does not say when, as
#: one of an earlier version; by the clocks of gateways.
_CHANGE_MS: Final = 15_000


class Outcome(Enum):
    """What has become of a fix; the values are members of receipts."""

    SENT = "sent"
    WAITING = "waiting"
    REFUSED = "refused"  # by the server, for good
    MISSED = "missed"  # deleted by retention before it could be sent
    NOT_ASKED = "not_asked"  # stored before the forwarding was made
    UNKNOWN = "unknown"


class Judged(NamedTuple):
    """An outcome, and what is to be said of it."""

    outcome: Outcome
    reason: str | None = None


class Stored(NamedTuple):
    """A record of topic `location`, and when it was stored, in ms since 1970."""

    partition: int
    offset: int
    time: int


class LogState(NamedTuple):
    """What is known of the log when receipts are made; offsets are by partition of `location`."""

    #: The first offset, and the one behind the last.
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    #: What the workers' group has committed; None if it has no offsets.
    group: Mapping[int, int] | None
    #: All dead letters of forwardings since the beginning of the day are known.
    has_letters: bool = True


class Reach:
    """A forwarding, and how far it is."""

    def __init__(
        self,
        user: str,
        forwarding_id: str,
        forwarding: Forwarding,
        progress: Mapping[int, Progress],
        pause: Pause | None,
        log: LogState,
    ) -> None:
        self.user: Final = user
        self.id: Final = forwarding_id
        self.forwarding: Final = forwarding
        self.progress: Final = progress
        self.pause: Final = pause
        self._log: Final = log

    @property
    def letter_source(self) -> str:
        """What its dead letters name as their connector."""
        return letter_source(self.user, self.id)

    def forwards(self, device: str) -> bool:
        """Tell whether a device (`user/device`) is sent on."""
        user, _, name = device.partition("/")
        return user == self.user and self.forwarding.has(name)

    def position(self, partition: int) -> int | None:
        """Return the offset below which nothing waits; None: it has not begun."""
        progress = self.progress.get(partition)
        if progress is None:
            return None
        group = self._log.group if progress.live else None
        return progress.offset if group is None else max(progress.offset, group.get(partition, 0))

    def judge(self, record: Stored) -> Judged:
        """Tell what has become of a fix of a device that is sent on, but for a refusal."""
        made = self.forwarding
        if record.time < made.created:
            return Judged(Outcome.NOT_ASKED)
        if record.time < made.since:
            return Judged(Outcome.UNKNOWN, "it went on later, without what had waited until then")
        progress, position = self.progress.get(record.partition), self.position(record.partition)
        first = self._log.starts.get(record.partition, 0)
        if progress is None or position is None:
            return Judged(Outcome.MISSED if record.offset < first else Outcome.WAITING)
        if position > self._log.ends.get(record.partition, 0):
            return Judged(Outcome.UNKNOWN, "it is beyond the end of the log, which was another one")
        if record.offset < position:
            return self._passed(record, progress, first)
        if record.offset < first:
            return Judged(Outcome.MISSED)
        if progress.live and self._log.group is None:
            return Judged(
                Outcome.UNKNOWN, "the consumer group of the workers, by whose offsets it goes on, "
                "has none that can be seen",
            )  # fmt: skip
        return Judged(Outcome.WAITING)

    def _passed(self, record: Stored, progress: Progress, first: int) -> Judged:
        made = self.forwarding
        if any(start <= record.offset < end for start, end in progress.gaps):
            return Judged(Outcome.MISSED)
        settled = made.settled
        if settled is None and made.revision == 0:
            settled = made.created
        if settled is None:
            return Judged(Outcome.UNKNOWN, "its devices or server may have been others then")
        if settled > made.created and not _was_taken(settled, record, progress):
            return Judged(Outcome.UNKNOWN, "its devices or server were changed later")
        # A worker of an earlier version counts what was missed and does not say where.
        is_placed = bool(progress.gaps or progress.gaps_from or not progress.missed)
        if record.offset < (progress.gaps_from if is_placed else first):
            return Judged(
                Outcome.UNKNOWN, "the log had deleted records before they could be sent, and it is "
                "not known which",
            )  # fmt: skip
        if progress.refused and not self._log.has_letters:
            return Judged(
                Outcome.UNKNOWN, "which fixes the server has refused can no longer be seen"
            )
        return Judged(Outcome.SENT)


def _was_taken(settled: int, record: Stored, progress: Progress) -> bool:
    """Tell whether a record was sent with the devices and the server of now, since `settled`."""
    if progress.settled == settled:
        return record.offset >= progress.settled_from
    return record.time >= settled + _CHANGE_MS
