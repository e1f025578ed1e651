"""Replicas of one partition on simulated time, network and disks, with the faults of a seed.

Every node runs the production code of log, leader, follower and partition. The controller is a
simple one that never fails; its decisions arrive late, like everything else.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from broker_core import errors
from broker_core.cluster.image import PartitionImage
from broker_core.cluster.records import NO_LEADER
from broker_core.environment import Environment, SystemClock
from broker_core.log import Log, LogConfig
from broker_core.protocol.batch_builder import build_batch
from broker_core.replication.follower import Fetched, FetchPosition, Outcome
from broker_core.replication.leader import IsrProposal
from broker_core.server.partitions.replicated_partition import ReplicatedPartition
from tests.simulation.network import Network, Weather
from tests.simulation.replication_checker import Checker
from tests.simulation.scheduler import Scheduler
from tests.simulation.simulated_disk import PowerCut, SimulatedDisk

NODES = (1, 2, 3)
CONTROLLER, PRODUCER, CONSUMER = 0, 100, 101
LAGS_MS = (150, 600, 2_000)
SESSION_S = 1.0
ANSWER_S = 0.3
MIN_INSYNC = 2
PRODUCERS = 2
_DIRECTORY = Path("/logs/t-0")
_EPOCH_MS = 1_700_000_000_000


class _Clock(SystemClock):
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def now_ms(self) -> int:
        return _EPOCH_MS + int(self._scheduler.now * 1000)

    def monotonic(self) -> float:
        return self._scheduler.now


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of one of the producers: its records from number `first` on."""

    producer: int
    first: int
    count: int
    index: int  # the number of the batch

    @property
    def values(self) -> list[int]:
        """The values of the records, which are unique over all producers."""
        return [
            number * PRODUCERS + self.producer
            for number in range(self.first, self.first + self.count)
        ]

    def encode(self, now_ms: int) -> bytearray:
        """Encode it as a record batch."""
        return build_batch(
            [(now_ms, b"k", b"%d" % value, ()) for value in self.values],
            producer_id=7 + self.producer,
            producer_epoch=0,
            base_sequence=self.first,
        )


class _Wait:
    """Answers a producer when its batch is committed; an AppendWaiter."""

    def __init__(self, answer: Callable[[int, int], None], base_offset: int) -> None:
        self._answer = answer
        self._base_offset = base_offset

    def durable(self) -> None:
        self._answer(errors.NONE, self._base_offset)

    def failed(self, code: int) -> None:
        self._answer(code, -1)


