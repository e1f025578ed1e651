"""Classic bugs of Raft, one in each class; a simulation that misses them is of no use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from broker_core.quorum import replica as replica_module
from broker_core.quorum.entries import Entry, EntryKind, ReplicaKey, Voters, encode_voters
from broker_core.quorum.fetcher import AnyFetch, Fetcher
from broker_core.quorum.leader import Leader
from broker_core.quorum.messages import FetchAnswer, FetchRequest, VoteRequest
from broker_core.quorum.replica import QuorumReplica
from broker_core.quorum.replicated_log import ReplicatedLog
from broker_core.quorum.roles import Follower
from broker_core.quorum.storage import Election


class _OtherLeader(QuorumReplica):
    leader: type[Leader]

    def _become_leader(self, now: float) -> None:
        with patch.object(replica_module, "Leader", self.leader):
            super()._become_leader(now)


class ForgetsItsVote(QuorumReplica):
    """The vote is answered before it is on the disk; the epoch is there."""

    def _save_election(self, epoch: int, voted: ReplicaKey | None) -> None:
        self._elections.save(Election(epoch, None))
        self._epoch, self._voted = epoch, voted


class VotesTwice(QuorumReplica):
    """A second candidate in an epoch gets the vote too."""

    def _would_vote(self, request: VoteRequest) -> bool:
        self._voted = None
        return super()._would_vote(request)


class VotesForAShorterLog(QuorumReplica):
    """The candidate's log is not compared."""

    def _would_vote(self, request: VoteRequest) -> bool:
        log = self.log
        return super()._would_vote(
            VoteRequest(
                request.epoch, request.candidate, request.voter,
                log.last_epoch, log.end_offset, request.pre_vote,
            )
        )  # fmt: skip


class _CommittingAtOnce(Leader):
    def append(self, kind: EntryKind, values: Sequence[bytes]) -> int:
        return super().append(kind, () if kind is EntryKind.LEADER_CHANGE else values)

    def _raise_high_watermark(self) -> None:
        self.start_offset = -1
        super()._raise_high_watermark()


class CommitsEntriesOfFormerEpochs(_OtherLeader):
    """Entries on a majority count as committed without one of the leader's own epoch (figure 8 of
    the Raft paper).
    """

    leader = _CommittingAtOnce


class _Unflushed(ReplicatedLog):
    def append(self, entries: Sequence[Entry]) -> None:
        self._voters.appended(self.stored.end_offset, entries)
        self.stored.append(entries)


class AcknowledgesBeforeTheFlush(QuorumReplica):
    """Entries count as durable once they are appended."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._replicated.__class__ = _Unflushed


class _CommittingAlone(Leader):
    def _raise_high_watermark(self) -> None:
        best = max((other.fetch_offset for other in self.followers.values()), default=0)
        if best > self.start_offset:
            self._log.commit(best)


class CommitsWithoutAMajority(_OtherLeader):
    """Entries count as committed once one follower has them."""

    leader = _CommittingAlone


class IgnoresEpochsWhenItAnswersAFetch(QuorumReplica):
    """A follower's log of the same length is taken to be equal."""

    def _handle_fetch(self, request: FetchRequest, now: float) -> FetchAnswer:
        if self.log.snapshot is None and request.fetch_offset > 0:
            last = self.log.read(request.fetch_offset - 1, 1)
            if last:
                request = FetchRequest(
                    request.epoch, request.replica, request.fetch_offset,
                    last[0].epoch, request.high_watermark,
                )  # fmt: skip
        return super()._handle_fetch(request, now)


class _ImpatientFetcher(Fetcher):
    def next_request(self, epoch: int, now: float, *, is_follower: bool) -> AnyFetch | None:
        request = super().next_request(epoch, now, is_follower=is_follower)
        self._given_up = min(self._given_up, now + 0.05)
        return request

    def answered(self, request: AnyFetch, now: float) -> bool:
        if isinstance(request, FetchRequest):
            self._sent = request
        return super().answered(request, now)


class TakesLateAnswers(QuorumReplica):
    """Entries are appended without a check of their offset."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._fetcher.__class__ = _ImpatientFetcher

    def _on_fetched(self, request: FetchRequest, answer: FetchAnswer, now: float) -> None:
        if isinstance(self.role, Follower):
            log = self.log
            request = FetchRequest(
                self.epoch, self.key, log.end_offset, log.last_epoch, request.high_watermark
            )
        super()._on_fetched(request, answer, now)


class ChangesSeveralVotersAtOnce(QuorumReplica):
    """Several voters are changed at once, so that two majorities need not overlap."""

    def change_voters(self, voters: Voters) -> int:
        return self._leading().append(EntryKind.VOTERS, [encode_voters(voters)])


class LeadsOnInANewEpoch(QuorumReplica):
    """A leader that hears of a newer epoch takes its number and stays leader."""

    def _observe(self, epoch: int, leader_id: int | None, now: float) -> None:
        if isinstance(self.role, Leader) and epoch > self._epoch:
            self._save_election(epoch, self.key)
            self.role._epoch = epoch
            return
        super()._observe(epoch, leader_id, now)


MUTANTS = (
    ForgetsItsVote,
    VotesTwice,
    VotesForAShorterLog,
    CommitsEntriesOfFormerEpochs,
    AcknowledgesBeforeTheFlush,
    CommitsWithoutAMajority,
    IgnoresEpochsWhenItAnswersAFetch,
    TakesLateAnswers,
    ChangesSeveralVotersAtOnce,
    LeadsOnInANewEpoch,
)
