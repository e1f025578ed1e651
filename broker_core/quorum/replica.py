"""One replica of the metadata quorum: Raft in KRaft's variant, where followers fetch.

Nothing here has a socket, a clock or a thread. The caller hands the replica requests, responses and
the time, sends what `take_outgoing` returns, and calls `tick` at `next_deadline`. The log and the
election state are durable when their methods return, before anything is sent.

Diego Ongaro, "Consensus: Bridging Theory and Practice", 2014; KIP-595, KIP-835, KIP-853, KIP-996.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from broker_core.quorum.entries import EntryKind, ReplicaKey, Voters
from broker_core.quorum.fetcher import AnyFetch, Fetcher
from broker_core.quorum.leader import Leader
from broker_core.quorum.messages import (
    Answer,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchAnswer,
    FetchRequest,
    FetchSnapshotAnswer,
    FetchSnapshotRequest,
    Outgoing,
    Request,
    VoteAnswer,
    VoteRequest,
)
from broker_core.quorum.replicated_log import ReplicatedLog
from broker_core.quorum.roles import Follower, Role, Unattached, Voting
from broker_core.quorum.settings import QuorumSettings
from broker_core.quorum.storage import Election, ElectionStore, MetadataLog


class NotLeader(Exception):
    """This replica is not the leader; the one with `leader_id` may be."""

    def __init__(self, leader_id: int | None) -> None:
        super().__init__(f"not the leader, which is {leader_id}")
        self.leader_id = leader_id


class QuorumReplica:
    """A voter or an observer of the quorum."""

    def __init__(
        self,
        key: ReplicaKey,
        log: MetadataLog,
        elections: ElectionStore,
        bootstrap_voters: Voters,
        settings: QuorumSettings,
        randomness: random.Random,
        now: float,
    ) -> None:
        self.key: Final = key
        #: To be read; `append` and what the leader says change it.
        self.log: Final = log
        self._replicated = ReplicatedLog(log, bootstrap_voters)
        self._elections = elections
        self._settings = settings
        self._random = randomness
        self._outgoing: list[Outgoing] = []
        self._epoch, self._voted = elections.load()
        if self._epoch < log.last_epoch:
            # The file of the vote was lost; epochs in the log must never decrease.
            self._epoch, self._voted = log.last_epoch, None
        # A pre-vote or a fetch comes first, and its response names the leader: the short wait does
        # not disturb a working quorum (KIP-996).
        wait = randomness.random() * settings.election_timeout / 4
        self.role: Role = Unattached(now + wait)
        self._fetcher = Fetcher(key, self._replicated, settings, now)

    # State that callers may read

    @property
    def epoch(self) -> int:
        """The newest epoch this replica knows."""
        return self._epoch

    @property
    def leader_id(self) -> int | None:
        """The leader of this epoch, if it is known."""
        return self.role.leader_id

    @property
    def is_leader(self) -> bool:
        """True if this replica is the leader, as far as it knows."""
        return isinstance(self.role, Leader)

    @property
    def high_watermark(self) -> int | None:
        """Entries before it are committed; None until it is known."""
        return self._replicated.high_watermark

    @property
    def voters(self) -> Voters:
        """The voters named by the newest entry about them, committed or not."""
        return self._replicated.voters

    @property
    def is_voter(self) -> bool:
        """True if this replica is a voter."""
        return self.key in self.voters

    def next_deadline(self) -> float:
        """Return when `tick` has something to do if nothing happens before."""
        role = self.role
        if isinstance(role, Leader):
            return role.next_deadline()
        deadlines = [role.deadline]
        if isinstance(role, Follower) or not self.is_voter:
            deadlines.append(self._fetcher.deadline)
        return min(deadlines)

    def take_outgoing(self) -> list[Outgoing]:
        """Return and clear the requests to send."""
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    # Time

    def tick(self, now: float) -> None:
        """Do everything that is due."""
        role = self.role
        if isinstance(role, Leader):
            if now >= role.quorum_deadline():
                self.resign(now)
            else:
                self._outgoing += role.announcements(now)
            return
        if now >= role.deadline:
            self._deadline_passed(role, now)
        self._fetch_if_due(now)

    def leader_disconnected(self, now: float) -> None:
        """Shorten the wait for the leader: its connection broke, so its process may have died.

        Voters that lost their connection too will grant a vote; those that still hear from the
        leader will not.
        """
        role = self.role
        if isinstance(role, Follower) and self.is_voter:
            role.has_fetched = False
            wait = self._random.random() * self._settings.disconnect_backoff_max
            role.deadline = min(role.deadline, now + wait)

    def _deadline_passed(self, role: Unattached | Follower | Voting, now: float) -> None:
        if not self.is_voter:
            self._become_unattached(self._epoch, now)
        elif isinstance(role, Voting) and not role.pre_vote:
            # A split vote: wait for a random time, unlike the others, then begin with a pre-vote
            # again.
            self._become_unattached(self._epoch, now, self._backoff())
        else:
            self._ask_for_votes(now, pre_vote=True, leader_id=role.leader_id)

    def _election_deadline(self, now: float) -> float:
        timeout = self._settings.election_timeout
        return now + timeout + self._random.random() * timeout

    def _backoff(self) -> float:
        return self._random.random() * self._settings.election_backoff_max

    # Roles

    def _become_unattached(self, epoch: int, now: float, wait: float | None = None) -> None:
        self._enter_epoch(epoch)
        deadline = self._election_deadline(now) if wait is None else now + wait
        self.role = Unattached(deadline)

    def _become_follower(self, epoch: int, leader_id: int, now: float) -> None:
        self._enter_epoch(epoch)
        self.role = Follower(leader_id, now + self._settings.fetch_timeout)
        self._fetcher.begin(now)
        self._fetch_if_due(now)

    def _enter_epoch(self, epoch: int) -> None:
        if epoch > self._epoch:
            self._save_election(epoch, None)

    def _save_election(self, epoch: int, voted: ReplicaKey | None) -> None:
        self._elections.save(Election(epoch, voted))
        self._epoch, self._voted = epoch, voted

    def _ask_for_votes(self, now: float, *, pre_vote: bool, leader_id: int | None) -> None:
        if not pre_vote:
            self._save_election(self._epoch + 1, self.key)
        self.role = voting = Voting(pre_vote, self._election_deadline(now), leader_id)
        voting.granted.add(self.key)
        for voter in self._other_voters():
            request = VoteRequest(
                self._epoch,
                self.key,
                voter,
                self.log.last_epoch,
                self.log.end_offset,
                pre_vote,
            )
            self._outgoing.append(Outgoing(voter.node_id, request))
        self._count_votes(voting, now)

    def _count_votes(self, voting: Voting, now: float) -> None:
        if voting.is_granted(self.voters):
            if voting.pre_vote:
                self._ask_for_votes(now, pre_vote=False, leader_id=None)
            else:
                self._become_leader(now)
        elif voting.is_rejected(self.voters):
            if voting.leader_id is not None:
                self._become_follower(self._epoch, voting.leader_id, now)
            else:
                self._become_unattached(self._epoch, now)

    def _become_leader(self, now: float) -> None:
        self.role = leader = Leader(self.key, self._epoch, self._replicated, self._settings, now)
        # Earlier entries count as committed once this one does.
        leader.append(EntryKind.LEADER_CHANGE, [b""])
        self._outgoing += leader.announcements(now)

    def resign(self, now: float) -> None:
        """Stop leading and tell the voters; the one with the longest log is named first."""
        role = self.role
        if not isinstance(role, Leader):
            return
        self._outgoing += role.farewell()
        self._become_unattached(self._epoch, now)

    # Leading

    def append(self, values: Sequence[bytes]) -> int:
        """Append data as the leader; return the offset of the last entry. Raises NotLeader.

        The entries are committed when the high watermark is beyond that offset, in this epoch.
        """
        return self._leading().append(EntryKind.DATA, values)

    def change_voters(self, voters: Voters) -> int:
        """Add or remove one voter; return the offset of the entry that records the change.

        Raises NotLeader and VoterChangeRefused, see `Leader.change_voters`.
        """
        return self._leading().change_voters(voters)

    def _leading(self) -> Leader:
        if not isinstance(self.role, Leader):
            raise NotLeader(self.leader_id)
        return self.role

    # Requests of others

    def handle(self, request: Request, now: float) -> Answer:
        """Handle a request and return the response."""
        match request:
            case VoteRequest():
                return self._handle_vote(request, now)
            case FetchRequest():
                return self._handle_fetch(request, now)
            case FetchSnapshotRequest():
                return self._handle_fetch_snapshot(request, now)
            case BeginQuorumEpochRequest():
                self._handle_begin_epoch(request, now)
            case EndQuorumEpochRequest():
                self._handle_end_epoch(request, now)
        return Answer(epoch=self._epoch, leader_id=self.leader_id)

    def _handle_vote(self, request: VoteRequest, now: float) -> VoteAnswer:
        granted = False
        if request.voter == self.key and request.epoch >= self._epoch:
            if request.epoch > self._epoch:
                self._become_unattached(request.epoch, now)
            granted = self._would_vote(request)
            if granted and not request.pre_vote:
                if self._voted is None:
                    self._save_election(self._epoch, request.candidate)
                self._become_unattached(self._epoch, now)
        return VoteAnswer(epoch=self._epoch, leader_id=self.leader_id, granted=granted)

    def _would_vote(self, request: VoteRequest) -> bool:
        theirs = (request.last_epoch, request.end_offset)
        if theirs < (self.log.last_epoch, self.log.end_offset):
            return False
        match self.role:
            case Leader():
                return False
            case Follower(has_fetched=has_fetched):
                return request.pre_vote and not has_fetched
        return request.pre_vote or self._voted in (None, request.candidate)

    def _handle_begin_epoch(self, request: BeginQuorumEpochRequest, now: float) -> None:
        if request.epoch == self._epoch and isinstance(self.role, Voting):
            # The leader that this replica had given up is alive.
            self._become_follower(request.epoch, request.leader_id, now)
        else:
            self._observe(request.epoch, request.leader_id, now)

    def _handle_end_epoch(self, request: EndQuorumEpochRequest, now: float) -> None:
        if request.epoch < self._epoch or (request.epoch == self._epoch and self.is_leader):
            return
        if not self.is_voter:
            self._become_unattached(request.epoch, now)
            return
        # The first successor stands for election at once, the others only if it fails.
        try:
            place = request.successors.index(self.key)
        except ValueError:
            place = len(request.successors)
        wait = place * self._settings.election_timeout / 2 + (self._backoff() if place else 0.0)
        self._become_unattached(request.epoch, now, wait)

    def _handle_fetch(self, request: FetchRequest, now: float) -> FetchAnswer:
        role = self.role
        if isinstance(role, Leader) and request.epoch == self._epoch:
            return role.answer_fetch(request, now)
        return FetchAnswer(epoch=self._epoch, leader_id=self.leader_id)

    def has_news(self, request: FetchRequest) -> bool:
        """Return whether a fetch response would contain news; otherwise it may be delayed."""
        role = self.role
        return not isinstance(role, Leader) or role.has_news(request)

    def _handle_fetch_snapshot(
        self, request: FetchSnapshotRequest, now: float
    ) -> FetchSnapshotAnswer:
        role = self.role
        if isinstance(role, Leader) and request.epoch == self._epoch:
            return role.answer_fetch_snapshot(request, now)
        return FetchSnapshotAnswer(epoch=self._epoch, leader_id=self.leader_id)

    # Answers of others

    def on_answer(self, request: Request, answer: Answer | None, now: float) -> None:
        """Handle the response to a request, or None if there will be no response."""
        if isinstance(request, AnyFetch) and not self._fetcher.answered(request, now):
            return
        if answer is None:
            return
        self._observe(answer.epoch, answer.leader_id, now)
        if request.epoch != self._epoch:
            return
        match request, answer:
            case VoteRequest(), VoteAnswer():
                self._on_vote(request, answer, now)
            case FetchRequest(), FetchAnswer():
                self._on_fetched(request, answer, now)
            case FetchSnapshotRequest(), FetchSnapshotAnswer():
                self._on_snapshot_fetched(request, answer, now)

    def _observe(self, epoch: int, leader_id: int | None, now: float) -> None:
        """Learn the leader of an epoch from a message."""
        if leader_id == self.key.node_id:
            # At most of an epoch that this replica led before its restart.
            leader_id = None
        if epoch < self._epoch or (epoch == self._epoch and leader_id is None):
            return
        if leader_id is None:
            self._become_unattached(epoch, now)
        elif epoch > self._epoch or self.leader_id is None:
            self._become_follower(epoch, leader_id, now)

    def _on_vote(self, request: VoteRequest, answer: VoteAnswer, now: float) -> None:
        role = self.role
        if isinstance(role, Voting) and role.pre_vote == request.pre_vote:
            (role.granted if answer.granted else role.rejected).add(request.voter)
            self._count_votes(role, now)

    def _on_fetched(self, request: FetchRequest, answer: FetchAnswer, now: float) -> None:
        role = self.role
        if not isinstance(role, Follower) or answer.high_watermark is None:
            return
        self._leader_answered(role, now)
        if self._fetcher.take(request, answer):
            self._fetch_if_due(now)

    def _leader_answered(self, role: Follower, now: float) -> None:
        role.deadline = now + self._settings.fetch_timeout
        role.has_fetched = True
        self._fetcher.leader_answered(now)

    def _on_snapshot_fetched(
        self, request: FetchSnapshotRequest, answer: FetchSnapshotAnswer, now: float
    ) -> None:
        role = self.role
        if isinstance(role, Follower) and self._fetcher.take_chunk(request, answer):
            self._leader_answered(role, now)
            self._fetch_if_due(now)

    # Fetching

    def _fetch_if_due(self, now: float) -> None:
        if self._fetcher.is_waiting(now):
            return
        role = self.role
        leader_id = role.leader_id if isinstance(role, Follower) else None
        if leader_id is None and not self.is_voter and isinstance(role, Unattached):
            # An observer asks a random voter, which names the leader.
            leader_id = self._random.choice(sorted(self._other_voters())).node_id
        if leader_id is None:
            return
        is_follower = isinstance(role, Follower)
        request = self._fetcher.next_request(self._epoch, now, is_follower=is_follower)
        if request is not None:
            self._outgoing.append(Outgoing(leader_id, request))

    # Snapshots

    def take_snapshot(self, end_offset: int, data: bytes) -> None:
        """Replace the entries before a committed offset; `data` is the state that they make."""
        self._replicated.take_snapshot(end_offset, data)

    def _other_voters(self) -> Voters:
        return self.voters - {self.key}