class Node:
    """A broker, which runs or is down; it is the IsrControl of its replica."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.disk = SimulatedDisk(cluster.random)
        self.partition: ReplicatedPartition | None = None
        self.broker_epoch = 0
        self.image = cluster.image
        self._life = 0
        self._proposals = 0
        self._asking = False
        self._flushing = False

    def storage_failed(self, partition: ReplicatedPartition, error: errors.BrokerError) -> None:
        """See IsrControl; here the node goes on, since the disk may work again later."""

    @property
    def lag_ms(self) -> int:
        """See IsrControl."""
        return self.cluster.lag_ms

    def monotonic_ms(self) -> int:
        """See IsrControl."""
        return int(self.cluster.scheduler.now * 1000)

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """See IsrControl; decides with what the controller knew a while ago."""
        known = self.cluster.registered.get(broker_id)
        return known is not None and broker_epoch in {-1, known}

    def removed(self, partition: ReplicatedPartition) -> None:
        """See IsrControl."""

    def propose(self, partition: ReplicatedPartition, proposal: IsrProposal) -> None:
        """See IsrControl; repeated until the controller has answered."""
        life = self._life
        self._proposals += 1
        number = self._proposals
        epochs = {
            each: partition.broker_epoch_of(each, self.cluster.registered.get(each, -1))
            for each in proposal.isr
        }

        def answered(code: int, image: PartitionImage) -> None:
            if life != self._life or self.partition is not partition:
                return
            if code == errors.NONE:
                partition.isr_decided(image.isr, image.leader_epoch, image.partition_epoch)
            elif code == errors.IneligibleReplica.code:
                self._later(ANSWER_S, lambda: partition.isr_refused(proposal))

        def ask() -> None:
            if (life, number) != (self._life, self._proposals):
                return
            if partition.leader_proposal != proposal:
                return
            self.cluster.ask_controller(self, proposal, epochs, answered)
            self.cluster.scheduler.after(ANSWER_S, ask)

        ask()

    # --------------------------------------------------------------------------------------- life

    def start(self) -> None:
        """Start the process and register."""
        if self.partition is not None:
            return
        self._life += 1
        self._asking = self._flushing = False

        def begin() -> None:
            log = Log.open(
                _DIRECTORY, "t", 0, self.cluster.config, Environment(self.cluster.clock, self.disk)
            )
            self.partition = ReplicatedPartition("t", 0, log, self, bytes(16))
            self.partition.acknowledges_after_flush = self.cluster.config.flush_messages <= 1

        self.run(begin)
        if self.partition is not None:
            self.cluster.register(self)
            self._tick(self._life)

    def crash(self, *, power: bool) -> None:
        """End the process; a power cut also drops what was not synced."""
        if self.partition is not None:
            self.partition = None
            self._life += 1
            self.cluster.disconnected(self)
        if power:
            self.disk.power_cut()
        else:
            self.disk.steps_left = None

    def run(self, action: Callable[[], None]) -> None:
        """Run an action, which a power cut may interrupt."""
        try:
            action()
        except PowerCut:
            self.cluster.faults["power cut within a disk step"] += 1
            self.crash(power=True)
            self.cluster.scheduler.after(self.cluster.random.random() * 3, self.start)
            return
        if self.partition is not None:
            self.cluster.checker.observe(self.node_id, self.partition)

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        life = self._life

        def due() -> None:
            if life == self._life and self.partition is not None:
                self.run(action)

        self.cluster.scheduler.after(delay_s, due)

    def _tick(self, life: int) -> None:
        if life == self._life and self.partition is not None:
            self.run(self.partition.check_isr)
            self._flush_sometimes()
            self.cluster.scheduler.after(self.cluster.lag_ms / 2000, lambda: self._tick(life))

    def _flush_sometimes(self) -> None:
        if self.cluster.random.random() < 0.3 and self.partition is not None:
            self.run(self._flush_now)

    def _flush_now(self) -> None:
        if self.partition is not None:
            self.partition.log.flush()
            self.partition.advance()

    # ----------------------------------------------------------------------------------- following

    def apply(self, image: PartitionImage) -> None:
        """Apply a newer state of the metadata."""
        partition = self.partition
        if partition is None or image.partition_epoch <= partition.image.partition_epoch:
            return
        self.image = image

        def take_over() -> None:
            if image.leader == self.node_id:
                partition.lead(image)
            else:
                partition.follow(image)
                self._ask()

        self.run(take_over)

    def _ask(self) -> None:
        partition = self.partition
        follower = None if partition is None else partition.follower
        if partition is None or follower is None or self._asking:
            return
        if self._has_to_flush_first(partition):
            self._flush_and(self._ask)
            return
        self._asking = True
        life, asked = self._life, follower.position()
        leader_id, epoch = follower.leader_id, self.broker_epoch

        def give_up() -> None:
            nonlocal life
            if life == self._life and self._asking:
                life = -1
                self._asking = False
                self._later(0, self._ask)

        def answered(answer: Fetched) -> None:
            nonlocal life
            if life != self._life or self.partition is not partition:
                return
            life = -1
            self._asking = False
            self.run(lambda: self._take(asked, answer))

        self.cluster.scheduler.after(ANSWER_S, give_up)
        leader = self.cluster.nodes[leader_id]
        self.cluster.network.send(
            self.node_id,
            leader_id,
            lambda: leader.fetched(self.node_id, epoch, asked, answered),
        )

    def _has_to_flush_first(self, partition: ReplicatedPartition) -> bool:
        log = partition.log
        return partition.acknowledges_after_flush and log.recovery_point < log.log_end_offset

    def _take(self, asked: FetchPosition, answer: Fetched) -> None:
        partition = self.partition
        follower = None if partition is None else partition.follower
        if partition is None or follower is None:
            return
        outcome = follower.take(asked, answer, self.cluster.clock.now_ms())
        partition.show_followed()
        self._later(0.03 if outcome is Outcome.LATER else 0.002, self._ask)

    def fetched(
        self,
        follower_id: int,
        broker_epoch: int,
        asked: FetchPosition,
        answered: Callable[[Fetched], None],
    ) -> None:
        """Answer a follower's fetch; see ReplicaSession."""
        partition = self.partition
        if partition is None:
            return

        def serve() -> None:
            partition.fetched_by(
                follower_id,
                asked.leader_epoch,
                asked.offset,
                asked.last_epoch,
                log_start_offset=asked.log_start_offset,
                broker_epoch=broker_epoch,
            )
            log = partition.log
            try:
                records, diverging = partition.read_as_leader(
                    asked.leader_epoch,
                    asked.offset,
                    asked.last_epoch,
                    300,
                    first=True,
                    unread=False,
                )
                assert isinstance(records, bytes)
                answer = Fetched(
                    0, partition.high_watermark, log.log_start_offset, diverging, records
                )
            except errors.BrokerError as error:
                answer = Fetched(error.code, -1, log.log_start_offset, None, b"")
            self.cluster.network.send(self.node_id, follower_id, lambda: answered(answer))

        self.run(serve)

    # ------------------------------------------------------------------------------------- clients

    def produce(self, batch: Batch, answer: Callable[[int, int], None]) -> None:
        """Produce with acks=all; `answer` gets an error code and the batch's offset."""
        partition = self.partition
        if partition is None:
            return

        def reply(code: int, base_offset: int) -> None:
            self.cluster.network.send(self.node_id, PRODUCER, lambda: answer(code, base_offset))

        def append() -> None:
            try:
                partition.check_in_sync()
                now_ms = self.cluster.clock.now_ms()
                result = partition.append(batch.encode(now_ms), now_ms)
            except errors.BrokerError as error:
                reply(error.code, -1)
                return
            partition.wait_durable(_Wait(reply, result.base_offset), result.last_offset + 1)
            if partition.acknowledges_after_flush:
                self._flush_and(partition.advance)
            else:
                partition.advance()

        self.run(append)

    def _flush_and(self, action: Callable[[], None]) -> None:
        def flush() -> None:
            self._flushing = False
            if self.partition is not None:
                self.partition.log.flush()
                action()

        self._later(self.cluster.random.random() * 0.01, flush)

    def consume(self, offset: int, answer: Callable[[int, int, bytes], None]) -> None:
        """Read committed records; `answer` gets an error code, the high watermark and batches."""
        partition = self.partition
        if partition is None:
            return
        code, data = errors.NONE, b""
        try:
            partition.check_is_readable(from_follower=True)
            data = partition.read(offset, 2_000, min_one_message=True)
        except errors.BrokerError as error:
            code = error.code
        high_watermark = partition.high_watermark
        self.cluster.network.send(
            self.node_id, CONSUMER, lambda: answer(code, high_watermark, data)
        )


