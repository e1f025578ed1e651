"""One replica of the metadata quorum: Raft in KRaft's variant, where followers fetch.

Nothing here has a socket, a clock or a thread. The caller hands the replica requests, responses and
the time, sends what `take_outgoing` returns, and calls `tick` at `next_deadline`. The log and the
election state are durable when their methods return, before anything is sent.

Diego Ongaro, "Consensus: Bridging Theory and Practice", 2014; KIP-595, KIP-835, KIP-853, KIP-996.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from broker_core.quorum.entries import (
    Entry,
    EntryKind,
    EpochEnd,
    ReplicaKey,
    Snapshot,
    encode_voters,
)
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
from broker_core.quorum.roles import (
    Follower,
    FollowerProgress,
    Leader,
    Role,
    Unattached,
    Voting,
)
from broker_core.quorum.settings import QuorumSettings
from broker_core.quorum.storage import Election, ElectionStore, MetadataLog
from broker_core.quorum.voter_history import VoterHistory

Voters = frozenset[ReplicaKey]


class NotLeader(Exception):
    """This replica is not the leader; the one with `leader_id` may be."""

    def __init__(self, leader_id: int | None) -> None:
        super().__init__(f"not the leader, which is {leader_id}")
        self.leader_id = leader_id


class VoterChangeRefused(Exception):
    """The set of voters cannot be changed in this way, or not now; the message has the reason."""


class LogsDisagree(Exception):
    """The leader's log contradicts entries that are committed here; the replica cannot continue."""


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
        self.log: Final = log
        self._elections = elections
        self._settings = settings
        self._random = randomness
        self._outgoing: list[Outgoing] = []
        self._epoch, self._voted = elections.load()
        if self._epoch < log.last_epoch:
            # The file of the vote was lost; epochs in the log must never decrease.
            self._epoch, self._voted = log.last_epoch, None
        #: Entries before it are committed; None until it is known.
        self.high_watermark = None if log.snapshot is None else log.snapshot.end_offset
        self._bootstrap_voters = bootstrap_voters
        self._voters = VoterHistory(bootstrap_voters, log)
        # A pre-vote or a fetch comes first, and its response names the leader: the short wait does
        # not disturb a working quorum (KIP-996).
        wait = randomness.random() * settings.election_timeout / 4
        self.role: Role = Unattached(now + wait)
        self._fetch_due = now
        self._fetch_given_up = now
        self._fetch_sent: Request | None = None  # the one fetch in flight, until it times out
        self._snapshot_bytes = bytearray()
        self._snapshot_wanted: EpochEnd | None = None

    # State that callers may read

    @property
    def epoch(self) -> int:
        """The newest epoch this replica knows."""
        return self._epoch

    @property
    def leader_id(self) -> int | None:
        """The leader of this epoch, if it is known."""
        role = self.role
        if isinstance(role, Leader):
            return self.key.node_id
        return None if isinstance(role, Unattached) else role.leader_id

    @property
    def is_leader(self) -> bool:
        """True if this replica is the leader, as far as it knows."""
        return isinstance(self.role, Leader)

    @property
    def voters(self) -> Voters:
        """The voters named by the newest entry about them, committed or not."""
        return self._voters.newest

    @property
    def is_voter(self) -> bool:
        """True if this replica is a voter."""
        return self.key in self.voters

    def next_deadline(self) -> float:
        """Return when `tick` has something to do if nothing happens before."""
        role = self.role
        if isinstance(role, Leader):
            others = [role.followers[voter].next_begin_epoch for voter in self._other_voters()]
            return min([self._quorum_deadline(role), *others])
        deadlines = [role.deadline]
        if isinstance(role, Follower) or not self.is_voter:
            deadlines.append(self._fetch_due if self._fetch_sent is None else self._fetch_given_up)
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
            if now >= self._quorum_deadline(role):
                self.resign(now)
            else:
                self._tell_who_leads(role, now)
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

    def _deadline_passed(self, role: Role, now: float) -> None:
        if not self.is_voter:
            self._become_unattached(self._epoch, now)
        elif isinstance(role, Voting) and not role.pre_vote:
            # A split vote: wait for a random time, unlike the others, then begin with a pre-vote
            # again.
            self._become_unattached(self._epoch, now, self._backoff())
        else:
            leader_id = None if isinstance(role, Unattached | Leader) else role.leader_id
            self._ask_for_votes(now, pre_vote=True, leader_id=leader_id)

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
        self._fetch_due = now
        self._fetch_sent = None
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
        majority = len(self.voters) // 2 + 1
        if len(voting.granted & self.voters) >= majority:
            if voting.pre_vote:
                self._ask_for_votes(now, pre_vote=False, leader_id=None)
            else:
                self._become_leader(now)
        elif len(self.voters - voting.rejected) < majority:
            if voting.leader_id is not None:
                self._become_follower(self._epoch, voting.leader_id, now)
            else:
                self._become_unattached(self._epoch, now)

    def _become_leader(self, now: float) -> None:
        self.role = leader = Leader(self.log.end_offset, now)
        for voter in self._other_voters():
            leader.followers[voter] = FollowerProgress()
        # Only a committed entry of its own epoch tells a leader which earlier entries are
        # committed.
        self._append([Entry(self._epoch, EntryKind.LEADER_CHANGE, b"")])
        self._tell_who_leads(leader, now)

    def resign(self, now: float) -> None:
        """Stop leading and tell the voters; the one with the longest log is named first."""
        role = self.role
        if not isinstance(role, Leader):
            return
        others = sorted(
            self._other_voters(),
            key=lambda voter: role.followers[voter].fetch_offset,
            reverse=True,
        )
        request = EndQuorumEpochRequest(self._epoch, self.key.node_id, tuple(others))
        self._outgoing += [Outgoing(voter.node_id, request) for voter in others]
        self._become_unattached(self._epoch, now)

    # Leading

    def append(self, values: Sequence[bytes]) -> int:
        """Append data as the leader; return the offset of the last entry. Raises NotLeader.

        The entries are committed when the high watermark is beyond that offset, in this epoch.
        """
        if not self.is_leader:
            raise NotLeader(self.leader_id)
        self._append([Entry(self._epoch, EntryKind.DATA, value) for value in values])
        return self.log.end_offset - 1

    def change_voters(self, voters: Voters) -> int:
        """Add or remove one voter; return the offset of the entry that records the change.

        Raises NotLeader and VoterChangeRefused. Only one voter can change at a time, so that any
        old and any new majority have a replica in common. The leader must have committed an entry,
        or two leaders could make different changes (an error in the first edition of Raft's
        thesis).
        """
        role = self.role
        if not isinstance(role, Leader):
            raise NotLeader(self.leader_id)
        committed = self.high_watermark
        if committed is None or committed <= role.start_offset:
            raise VoterChangeRefused("the leader has not committed an entry yet; try again")
        if self._voters.changed_at >= committed:
            raise VoterChangeRefused("another change of the voters is not committed yet; try again")
        if len(voters ^ self.voters) != 1 or not voters:
            raise VoterChangeRefused("one voter at a time can be added or removed")
        for added in voters - self.voters:
            progress = role.followers.get(added)
            if progress is None or progress.fetch_offset < committed:
                raise VoterChangeRefused(f"replica {added.node_id} has not caught up; try again")
            if any(voter.node_id == added.node_id for voter in self.voters):
                raise VoterChangeRefused(f"node {added.node_id} votes already, with another disk")
        self._append([Entry(self._epoch, EntryKind.VOTERS, encode_voters(voters))])
        return self.log.end_offset - 1

    def _append(self, entries: list[Entry]) -> None:
        self._write(entries)
        self._raise_high_watermark()

    def _write(self, entries: Sequence[Entry]) -> None:
        self._voters.appended(self.log.end_offset, entries)
        self.log.append(entries)
        self.log.flush()
        role = self.role
        if isinstance(role, Leader):
            for voter in self._other_voters():
                role.followers.setdefault(voter, FollowerProgress())

    def _raise_high_watermark(self) -> None:
        role = self.role
        if not isinstance(role, Leader):
            return
        offsets = sorted(
            self.log.flushed_offset if voter == self.key else role.followers[voter].fetch_offset
            for voter in self.voters
        )
        majority_has = offsets[(len(offsets) - 1) // 2]
        if majority_has > role.start_offset and majority_has > (self.high_watermark or 0):
            self.high_watermark = majority_has

    def _tell_who_leads(self, leader: Leader, now: float) -> None:
        for voter in self._other_voters():
            progress = leader.followers[voter]
            if now < progress.next_begin_epoch:
                continue
            progress.next_begin_epoch = now + self._settings.election_timeout / 2
            if now - progress.last_fetch > self._settings.election_timeout / 2:
                request = BeginQuorumEpochRequest(self._epoch, self.key.node_id)
                self._outgoing.append(Outgoing(voter.node_id, request))

    def _quorum_deadline(self, leader: Leader) -> float:
        """Return when a majority, including this replica, will not have fetched for too long."""
        heard = sorted(
            float("inf") if voter == self.key else leader.followers[voter].last_fetch
            for voter in self.voters
        )
        last = max(leader.since, heard[(len(heard) - 1) // 2])
        # A leader that was removed from the voters resigns when that is committed.
        if not self.is_voter and self._voters.changed_at < (self.high_watermark or 0):
            return float("-inf")
        return last + self._settings.check_quorum_timeout

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
        if not isinstance(role, Leader) or request.epoch != self._epoch:
            return FetchAnswer(epoch=self._epoch, leader_id=self.leader_id)
        progress = self._heard(role, request.replica, now)
        snapshot = self.log.snapshot
        end = self.log.end_of_epoch(request.last_epoch)
        lead = FetchAnswer(
            epoch=self._epoch, leader_id=self.key.node_id, high_watermark=self.high_watermark or 0
        )
        if snapshot is not None and (
            request.fetch_offset < self.log.start_offset or request.last_epoch < snapshot.epoch
        ):
            return replace(lead, snapshot=snapshot.id)
        if end.epoch != request.last_epoch or end.end_offset < request.fetch_offset:
            return replace(lead, diverging=end)
        # A replica does not lose what it once had of this epoch's log: a request with a smaller
        # offset is only late.
        progress.fetch_offset = max(progress.fetch_offset, request.fetch_offset)
        self._raise_high_watermark()
        return replace(
            lead,
            high_watermark=self.high_watermark or 0,
            entries=self.log.read(request.fetch_offset, self._settings.fetch_entries_max),
        )

    def has_news(self, request: FetchRequest) -> bool:
        """Return whether a fetch response would contain news; otherwise it may be delayed."""
        return (
            not self.is_leader
            or request.epoch != self._epoch
            or request.high_watermark < (self.high_watermark or 0)
            or request.last_epoch != self.log.last_epoch
            or request.fetch_offset != self.log.end_offset
        )

    def _heard(self, leader: Leader, replica: ReplicaKey, now: float) -> FollowerProgress:
        progress = leader.followers.setdefault(replica, FollowerProgress())
        progress.last_fetch = now
        return progress

    def _handle_fetch_snapshot(
        self, request: FetchSnapshotRequest, now: float
    ) -> FetchSnapshotAnswer:
        role = self.role
        if not isinstance(role, Leader) or request.epoch != self._epoch:
            return FetchSnapshotAnswer(epoch=self._epoch, leader_id=self.leader_id)
        self._heard(role, request.replica, now)
        snapshot = self.log.snapshot
        if snapshot is None or snapshot.id != request.snapshot:
            return FetchSnapshotAnswer(epoch=self._epoch, leader_id=self.key.node_id)
        end = request.position + self._settings.snapshot_chunk_bytes
        return FetchSnapshotAnswer(
            epoch=self._epoch,
            leader_id=self.key.node_id,
            size=len(snapshot.data),
            chunk=snapshot.data[request.position : end],
            voters=snapshot.voters,
        )

    # Answers of others

    def on_answer(self, request: Request, answer: Answer | None, now: float) -> None:
        """Handle the response to a request, or None if there will be no response."""
        if isinstance(request, FetchRequest | FetchSnapshotRequest):
            if request is not self._fetch_sent:
                # It timed out or was answered before: two responses must not lead to two fetches.
                return
            self._fetch_sent = None
            self._fetch_due = now + self._settings.retry_backoff
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
        if (request.fetch_offset, request.last_epoch) != (self.log.end_offset, self.log.last_epoch):
            return
        if answer.snapshot is not None:
            self._snapshot_wanted = answer.snapshot
            self._snapshot_bytes.clear()
        elif answer.diverging is not None:
            self._truncate(answer.diverging)
        else:
            self._write(answer.entries)
            self._learn_high_watermark(min(answer.high_watermark, self.log.end_offset))
        self._fetch_if_due(now)

    def _leader_answered(self, role: Follower, now: float) -> None:
        role.deadline = now + self._settings.fetch_timeout
        role.has_fetched = True
        self._fetch_due = now

    def _truncate(self, diverging: EpochEnd) -> None:
        ours = self.log.end_of_epoch(diverging.epoch)
        end_offset = min(ours.end_offset, diverging.end_offset)
        if end_offset < max(self.high_watermark or 0, self.log.start_offset):
            raise LogsDisagree(
                f"the leader of epoch {self._epoch} has the same entries up to offset {end_offset} "
                f"only, but those up to {self.high_watermark} are committed"
            )
        self.log.truncate(end_offset)
        self._voters.truncated(end_offset)

    def _learn_high_watermark(self, offset: int) -> None:
        if offset > (self.high_watermark or 0):
            self.high_watermark = offset

    def _on_snapshot_fetched(
        self, request: FetchSnapshotRequest, answer: FetchSnapshotAnswer, now: float
    ) -> None:
        role = self.role
        if not isinstance(role, Follower) or request.snapshot != self._snapshot_wanted:
            return
        if answer.chunk is None:
            # The leader has a newer one, or is no longer the leader: the next fetch will tell.
            self._snapshot_wanted = None
            return
        self._leader_answered(role, now)
        if request.position != len(self._snapshot_bytes):
            return
        self._snapshot_bytes += answer.chunk
        if len(self._snapshot_bytes) >= answer.size:
            epoch, end_offset = request.snapshot
            data = bytes(self._snapshot_bytes)
            self._snapshot_wanted = None
            self._snapshot_bytes.clear()
            self.install(Snapshot(end_offset, epoch, answer.voters, data))
            self._learn_high_watermark(end_offset)
        self._fetch_if_due(now)

    # Fetching

    def _fetch_if_due(self, now: float) -> None:
        if self._fetch_sent is not None:
            if now < self._fetch_given_up:
                return
            self._fetch_sent = None
            self._fetch_due = now
        leader_id = self.role.leader_id if isinstance(self.role, Follower) else None
        if leader_id is None and not self.is_voter and isinstance(self.role, Unattached):
            # An observer asks a random voter, which names the leader.
            leader_id = self._random.choice(sorted(self._other_voters())).node_id
        if leader_id is None or now < self._fetch_due:
            return
        self._fetch_given_up = now + self._settings.request_timeout
        request: Request
        if self._snapshot_wanted is not None and isinstance(self.role, Follower):
            request = FetchSnapshotRequest(
                self._epoch, self.key, self._snapshot_wanted, len(self._snapshot_bytes)
            )
        else:
            request = FetchRequest(
                self._epoch,
                self.key,
                self.log.end_offset,
                self.log.last_epoch,
                self.high_watermark or 0,
            )
        self._fetch_sent = request
        self._outgoing.append(Outgoing(leader_id, request))

    # Snapshots and voters

    def snapshot(self, end_offset: int, data: bytes) -> Snapshot:
        """Return a snapshot of the entries before a committed offset; `data` is their state."""
        if not self.log.start_offset < end_offset <= (self.high_watermark or 0):
            raise ValueError(f"offset {end_offset} is not committed, or before the last snapshot")
        [last] = self.log.read(end_offset - 1, 1)
        return Snapshot(end_offset, last.epoch, self._voters.before(end_offset), data)

    def install(self, snapshot: Snapshot) -> None:
        """Replace the entries before the snapshot's end with the snapshot."""
        self.log.install(snapshot)
        self._voters = VoterHistory(self._bootstrap_voters, self.log)

    def _other_voters(self) -> Voters:
        return self.voters - {self.key}
