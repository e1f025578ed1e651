"""Leader elections: compute the new state of a partition after a change.

A clean election takes the leader from the ISR, whose members have every committed record. If none
of them is available, it takes an eligible leader replica (KIP-966): one that left the ISR when the
ISR became smaller than `min.insync.replicas`; nothing has been committed since then that it lacks.
A partition without either waits for them, unless `unclean.leader.election.enable` allows a replica
that may lack records; the partition is then recorded as recovering.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from broker_core.cluster.image import PartitionImage
from broker_core.cluster.records import LEADER_STAYS, NO_LEADER, PartitionChange


@dataclass(slots=True)
class PartitionTarget:
    """The wanted state of a partition; fields that are not set stay as they are."""

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
    #: A replica that may have lost records, for example in a power cut or with its disk.
    lossy: int | None = None
    elr: tuple[int, ...] = ()
    #: True if the leader was elected from outside the ISR.
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
        """Remove the old replicas if the new ones are in sync."""
        if not (self.adding or self.removing):
            return
        isr = tuple(each for each in self.isr if each not in self.removing)
        if not isr or not set(self.adding) <= set(isr):
            return
        self.replicas = tuple(each for each in self.replicas if each not in self.removing)
        self.isr = isr
        self.adding = self.removing = ()

    def _keep_last(self) -> None:
        """Keep the last members in the ISR, unless others have what these may have lost."""
        isr, elr = (
            tuple(each for each in these if each != self.lossy)
            for these in (self.partition.isr, self.partition.elr)
        )
        self.isr = isr or elr or self.partition.isr

    def _keep_eligible(self) -> None:
        """Keep former ISR members, which have all committed records, until enough are in sync."""
        self.elr = ()
        if len(self.isr) < min(self.min_insync_replicas, len(self.replicas)):
            left_out = {*self.isr, self.lossy}
            former = dict.fromkeys((*self.partition.elr, *self.partition.isr))
            self.elr = tuple(
                each for each in former if each in self.replicas and each not in left_out
            )

    def change(self, topic_id: bytes, index: int) -> PartitionChange | None:
        """Return the change to record; None if there is none."""
        partition = self.partition
        if not self.isr:
            self._keep_last()
        self._complete_reassignment()
        self._keep_eligible()
        leader = self._leader()
        if self.is_unclean:
            self.isr, self.elr = (leader,), ()
            self.recovering = True
        # A removed replica must not be taken for a follower of this epoch.
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
