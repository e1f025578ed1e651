"""The leader of an epoch: appending, the high watermark, and what the other replicas fetch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from broker_core.quorum.entries import Entry, EntryKind, ReplicaKey, Voters, encode_voters
from broker_core.quorum.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchAnswer,
    FetchRequest,
    FetchSnapshotAnswer,
    FetchSnapshotRequest,
    Outgoing,
)
from broker_core.quorum.replicated_log import ReplicatedLog
from broker_core.quorum.settings import QuorumSettings


class VoterChangeRefused(Exception):
    """The set of voters cannot be changed in this way, or not now; the message has the reason."""


@dataclass(slots=True)
class FollowerProgress:
    """The leader's data about another replica; times are monotonic seconds."""

    fetch_offset: int = 0  # all entries before it are durable there, and the same as here
    last_fetch: float = float("-inf")
    next_begin_epoch: float = float("-inf")  # when to announce the leader to it again


class Leader:
    """The role of a replica that appends entries and tracks how far the others are."""

    def __init__(
        self,
        key: ReplicaKey,
        epoch: int,
        log: ReplicatedLog,
        settings: QuorumSettings,
        now: float,
    ) -> None:
        self.leader_id = key.node_id
        #: Offset of the first entry of its epoch.
        self.start_offset = log.stored.end_offset
        #: The voters, and all other replicas that have fetched.
        self.followers: Final[dict[ReplicaKey, FollowerProgress]] = {}
        self._key = key
        self._epoch = epoch
        self._log = log
        self._settings = settings
        self._since = now
        self._know_voters()

    # Time

    def next_deadline(self) -> float:
        """Return when `announcements` are due, or it has to resign, if nothing happens before."""
        others = [self.followers[voter].next_begin_epoch for voter in self._other_voters()]
        return min([self.quorum_deadline(), *others])

    def quorum_deadline(self) -> float:
        """Return when a majority, including this replica, will not have fetched for too long."""
        voters = self._log.voters
        heard = sorted(
            float("inf") if voter == self._key else self.followers[voter].last_fetch
            for voter in voters
        )
        last = max(self._since, heard[(len(heard) - 1) // 2])
        # A leader that was removed from the voters resigns when that is committed.
        if self._key not in voters and self._log.voters_changed_at < self._log.committed:
            return float("-inf")
        return last + self._settings.check_quorum_timeout

    def announcements(self, now: float) -> list[Outgoing]:
        """Return the requests that tell voters who leads, unless they have fetched lately."""
        outgoing = []
        for voter in self._other_voters():
            progress = self.followers[voter]
            if now < progress.next_begin_epoch:
                continue
            progress.next_begin_epoch = now + self._settings.election_timeout / 2
            if now - progress.last_fetch > self._settings.election_timeout / 2:
                request = BeginQuorumEpochRequest(self._epoch, self.leader_id)
                outgoing.append(Outgoing(voter.node_id, request))
        return outgoing

    def farewell(self) -> list[Outgoing]:
        """Return the requests with which it resigns; the voter with the longest log comes first."""
        others = sorted(
            self._other_voters(),
            key=lambda voter: self.followers[voter].fetch_offset,
            reverse=True,
        )
        request = EndQuorumEpochRequest(self._epoch, self.leader_id, tuple(others))
        return [Outgoing(voter.node_id, request) for voter in others]

    # Appending

    def append(self, kind: EntryKind, values: Sequence[bytes]) -> int:
        """Append entries of its epoch, durably; return the offset of the last one."""
        self._log.append([Entry(self._epoch, kind, value) for value in values])
        self._know_voters()
        self._raise_high_watermark()
        return self._log.stored.end_offset - 1

    def change_voters(self, voters: Voters) -> int:
        """Add or remove one voter; return the offset of the entry that records the change.

        Raises VoterChangeRefused. Only one voter can change at a time, so that any old and any new
        majority have a replica in common. The leader must have committed an entry, or two leaders
        could make different changes (an error in the first edition of Raft's thesis).
        """
        present = self._log.voters
        committed = self._log.high_watermark
        if committed is None or committed <= self.start_offset:
            raise VoterChangeRefused("the leader has not committed an entry yet; try again")
        if self._log.voters_changed_at >= committed:
            raise VoterChangeRefused("another change of the voters is not committed yet; try again")
        if len(voters ^ present) != 1 or not voters:
            raise VoterChangeRefused("one voter at a time can be added or removed")
        for added in voters - present:
            progress = self.followers.get(added)
            if progress is None or progress.fetch_offset < committed:
                raise VoterChangeRefused(f"replica {added.node_id} has not caught up; try again")
            if any(voter.node_id == added.node_id for voter in present):
                raise VoterChangeRefused(f"node {added.node_id} votes already, with another disk")
        return self.append(EntryKind.VOTERS, [encode_voters(voters)])

    def _know_voters(self) -> None:
        for voter in self._other_voters():
            self.followers.setdefault(voter, FollowerProgress())

    def _raise_high_watermark(self) -> None:
        offsets = sorted(
            self._log.stored.flushed_offset
            if voter == self._key
            else self.followers[voter].fetch_offset
            for voter in self._log.voters
        )
        majority_has = offsets[(len(offsets) - 1) // 2]
        # Only a committed entry of its own epoch tells a leader which earlier entries are
        # committed.
        if majority_has > self.start_offset:
            self._log.commit(majority_has)

    # Fetches

    def answer_fetch(self, request: FetchRequest, now: float) -> FetchAnswer:
        """Return entries, or where the log of a replica diverges, or the snapshot that it needs."""
        progress = self._heard(request.replica, now)
        stored = self._log.stored
        snapshot = stored.snapshot
        end = stored.end_of_epoch(request.last_epoch)
        answer = FetchAnswer(
            epoch=self._epoch, leader_id=self.leader_id, high_watermark=self._log.committed
        )
        if snapshot is not None and (
            request.fetch_offset < stored.start_offset or request.last_epoch < snapshot.epoch
        ):
            return replace(answer, snapshot=snapshot.id)
        if end.epoch != request.last_epoch or end.end_offset < request.fetch_offset:
            return replace(answer, diverging=end)
        # A replica does not lose what it once had of this epoch's log: a request with a smaller
        # offset is only late.
        progress.fetch_offset = max(progress.fetch_offset, request.fetch_offset)
        self._raise_high_watermark()
        return replace(
            answer,
            high_watermark=self._log.committed,
            entries=stored.read(request.fetch_offset, self._settings.fetch_entries_max),
        )

    def has_news(self, request: FetchRequest) -> bool:
        """Return whether the answer to a fetch would contain news."""
        stored = self._log.stored
        return (
            request.epoch != self._epoch
            or request.high_watermark < self._log.committed
            or request.last_epoch != stored.last_epoch
            or request.fetch_offset != stored.end_offset
        )

    def answer_fetch_snapshot(
        self, request: FetchSnapshotRequest, now: float
    ) -> FetchSnapshotAnswer:
        """Return a chunk of the snapshot, without one if there is a newer snapshot."""
        self._heard(request.replica, now)
        snapshot = self._log.stored.snapshot
        if snapshot is None or snapshot.id != request.snapshot:
            return FetchSnapshotAnswer(epoch=self._epoch, leader_id=self.leader_id)
        end = request.position + self._settings.snapshot_chunk_bytes
        return FetchSnapshotAnswer(
            epoch=self._epoch,
            leader_id=self.leader_id,
            size=len(snapshot.data),
            chunk=snapshot.data[request.position : end],
            voters=snapshot.voters,
        )

    def _heard(self, replica: ReplicaKey, now: float) -> FollowerProgress:
        progress = self.followers.setdefault(replica, FollowerProgress())
        progress.last_fetch = now
        return progress

    def _other_voters(self) -> Voters:
        return self._log.voters - {self._key}
