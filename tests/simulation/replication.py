"""Runs a simulated partition with producers and a consumer, seed by seed.

python -m tests.simulation.replication 0 1000     seeds 0 to 999
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from broker_core import errors
from tests.simulation.replication_checker import Violation
from tests.simulation.replication_cluster import (
    CONSUMER,
    NODES,
    PRODUCER,
    PRODUCERS,
    Batch,
    Cluster,
)

RUN_S = 20.0
RECOVERY_S = 30.0
_IN_FLIGHT_MAX = 5
_RETRY_S = 0.1

#: Error codes after which a client asks again; any other is a failure of the cluster.
_AGAIN = frozenset(
    each.code
    for each in (
        errors.NotLeaderOrFollower,
        errors.NotEnoughReplicas,
        errors.NotEnoughReplicasAfterAppend,
        errors.OutOfOrderSequenceNumber,
        errors.KafkaStorageError,
        errors.RequestTimedOut,
    )
)


class Producer:
    """An idempotent producer: up to five batches in flight, in order, repeated until answered."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self._cluster = cluster
        self._number = number
        self._next = 0
        self._count = 0
        self._waiting: dict[int, Batch] = {}  # by first number, oldest first
        self.is_stopped = False

    @property
    def is_done(self) -> bool:
        """True once the producer was stopped and everything sent is acknowledged."""
        return self.is_stopped and not self._waiting

    def turn(self) -> None:
        """Send a new batch if allowed, and repeat those without an answer."""
        chance = self._cluster.random
        # The broker remembers five batches: the oldest without an answer has to be among them.
        oldest = next(iter(self._waiting.values()), None)
        if not self.is_stopped and (oldest is None or self._count - oldest.index < _IN_FLIGHT_MAX):
            batch = Batch(self._number, self._next, chance.randint(1, 3), self._count)
            self._waiting[batch.first] = batch
            self._next += batch.count
            self._count += 1
            self._send()
        elif self._waiting and chance.random() < 0.3:
            self._send()
        self._cluster.scheduler.after(_RETRY_S * chance.random(), self.turn)

    def _send(self) -> None:
        # A connection keeps order: all batches without an answer are sent in order.
        batches = list(self._waiting.values())
        # Clients know a leader, but not always the present one.
        cluster = self._cluster
        target = cluster.random.choice((cluster.image.leader, cluster.random.choice(NODES)))
        node = cluster.nodes.get(target)
        if node is None:
            return

        def arrive() -> None:
            for batch in batches:
                node.produce(batch, partial(self._answered, batch))

        cluster.network.send(PRODUCER, target, arrive)

    def _answered(self, batch: Batch, code: int, base_offset: int) -> None:
        if code == errors.NONE:
            self._cluster.checker.acknowledge(batch.values, base_offset)
            self._waiting.pop(batch.first, None)
        elif code not in _AGAIN:
            raise Violation(f"batch {batch.first} is refused with error {code}")


class Consumer:
    """Reads continuously, from leaders and followers."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.offset = 0

    def turn(self) -> None:
        """Fetch from a random node."""
        cluster, offset = self._cluster, self.offset

        def answered(code: int, high_watermark: int, data: bytes) -> None:
            if code == errors.NONE and offset == self.offset:
                self.offset = cluster.checker.consumed(offset, data)

        target = cluster.random.choice(NODES)
        node = cluster.nodes[target]
        cluster.network.send(CONSUMER, target, lambda: node.consume(offset, answered))
        cluster.scheduler.after(0.05, self.turn)


def run(seed: int) -> Counter[str]:
    """Run one seed; return counters of its faults. Raises Violation."""
    cluster = Cluster(seed, flush=seed % 2 == 0)
    producers = [Producer(cluster, number) for number in range(PRODUCERS)]
    for producer in producers:
        producer.turn()
    Consumer(cluster).turn()
    scheduler = cluster.scheduler
    while scheduler.now < RUN_S:
        scheduler.run_until(scheduler.now + cluster.random.random())
        cluster.disturb()
    cluster.network.heal()
    for node in cluster.nodes.values():
        node.disk.steps_left = None
        node.start()
    for producer in producers:
        producer.is_stopped = True
    deadline = scheduler.now + RECOVERY_S
    while not (all(each.is_done for each in producers) and _is_settled(cluster)):
        if scheduler.now > deadline:
            raise Violation(f"no progress after the faults: {cluster.image}")
        scheduler.run_until(scheduler.now + 0.5)
    partitions = {
        node_id: node.partition
        for node_id, node in cluster.nodes.items()
        if node.partition is not None
    }
    cluster.checker.finish(partitions, PRODUCERS)
    faults = Counter(cluster.faults) + Counter(cluster.network.faults)
    faults["acknowledged"] = len(cluster.checker.acknowledged)
    faults["leader epochs"] = cluster.image.leader_epoch
    return faults


def _is_settled(cluster: Cluster) -> bool:
    """Return whether all nodes are in sync and everything is committed on all of them."""
    if len(cluster.image.isr) < len(NODES):
        return False
    ends = set()
    for node in cluster.nodes.values():
        if node.partition is None:
            return False
        ends |= {node.partition.high_watermark, node.partition.log.log_end_offset}
    return len(ends) == 1


def search(seeds: Iterable[int]) -> int | None:
    """Return the first seed that fails for any reason; None if none does."""
    for seed in seeds:
        try:
            run(seed)
        except Exception:
            return seed
    return None


def main(first: int, last: int, note: Callable[[str], None] = print) -> int:
    """Run seeds and print what happened; return 1 if one failed."""
    total: Counter[str] = Counter()
    for seed in range(first, last):
        try:
            total += run(seed)
        except Violation as violation:
            note(f"seed {seed}: {violation}")
            note(f"again: python -m tests.simulation.replication {seed} {seed + 1}")
            return 1
    hours = (last - first) * RUN_S / 3600
    note(f"{last - first} seeds, at least {hours:.1f} simulated hours: {dict(total)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
