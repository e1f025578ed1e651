"""The roles of a replica and the state of each; times are monotonic seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from broker_core.quorum.entries import ReplicaKey, Voters
from broker_core.quorum.leader import Leader


@dataclass(slots=True)
class Unattached:
    """Knows no leader. At `deadline` a voter begins a pre-vote; an observer asks random voters."""

    leader_id: ClassVar[None] = None
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

    def is_granted(self, voters: Voters) -> bool:
        """Return whether a majority has granted its votes."""
        return len(self.granted & voters) >= _majority(voters)

    def is_rejected(self, voters: Voters) -> bool:
        """Return whether no majority can grant its votes any more."""
        return len(voters - self.rejected) < _majority(voters)


def _majority(voters: Voters) -> int:
    return len(voters) // 2 + 1


Role = Unattached | Follower | Voting | Leader
