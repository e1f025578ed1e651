"""Elects the leader of a partition when something has changed, and records it.

Clean: the leader comes from the ISR, whose members have every committed record, or where none of
them is there from the eligible leader replicas (KIP-966): those that left the ISR when it became
smaller than `min.insync.replicas`, for since then nothing has been committed that they lack. A
partition that has neither waits for them, unless `unclean.leader.election.enable` allows a replica
that may lack something; the partition is then recorded as recovering.
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
    min_insync_replicas: int = 1
    #: A replica that may have lost what it had, its machine's power or its disk.
    lossy: int | None = None
    elr: tuple[int, ...] = ()
    #: The leader is elected from outside the ISR.
    is_unclean: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        partition = self.partition
        self.replicas = partition.replicas
        self.isr = partition.isr
        self.adding = partition.adding
        self.removing = partition.removing
        self.recovering = partition.recovering
        self.elr = partition.elr

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
        for broker_id in candidates:
            if broker_id in self.elr and self.is_active(broker_id):
                self.elr = tuple(each for each in (*self.isr, *self.elr) if each != broker_id)
                self.isr = (broker_id,)
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

    def _keep_last(self) -> None:
        """The last members of the ISR stay in it, unless others have what they may have lost."""
        isr, elr = (
            tuple(each for each in these if each != self.lossy)
            for these in (self.partition.isr, self.partition.elr)
        )
        self.isr = isr or elr or self.partition.isr

    def _keep_eligible(self) -> None:
        """Replicas that left the ISR have all committed records until enough are in sync again."""
        self.elr = ()
        if len(self.isr) < min(self.min_insync_replicas, len(self.replicas)):
            left_out = {*self.isr, self.lossy}
            former = dict.fromkeys((*self.partition.elr, *self.partition.isr))
            self.elr = tuple(
                each for each in former if each in self.replicas and each not in left_out
            )

    def change(self, topic_id: bytes, index: int) -> PartitionChange | None:
        """What has to be recorded; None if nothing is different."""
        partition = self.partition
        if not self.isr:
            self._keep_last()
        self._complete_reassignment()
        self._keep_eligible()
        leader = self._leader()
        if self.is_unclean:
            self.isr, self.elr = (leader,), ()
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
            elr=_changed(partition.elr, self.elr),
        )
        return None if change == PartitionChange(topic_id, index) else change


def _changed(before: Sequence[int], after: Sequence[int]) -> tuple[int, ...] | None:
    return None if tuple(before) == tuple(after) else tuple(after)
