"""Who leads a partition when something has changed, and what is recorded about it.

Clean: the leader comes from the ISR, whose members have every committed record. A partition whose
ISR is gone waits for it, unless `unclean.leader.election.enable` allows a replica that may lack
some; the partition is then recorded as recovering.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from broker_core.cluster.image import PartitionImage
from broker_core.cluster.records import LEADER_STAYS, NO_LEADER, PartitionChange


@dataclass(slots=True)
class PartitionTarget:
    """What a partition shall become; what is not set stays as it is."""

    partition: PartitionImage
    is_active: Callable[[int], bool]
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    recovering: bool = False
    prefers_first: bool = False
    allows_unclean: bool = False
    #: The leader is elected from outside the ISR.
    is_unclean: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        partition = self.partition
        self.replicas = partition.replicas
        self.isr = partition.isr
        self.adding = partition.adding
        self.removing = partition.removing
        self.recovering = partition.recovering

    def _may_lead(self, broker_id: int) -> bool:
        return broker_id in self.isr and self.is_active(broker_id)

    def _leader(self) -> int:
        candidates = [each for each in self.replicas if each not in self.removing]
        candidates += self.removing
        if self.prefers_first and candidates and self._may_lead(candidates[0]):
            return candidates[0]
        if self._may_lead(self.partition.leader) and self.partition.leader in self.replicas:
            return self.partition.leader
        for broker_id in candidates:
            if self._may_lead(broker_id):
                return broker_id
        if self.allows_unclean:
            for broker_id in candidates:
                if self.is_active(broker_id):
                    self.is_unclean = True
                    return broker_id
        return NO_LEADER

    def _complete_reassignment(self) -> None:
        """The new replicas are in sync: the old ones go."""
        if not (self.adding or self.removing):
            return
        isr = tuple(each for each in self.isr if each not in self.removing)
        if not isr or not set(self.adding) <= set(isr):
            return
        self.replicas = tuple(each for each in self.replicas if each not in self.removing)
        self.isr = isr
        self.adding = self.removing = ()

    def change(self, topic_id: bytes, index: int) -> PartitionChange | None:
        """What has to be recorded; None if nothing is different."""
        partition = self.partition
        if not self.isr:
            # The last member of the ISR stays in it: it alone has every committed record.
            self.isr = partition.isr
        self._complete_reassignment()
        leader = self._leader()
        if self.is_unclean:
            self.isr = (leader,)
            self.recovering = True
        # A replica that is gone for good must not be taken for a follower of this epoch.
        lost_replicas = not set(partition.replicas) <= set(self.replicas)
        leads_anew = leader != partition.leader or lost_replicas or self.is_unclean
        change = PartitionChange(
            topic_id,
            index,
            isr=_changed(partition.isr, self.isr),
            leader=leader if leads_anew else LEADER_STAYS,
            replicas=_changed(partition.replicas, self.replicas),
            adding=_changed(partition.adding, self.adding),
            removing=_changed(partition.removing, self.removing),
            recovering=self.recovering if self.recovering != partition.recovering else None,
        )
        return None if change == PartitionChange(topic_id, index) else change


def _changed(before: Sequence[int], after: Sequence[int]) -> tuple[int, ...] | None:
    return None if tuple(before) == tuple(after) else tuple(after)
