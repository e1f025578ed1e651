"""The follower of a partition: what to fetch, and what to do with the leader's response.

Every fetch has the end of the follower's log and the leader epoch of its last batch. The leader
responds with batches, or with the point where the follower's log diverges from its own (KIP-101,
279, 320, and the diverging epoch of KIP-595). Truncation is always decided by epochs, never by a
high watermark.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from broker_core import errors
from broker_core.environment import Buffer
from broker_core.log.log import Log


class FetchPosition(NamedTuple):
    """The position that a follower fetches from."""

    leader_epoch: int  # the one that the follower knows
    offset: int  # where its log ends
    last_epoch: int  # of its last batch, -1 in an empty log
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """A leader's response for one partition."""

    error_code: int
    high_watermark: int
    log_start_offset: int
    diverging: tuple[int, int] | None  # the leader's largest epoch up to the asked one, its end
    records: Buffer


class Outcome(Enum):
    """The result of a response."""

    APPENDED = "appended"
    NOTHING = "nothing"  # there is nothing new
    TRUNCATED = "truncated"  # fetch again from the new end
    LATER = "later"  # one of the two does not know the leader yet: fetch again after a while


class PartitionFollower:
    """The follower's state of one partition in one leader epoch."""

    __slots__ = ("_log", "high_watermark", "leader_epoch", "leader_id")

    def __init__(self, log: Log, leader_id: int, leader_epoch: int, high_watermark: int) -> None:
        self._log = log
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        #: The leader's high watermark, at most the end of this log.
        self.high_watermark = min(high_watermark, log.log_end_offset)

    def position(self) -> FetchPosition:
        """Return the position to fetch from now."""
        log = self._log
        return FetchPosition(
            self.leader_epoch, log.log_end_offset, log.leader_epochs.latest, log.log_start_offset
        )

    def take(self, asked: FetchPosition, answer: Fetched, now_ms: int) -> Outcome:
        """Apply the leader's response to a fetch.

        A response to an outdated fetch tells at most a high watermark. Raises CorruptMessage if
        the records are damaged, KafkaStorageError.
        """
        log = self._log
        if asked.leader_epoch != self.leader_epoch:
            return Outcome.NOTHING
        if asked.offset != log.log_end_offset:
            is_fine = not answer.error_code and answer.diverging is None
            if is_fine and asked.offset < log.log_end_offset:
                # The leader, from whom this log has grown since, tells each watermark once.
                self._follow(answer)
            return Outcome.NOTHING
        if answer.error_code == errors.OffsetOutOfRange.code and answer.log_start_offset >= 0:
            # The leader has deleted the records that come next.
            log.truncate_fully_and_start_at(answer.log_start_offset)
            self.high_watermark = log.log_start_offset
            return Outcome.TRUNCATED
        if answer.error_code:
            return Outcome.LATER
        if answer.diverging is not None:
            log.truncate_to(truncation_offset(log, *answer.diverging))
            self.high_watermark = min(self.high_watermark, log.log_end_offset)
            return Outcome.TRUNCATED
        outcome = Outcome.NOTHING
        if len(answer.records):
            log.append_as_follower(answer.records, now_ms)
            outcome = Outcome.APPENDED
        self._follow(answer)
        return outcome

    def _follow(self, answer: Fetched) -> None:
        log = self._log
        # A new leader's high watermark can be behind for a while; what is committed stays so.
        self.high_watermark = max(
            self.high_watermark, min(answer.high_watermark, log.log_end_offset)
        )
        log.high_watermark = self.high_watermark
        start = min(answer.log_start_offset, self.high_watermark)
        if start > log.log_start_offset:
            log.delete_records(start)


def truncation_offset(log: Log, leader_epoch: int, leader_end_offset: int) -> int:
    """Return the offset to truncate a log to, given an epoch and its end at the leader (KIP-279).

    The epoch is the leader's largest that is not above the one that the follower asked for.
    """
    epoch, end_offset = log.leader_epochs.end_offset(leader_epoch, log.log_end_offset)
    if epoch < 0:
        return min(leader_end_offset, log.log_end_offset)
    if epoch != leader_epoch:
        # The follower has nothing of that epoch: its end at the leader tells nothing about the
        # follower's earlier epochs. The next fetch finds out more.
        return min(end_offset, log.log_end_offset)
    return min(end_offset, leader_end_offset, log.log_end_offset)
