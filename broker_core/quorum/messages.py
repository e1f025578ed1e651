"""Requests and responses between the replicas of a quorum (KIP-595, KIP-630, KIP-853, KIP-996).

Every response names the leader and the epoch that the sender knows. A response is handed to the
requester together with its request, as connections match them by correlation id: a late response is
recognized by a request that is out of date.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.quorum.entries import Entry, EpochEnd, ReplicaKey, Voters


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """Asks for a vote; with `pre_vote`, asks whether the voter would grant one."""

    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey
    last_epoch: int
    end_offset: int
    pre_vote: bool


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochRequest:
    """Announces the leader of an epoch."""

    epoch: int
    leader_id: int


@dataclass(frozen=True, slots=True)
class EndQuorumEpochRequest:
    """The leader of an epoch resigns. Voters earlier in `successors` stand for election earlier."""

    epoch: int
    leader_id: int
    successors: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Asks for the entries after the sender's log; those before are durable at the sender."""

    epoch: int
    replica: ReplicaKey
    fetch_offset: int
    last_epoch: int
    high_watermark: int  # the one that the sender knows (KIP-1166)


@dataclass(frozen=True, slots=True)
class FetchSnapshotRequest:
    """Asks for the bytes of a snapshot from `position` on."""

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
    """The leader of the newest epoch that the responding replica knows."""

    epoch: int
    leader_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteAnswer(Answer):
    """The response to a VoteRequest."""

    granted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAnswer(Answer):
    """Entries, or where the requester's log diverges, or the snapshot that it needs first.

    Only a leader sets a high watermark; without one, the response only names the leader.
    """

    high_watermark: int | None = None
    entries: tuple[Entry, ...] = ()
    diverging: EpochEnd | None = None
    snapshot: EpochEnd | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotAnswer(Answer):
    """A chunk of a snapshot of `size` bytes; None if the sender has no such snapshot (any more)."""

    size: int = 0
    chunk: bytes | None = None
    voters: Voters = frozenset()


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request to send."""

    node_id: int
    request: Request
