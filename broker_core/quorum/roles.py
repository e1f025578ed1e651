"""The roles that a replica takes, and what each has to remember; times are monotonic seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker_core.quorum.entries import ReplicaKey


@dataclass(slots=True)
class Unattached:
    """Knows of no leader. A voter stands for election at `deadline`, an observer looks around."""

    deadline: float


@dataclass(slots=True)
class Follower:
    """Fetches from a leader, until it has not answered by `deadline`."""

    leader_id: int
    deadline: float
    has_fetched: bool = False


@dataclass(slots=True)
class Voting:
    """Has asked for votes: as prospective whether it would get them, or as candidate in earnest.

    Asking first keeps a replica that was cut off from raising the epoch of a quorum that works
    (KIP-996).
    """

    pre_vote: bool
    deadline: float
    leader_id: int | None  # whom it followed in this epoch; it goes back there without a majority
    granted: set[ReplicaKey] = field(default_factory=set)
    rejected: set[ReplicaKey] = field(default_factory=set)


@dataclass(slots=True)
class FollowerProgress:
    """What a leader knows of another replica."""

    fetch_offset: int = 0  # everything before is durable there, and the same as here
    last_fetch: float = float("-inf")
    next_begin_epoch: float = float("-inf")  # tell it then who leads


@dataclass(slots=True)
class Leader:
    """Appends, and counts who has what."""

    start_offset: int  # of the first entry of its epoch
    since: float
    followers: dict[ReplicaKey, FollowerProgress] = field(default_factory=dict)


Role = Unattached | Follower | Voting | Leader
