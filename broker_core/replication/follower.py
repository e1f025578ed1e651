"""A partition as a follower sees it: what to ask the leader for, and what to do with the answer.

The follower says with every fetch where its log ends and in which leader epoch its last batch was
written; the leader answers with batches, or with where the follower's log leaves its own (KIP-101,
279, 320, and the diverging epoch of KIP-595). Every step back is decided by epochs, never by a
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
    """What a follower asks for."""

    leader_epoch: int  # that it believes in
    offset: int  # where its log ends
    last_epoch: int  # of its last batch, -1 in an empty log
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """A leader's answer for one partition."""

    error_code: int
    high_watermark: int
    log_start_offset: int
    diverging: tuple[int, int] | None  # the largest epoch of both that the leader has, its end
    records: Buffer


class Outcome(Enum):
    """What an answer has led to."""

    APPENDED = "appended"
    NOTHING = "nothing"  # there is nothing new
    TRUNCATED = "truncated"  # ask again from the new end
    LATER = "later"  # one of both does not know yet who leads: ask again after a while


class PartitionFollower:
    """The follower's state of one partition in one leader epoch."""

    __slots__ = ("_log", "high_watermark", "leader_epoch", "leader_id")

    def __init__(self, log: Log, leader_id: int, leader_epoch: int, high_watermark: int) -> None:
        self._log = log
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        #: What is committed, as far as the leader has told and the log has it.
        self.high_watermark = min(high_watermark, log.log_end_offset)

    def position(self) -> FetchPosition:
        """What to ask for now."""
        log = self._log
        return FetchPosition(
            self.leader_epoch, log.log_end_offset, log.leader_epochs.latest, log.log_start_offset
        )

    def take(self, asked: FetchPosition, answer: Fetched, now_ms: int) -> Outcome:
        """Do what the leader's answer to a question asks for.

        An answer to a question that would not be asked any more changes nothing. Raises
        CorruptMessage where the records are not sound, KafkaStorageError.
        """
        log = self._log
        if asked.leader_epoch != self.leader_epoch or asked.offset != log.log_end_offset:
            return Outcome.NOTHING
        if answer.error_code == errors.OffsetOutOfRange.code and answer.log_start_offset >= 0:
            # The leader has deleted what would come next.
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
        # The high watermark of a new leader can be behind for a while: what was committed stays so.
        self.high_watermark = max(
            self.high_watermark, min(answer.high_watermark, log.log_end_offset)
        )
        log.high_watermark = self.high_watermark
        start = min(answer.log_start_offset, self.high_watermark)
        if start > log.log_start_offset:
            log.delete_records(start)


def truncation_offset(log: Log, leader_epoch: int, leader_end_offset: int) -> int:
    """Where to cut a log, given the epoch and the end of it in the leader's log (KIP-279).

    The epoch is the largest of the leader that is not above the one that the follower asked for.
    """
    epoch, end_offset = log.leader_epochs.end_offset(leader_epoch, log.log_end_offset)
    if epoch < 0:
        return min(leader_end_offset, log.log_end_offset)
    if epoch != leader_epoch:
        # The follower has nothing of that epoch: the leader's word about its end says nothing
        # about the follower's own epochs before. The next question finds out more.
        return min(end_offset, log.log_end_offset)
    return min(end_offset, leader_end_offset, log.log_end_offset)
