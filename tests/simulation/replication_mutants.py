"""Known bugs of replication, to show that the simulation would find them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from broker_core.cluster.image import PartitionImage
from broker_core.log import log as log_module
from broker_core.log.leader_epochs import LeaderEpochs
from broker_core.log.log import Log
from broker_core.log.producer_state import ProducerState
from broker_core.replication import follower as follower_module
from broker_core.replication.leader import IsrProposal, PartitionLeader
from broker_core.server.partitions.replicated_partition import ReplicatedPartition
from tests.simulation.replication_cluster import Node

Patch = tuple[object, str, Any]


def _committed_without_isr(
    self: PartitionLeader, log_end_offset: int, now_ms: Callable[[], int], min_insync_replicas: int
) -> int:
    return log_end_offset


def _committed_by_majority(
    self: PartitionLeader, log_end_offset: int, now_ms: Callable[[], int], min_insync_replicas: int
) -> int:
    ends = [log_end_offset, *(each.log_end_offset for each in self._followers.values())]
    return max(sorted(ends)[1], 0)


_follow = ReplicatedPartition.follow


def _truncate_by_high_watermark(self: ReplicatedPartition, image: PartitionImage) -> bool:
    """Truncate as Apache Kafka did before KIP-101."""
    is_new = _follow(self, image)
    if is_new:
        self.log.truncate_to(self.high_watermark)
    return is_new


def _ignore_divergence(
    self: ReplicatedPartition, last_epoch: int, offset: int
) -> tuple[int, int] | None:
    return None


def _cut_where_the_leader_says(log: Log, leader_epoch: int, leader_end_offset: int) -> int:
    return min(leader_end_offset, log.log_end_offset)


def _grow_at_once(self: PartitionLeader, broker_id: int, high_watermark: int) -> Any:
    follower = self._followers.get(broker_id)
    if self._open is not None or follower is None or broker_id in self.image.isr:
        return None
    return self._propose((*self.image.isr, broker_id))


def _trust_the_proposed_isr(self: PartitionLeader, proposal: IsrProposal | None) -> None:
    self._open = proposal
    self.maximal_isr = frozenset(self.image.isr if proposal is None else proposal.isr)


def _keep_epochs(self: LeaderEpochs, end_offset: int) -> None:
    return


def _keep_producers(*_: object) -> ProducerState:
    return ProducerState()


def _read_everything(
    self: ReplicatedPartition, offset: int, max_bytes: int, *, min_one_message: bool
) -> bytes:
    return self.log.read(offset, max_bytes) if offset < self.log.log_end_offset else b""


def _written_is_durable(self: ReplicatedPartition) -> int:
    return self.log.log_end_offset


MUTANTS: dict[str, Callable[[], list[Patch]]] = {
    "commit before the ISR has it": lambda: [
        (PartitionLeader, "committed_offset", _committed_without_isr)
    ],
    "commit by majority": lambda: [(PartitionLeader, "committed_offset", _committed_by_majority)],
    "truncate by the high watermark": lambda: [
        (ReplicatedPartition, "follow", _truncate_by_high_watermark)
    ],
    "ignore that logs diverge": lambda: [(ReplicatedPartition, "diverging", _ignore_divergence)],
    "ignore the follower's own epochs": lambda: [
        (follower_module, "truncation_offset", _cut_where_the_leader_says)
    ],
    "let followers join that are behind": lambda: [
        (PartitionLeader, "propose_growth", _grow_at_once)
    ],
    "do not wait for who is about to leave": lambda: [
        (PartitionLeader, "_set_open", _trust_the_proposed_isr)
    ],
    "keep epochs of what was cut": lambda: [(LeaderEpochs, "truncate_from_end", _keep_epochs)],
    "forget producers when cutting": lambda: [(log_module, "reload_producers", _keep_producers)],
    "show what is not committed": lambda: [(ReplicatedPartition, "read", _read_everything)],
    "acknowledge before the flush": lambda: [
        (ReplicatedPartition, "_written_offset", property(_written_is_durable)),
        (Node, "_has_to_flush_first", lambda *_: False),
    ],
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Run with a bug in place."""
    with ExitStack() as stack:
        for target, attribute, replacement in MUTANTS[name]():
            stack.enter_context(patch.object(target, attribute, replacement))
        yield
