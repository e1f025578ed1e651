"""The roles of a replica and the state of each; times are monotonic seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker_core.quorum.entries import ReplicaKey


@dataclass(slots=True)
class Unattached:
    """Knows no leader. At `deadline` a voter begins a pre-vote; an observer asks random voters."""

    deadline: float


@dataclass(slots=True)
class Follower:
    """Fetches from a leader, which must respond before `deadline`."""

    leader_id: int
    deadline: float
    has_fetched: bool = False


@dataclass(slots=True)
class Voting:
    """Has asked for votes: pre-votes as a prospective candidate, or real votes as a candidate.

    The pre-vote keeps a replica that was cut off from raising the epoch of a working quorum
    (KIP-996).
    """

    pre_vote: bool
    deadline: float
    leader_id: int | None  # its leader in this epoch, which it follows again without a majority
    granted: set[ReplicaKey] = field(default_factory=set)
    rejected: set[ReplicaKey] = field(default_factory=set)


@dataclass(slots=True)
class FollowerProgress:
    """The leader's data about another replica."""

    fetch_offset: int = 0  # all entries before it are durable there, and the same as here
    last_fetch: float = float("-inf")
    next_begin_epoch: float = float("-inf")  # when to announce the leader to it again


@dataclass(slots=True)
class Leader:
    """Appends entries and tracks how far the other replicas are."""

    start_offset: int  # offset of the first entry of its epoch
    since: float
    followers: dict[ReplicaKey, FollowerProgress] = field(default_factory=dict)


Role = Unattached | Follower | Voting | Leader
