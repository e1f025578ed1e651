"""What the replicas of a quorum ask each other (KIP-595, KIP-630, KIP-853, KIP-996).

Every answer says who leads in which epoch, as far as the sender knows. An answer comes back to the
asker together with its request, as connections do it by correlation id: a late one is recognized by
a request that is not true any more.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.quorum.entries import Entry, EpochEnd, ReplicaKey


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """Will you vote for me? With `pre_vote`: would you, if I asked?"""

    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey
    last_epoch: int
    end_offset: int
    pre_vote: bool


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochRequest:
    """I lead this epoch."""

    epoch: int
    leader_id: int


@dataclass(frozen=True, slots=True)
class EndQuorumEpochRequest:
    """I lead this epoch no longer. Whoever is earlier in the list shall stand earlier."""

    epoch: int
    leader_id: int
    successors: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """What comes after my log? It says also: everything before is durable here."""

    epoch: int
    replica: ReplicaKey
    fetch_offset: int
    last_epoch: int
    high_watermark: int  # as far as known here (KIP-1166)


@dataclass(frozen=True, slots=True)
class FetchSnapshotRequest:
    """The bytes of a snapshot from `position` on."""

    epoch: int
    replica: ReplicaKey
    snapshot: EpochEnd
    position: int


Request = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The leader, in the newest epoch that the answering replica knows."""

    epoch: int
    leader_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteAnswer(Answer):
    """Yes or no."""

    granted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAnswer(Answer):
    """Entries, or where the asker's log leaves the leader's, or the snapshot that it needs first.

    Only a leader sets a high watermark; without it the answer says nothing but who leads.
    """

    high_watermark: int | None = None
    entries: tuple[Entry, ...] = ()
    diverging: EpochEnd | None = None
    snapshot: EpochEnd | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotAnswer(Answer):
    """A piece of a snapshot of `size` bytes; None where it is not there (any more)."""

    size: int = 0
    chunk: bytes | None = None
    voters: frozenset[ReplicaKey] = frozenset()


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request to send."""

    node_id: int
    request: Request
