"""Classic bugs of Raft, one in each class; a simulation that misses them is of no use."""

from __future__ import annotations

from collections.abc import Sequence

from broker_core.quorum.entries import Entry, EntryKind, ReplicaKey, encode_voters
from broker_core.quorum.messages import FetchAnswer, FetchRequest, VoteRequest
from broker_core.quorum.replica import QuorumReplica, Voters
from broker_core.quorum.roles import Follower, Leader
from broker_core.quorum.storage import Election


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


class CommitsEntriesOfFormerEpochs(QuorumReplica):
    """Entries on a majority count as committed without one of the leader's own epoch (figure 8 of
    the Raft paper).
    """

    def _append(self, entries: list[Entry]) -> None:
        super()._append([entry for entry in entries if entry.kind != EntryKind.LEADER_CHANGE])

    def _raise_high_watermark(self) -> None:
        role = self.role
        if isinstance(role, Leader):
            role.start_offset = -1
        super()._raise_high_watermark()


class AcknowledgesBeforeTheFlush(QuorumReplica):
    """Entries count as durable once they are appended."""

    def _write(self, entries: Sequence[Entry]) -> None:
        self._voters.appended(self.log.end_offset, entries)
        self.log.append(entries)
        role = self.role
        if isinstance(role, Leader):
            for voter in self._other_voters():
                self._heard(role, voter, role.followers[voter].last_fetch)


class CommitsWithoutAMajority(QuorumReplica):
    """Entries count as committed once one follower has them."""

    def _raise_high_watermark(self) -> None:
        role = self.role
        if isinstance(role, Leader):
            best = max((other.fetch_offset for other in role.followers.values()), default=0)
            if best > role.start_offset and best > (self.high_watermark or 0):
                self.high_watermark = best


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


class TakesLateAnswers(QuorumReplica):
    """Entries are appended without a check of their offset."""

    def _on_fetched(self, request: FetchRequest, answer: FetchAnswer, now: float) -> None:
        if isinstance(self.role, Follower):
            log = self.log
            request = FetchRequest(
                self.epoch, self.key, log.end_offset, log.last_epoch, request.high_watermark
            )
        super()._on_fetched(request, answer, now)

    def _fetch_if_due(self, now: float) -> None:
        super()._fetch_if_due(now)
        self._fetch_given_up = min(self._fetch_given_up, now + 0.05)

    def on_answer(self, request, answer, now) -> None:  # type: ignore[no-untyped-def]
        if isinstance(request, FetchRequest):
            self._fetch_sent = request
        super().on_answer(request, answer, now)


class ChangesSeveralVotersAtOnce(QuorumReplica):
    """Several voters are changed at once, so that two majorities need not overlap."""

    def change_voters(self, voters: Voters) -> int:
        self._append([Entry(self._epoch, EntryKind.VOTERS, encode_voters(voters))])
        return self.log.end_offset - 1


class LeadsOnInANewEpoch(QuorumReplica):
    """A leader that hears of a newer epoch takes its number and stays leader."""

    def _observe(self, epoch: int, leader_id: int | None, now: float) -> None:
        if isinstance(self.role, Leader) and epoch > self._epoch:
            self._save_election(epoch, self.key)
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