class Cluster:
    """Three nodes and a controller, for producers and a consumer to use."""

    def __init__(self, seed: int, *, flush: bool) -> None:
        self.random = random.Random(seed)
        self.lag_ms = self.random.choice(LAGS_MS)
        self.scheduler = Scheduler()
        self.clock = _Clock(self.scheduler)
        self.network = Network(self.scheduler, self.random)
        self.checker = Checker()
        self.faults = {"kill": 0, "power cut": 0, "power cut within a disk step": 0}
        self.config = LogConfig(
            segment_bytes=1_500,
            index_interval_bytes=200,
            flush_messages=1 if flush else 2**63 - 1,
            min_insync_replicas=MIN_INSYNC,
        )
        self.image = PartitionImage(NODES, NODES, NO_LEADER, leader_epoch=0)
        self.registered: dict[int, int] = {}
        self._registrations = 0
        self.nodes = {node_id: Node(self, node_id) for node_id in NODES}
        for node in self.nodes.values():
            node.start()

    # ---------------------------------------------------------------------------------- controller

    def register(self, node: Node) -> None:
        """Register a broker that has started; before, it may have lost unsynced data."""
        self._registrations += 1
        node.broker_epoch = self._registrations
        self.fence(node.node_id)
        self.registered[node.node_id] = node.broker_epoch
        self._elect()
        self._publish(node)

    def disconnected(self, node: Node) -> None:
        """Note a lost connection to a broker: it is fenced after some time."""
        epoch = node.broker_epoch

        def due() -> None:
            if self.registered.get(node.node_id) == epoch:
                self.fence(node.node_id)

        self.scheduler.after(self.random.random() * SESSION_S, due)

    def fence(self, node_id: int) -> None:
        """Fence a broker: it leads nothing, and is in no ISR that has another member."""
        self.registered.pop(node_id, None)
        image = self.image
        isr = tuple(each for each in image.isr if each != node_id)
        if isr and isr != image.isr:
            image = replace(image, isr=isr)
        if image.leader == node_id:
            image = replace(image, leader=NO_LEADER, leader_epoch=image.leader_epoch + 1)
        self._decide(image)
        self._elect()

    def _elect(self) -> None:
        image = self.image
        if image.leader == NO_LEADER:
            alive = [each for each in image.isr if each in self.registered]
            if alive:
                leader = self.random.choice(alive)
                self._decide(replace(image, leader=leader, leader_epoch=image.leader_epoch + 1))

    def _decide(self, image: PartitionImage) -> None:
        if image == self.image:
            return
        self.image = replace(image, partition_epoch=self.image.partition_epoch + 1)
        self.checker.elected(self.image)
        for node in self.nodes.values():
            self._publish(node)

    def _publish(self, node: Node) -> None:
        image = self.image
        # Some brokers get it late, and act on the former state meanwhile.
        late_s = 2.0 if self.random.random() < 0.2 else 0.3
        self.scheduler.after(self.random.random() * late_s, lambda: node.apply(image))

    def ask_controller(
        self,
        node: Node,
        proposal: IsrProposal,
        epochs: dict[int, int],
        answered: Callable[[int, PartitionImage], None],
    ) -> None:
        """Handle AlterPartition, with the same checks as `PartitionControl.alter`."""

        def decide() -> None:
            image, code = self.image, errors.NONE
            if proposal.leader_epoch != image.leader_epoch or image.leader != node.node_id:
                code = errors.FencedLeaderEpoch.code
            elif proposal.partition_epoch != image.partition_epoch:
                code = errors.InvalidUpdateVersion.code
            elif any(self.registered.get(each) != epochs[each] for each in proposal.isr):
                code = errors.IneligibleReplica.code
            else:
                self._decide(replace(image, isr=proposal.isr))
            after = self.image
            self.network.send(CONTROLLER, node.node_id, lambda: answered(code, after))

        self.network.send(node.node_id, CONTROLLER, decide)

    # --------------------------------------------------------------------------------------- faults

    def disturb(self) -> None:
        """Cause one fault, which the seed selects."""
        chance, node = self.random, self.nodes[self.random.choice(NODES)]
        kind = chance.randrange(7)
        if kind == 0:
            self.faults["kill"] += 1
            node.crash(power=False)
            self.scheduler.after(chance.random() * 4, node.start)
        elif kind == 1 and self.config.flush_messages <= 1:
            self.faults["power cut"] += 1
            node.crash(power=True)
            self.scheduler.after(chance.random() * 4, node.start)
        elif kind == 2 and self.config.flush_messages <= 1:
            node.disk.steps_left = chance.randrange(40)
        elif kind == 3:
            other = self.nodes[chance.choice(NODES)]
            self.network.cut(node.node_id, other.node_id)
            if chance.random() < 0.5:
                self.network.cut(other.node_id, node.node_id)
        elif kind == 4:
            self.network.heal()
        elif kind == 5:
            self.network.weather = Weather(
                chance.random() * 0.1, chance.random() * 0.2, chance.random() * 0.2, 0.05
            )
        elif self.image.leader != NO_LEADER:
            # A live leader may lose its role too, and may not know it for a while.
            others = [each for each in self.image.isr if each in self.registered]
            leader = chance.choice(others) if others else NO_LEADER
            if leader not in {NO_LEADER, self.image.leader}:
                epoch = self.image.leader_epoch + 1
                self._decide(replace(self.image, leader=leader, leader_epoch=epoch))
