"""Five brokers, three of them controllers: the quorum with everything that depends on it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from broker_core import errors
from broker_core.cluster.controller import Controller
from broker_core.cluster.image import ClusterImage
from broker_core.cluster.node import MetadataNode
from broker_core.cluster.settings import ControllerSettings
from broker_core.log.config import LogConfig
from broker_core.quorum.replica import QuorumReplica
from tests.simulation.controller_checker import ControllerChecker, PartitionKey
from tests.simulation.quorum_checker import Violation
from tests.simulation.quorum_cluster import RECOVERY_S, Cluster, Node

SETTINGS = ControllerSettings(
    session_timeout=3.0,
    partitions=2,
    replication_factor=3,
    topic_defaults=LogConfig(min_insync_replicas=2),
    rebalance_interval=5.0,
    producer_ids=10,
)
HEARTBEAT_S = 0.5
SNAPSHOT_ENTRIES = 60
TOPICS_MAX = 8

Body = dict[str, Any]


class BrokerNode(Node):
    """A process that follows the metadata, registers, and may be the active controller."""

    metadata: MetadataNode
    broker_epoch = -1
    controllers: ControllerCluster

    def start(self) -> None:
        """See Node."""
        self.incarnation_id = self.cluster.random.randbytes(16)
        # The file with the epoch may have survived, or may be lost.
        self._former_epoch = self.cluster.random.choice((-1, self.broker_epoch))
        self.broker_epoch = -1
        self._wants_shut_down = False
        super().start()
        self.run(self._beat_again)

    def _attach(self, replica: QuorumReplica) -> MetadataNode:
        if getattr(self, "metadata", None) is None or self.metadata.replica is not replica:
            self.metadata = self.controllers.metadata_type(
                replica, SETTINGS, self.cluster.random, snapshot_entries=SNAPSHOT_ENTRIES
            )
        return self.metadata

    def next_deadline(self, replica: QuorumReplica) -> float:
        """See Node."""
        return self._attach(replica).next_deadline()

    def tick(self) -> None:
        """See Node."""
        if self.replica is not None:
            self._attach(self.replica).tick(self.clock())

    def apply(self, replica: QuorumReplica) -> None:
        """See Node."""
        node = self._attach(replica)
        node.after_event(self.clock())
        if node.take_changes() is not None:
            self.controllers.checker_of_metadata.image_is(node.image)

    def take_snapshot(self) -> None:
        """See Node."""
        if self.replica is not None:
            self._attach(self.replica).take_snapshot()
            self.cluster.faults["snapshot"] += 1

    @property
    def image(self) -> ClusterImage:
        """The committed state that this node knows."""
        return self.metadata.image

    # Requests to the controller

    def ask(
        self,
        method: Callable[[Controller, Any, float], Any],
        body: Body,
        take: Callable[[Any], None],
    ) -> None:
        """Send a request to the leader of the quorum, if this node knows one."""
        leader_id = None if self.replica is None else self.replica.leader_id
        if leader_id is None:
            return
        receiver = self.controllers.brokers[leader_id]
        incarnation = self.incarnation_id

        def answered(body: Body) -> None:
            def arrive() -> None:
                if self.incarnation_id == incarnation:
                    take(body)

            self.cluster.network.send(leader_id, self.node_id, lambda: self.run(arrive))

        self.cluster.network.send(
            self.node_id,
            leader_id,
            lambda: receiver.run(lambda: receiver.decide(method, body, answered)),
        )

    def decide(
        self,
        method: Callable[[Controller, Body, float], Body],
        body: Body,
        answered: Callable[[Body], None],
    ) -> None:
        """Answer a request, if this node is the active controller."""
        responses: list[Body] = []
        try:
            self.metadata.decide(
                lambda controller: responses.append(method(controller, body, self.clock())),
                lambda is_committed: answered(responses[0]) if is_committed else None,
            )
        except errors.NotController:
            return

    # The life of a broker

    def _beat_again(self) -> None:
        self._beat()
        incarnation = self.incarnation_id

        def again() -> None:
            if self.incarnation_id == incarnation:
                self._beat_again()

        self.cluster.scheduler.after(
            HEARTBEAT_S * self.cluster.random.uniform(0.8, 1.2), lambda: self.run(again)
        )

    def _beat(self) -> None:
        if self.broker_epoch < 0:
            self._register()
            return

        if not self.controllers.is_healed and self.cluster.random.random() < 0.01:
            self._wants_shut_down = True

        def take(answer: Body) -> None:
            if answer["error_code"]:
                # The controllers know another process with this node id.
                self.broker_epoch = -1
            elif body["want_shut_down"] and answer["should_shut_down"]:
                self.cluster.faults["controlled shutdown"] += 1
                self.cluster.scheduler.after(0.0, self.crash)
                wait = self.cluster.random.expovariate(0.5)
                self.cluster.scheduler.after(wait, self.cluster.start(self))

        body = {
            "broker_id": self.node_id,
            "broker_epoch": self.broker_epoch,
            "current_metadata_offset": self.image.offset - 1,
            "want_fence": False,
            "want_shut_down": self._wants_shut_down,
        }
        self.ask(
            lambda controller, asked, now: controller.brokers.heartbeat(asked, now), body, take
        )
        self._propose()

    def _register(self) -> None:
        incarnation_id = self.incarnation_id
        body = {
            "broker_id": self.node_id,
            "cluster_id": self.image.cluster_id or "",
            "incarnation_id": incarnation_id,
            "listeners": [],
            "rack": f"rack-{self.node_id % 2}",
            "previous_broker_epoch": self._former_epoch,
        }

        def take(answer: Body) -> None:
            if answer["error_code"] == errors.NONE:
                self.broker_epoch = answer["broker_epoch"]
                self.controllers.checker_of_metadata.registered(
                    self.node_id, incarnation_id, self.broker_epoch
                )

        self.ask(lambda controller, asked, now: controller.brokers.register(asked, now), body, take)

    def _propose(self) -> None:
        """Propose random changes of the ISR of each partition that this node leads."""
        chance = self.cluster.random
        for topic, index, partition in self.image.partitions():
            if partition.leader != self.node_id or chance.random() < 0.7:
                continue
            others = [each for each in partition.replicas if each != self.node_id]
            isr = [self.node_id, *chance.sample(others, chance.randint(0, len(others)))]
            key = PartitionKey(topic.id, index)
            body = {
                "broker_id": self.node_id,
                "broker_epoch": self.broker_epoch,
                "topics": [
                    {
                        "topic_id": topic.id,
                        "partitions": [
                            {
                                "partition_index": index,
                                "leader_epoch": partition.leader_epoch,
                                "partition_epoch": partition.partition_epoch,
                                "leader_recovery_state": 0,
                                "new_isr_with_epochs": [
                                    {"broker_id": each, "broker_epoch": -1} for each in isr
                                ],
                            }
                        ],
                    }
                ],
            }
            self.ask(
                lambda controller, asked, now: controller.partitions.alter(asked),
                body,
                partial(self._altered, key),
            )

    def _altered(self, key: PartitionKey, answer: Body) -> None:
        for topic in answer["topics"]:
            for each in topic["partitions"]:
                if not each["error_code"]:
                    self.controllers.checker_of_metadata.altered(
                        key, each["partition_epoch"], tuple(each["isr"])
                    )


class ControllerCluster(Cluster):
    """Brokers, controllers, and an operator who creates, deletes and moves topics."""

    checker_of_metadata: ControllerChecker

    def __init__(self, seed: int, metadata_type: type[MetadataNode] = MetadataNode) -> None:
        self.metadata_type = metadata_type
        super().__init__(seed)

    def make_checker(self) -> ControllerChecker:
        """See Cluster."""
        self.checker_of_metadata = ControllerChecker()
        self.brokers: dict[int, BrokerNode] = {}
        self._names = 0
        self.is_healed = False
        self._decisions = 0
        return self.checker_of_metadata

    def make_node(self, node_id: int) -> BrokerNode:
        """See Cluster."""
        node = BrokerNode(self, node_id)
        node.controllers = self
        self.brokers[node_id] = node
        return node

    def begin(self) -> None:
        """See Cluster."""
        self._operate()

    def _operate(self) -> None:
        for node in self.brokers.values():
            if node.replica is not None and node.paused is None and node.replica.is_leader:
                node.run(partial(self._decide, node))
                node.run(partial(self._look_for_the_dead, node))
        self.scheduler.after(self.random.expovariate(4.0), self._operate)

    def _look_for_the_dead(self, node: BrokerNode) -> None:
        """Report dead brokers: the address of a process that is down refuses connections."""
        controller = node.metadata.controller
        if controller is None:
            return
        for other in self.brokers.values():
            broker = controller.image.brokers.get(other.node_id)
            if other.replica is None and broker is not None and self.random.random() < 0.5:
                node.metadata.decide(partial(_gone, other.node_id, broker.epoch), lambda _: None)

    def _decide(self, node: BrokerNode) -> None:
        controller = node.metadata.controller
        if controller is None:
            return
        checker = self.checker_of_metadata
        topics = sorted(controller.image.topics)
        brokers = sorted(controller.image.brokers)
        choice = self.random.randrange(7)
        create: str | None = None

        def act(controller: Controller) -> None:
            name = self.random.choice(topics) if topics else ""
            match choice:
                case 0 if topics:
                    checker.maybe_deleted.add(name)
                    controller.topics.delete(controller.topics.find(name, b""))
                case 1 if topics:
                    topic = controller.topics.find(name, b"")
                    count = len(topic.partitions) + 1
                    if count < 5:
                        controller.topics.grow(topic, count, None, validate_only=False)
                case 2 if topics:
                    controller.partitions.elect(name, 0, 0)
                case 3 if topics:
                    wanted = self.random.sample(brokers, self.random.randint(1, len(brokers)))
                    controller.partitions.reassign(name, 0, wanted)
                case 4 if topics:
                    controller.partitions.reassign(name, 0, None)
                case 5:
                    controller.topics.configure(2, name, {"retention.ms": str(self._names)})
                case _ if create is not None:
                    controller.topics.create(create, -1, -1, [], {}, validate_only=False)

        if len(topics) < TOPICS_MAX:
            self._names += 1
            create = f"topic-{self._names}"

        def decided(is_committed: bool) -> None:
            self._decisions += is_committed
            if is_committed and choice == 6 and create is not None:
                checker.created.add(create)

        try:
            node.metadata.decide(act, decided)
        except errors.BrokerError:
            return

    def recover(self) -> None:
        """Wait after the last fault until decisions are committed and brokers are up to date."""
        deadline = self.scheduler.now + RECOVERY_S
        wanted = self._decisions + 10
        while self._decisions < wanted:
            if self.scheduler.now > deadline:
                raise Violation(f"nothing is decided {RECOVERY_S} s after the last fault")
            self.scheduler.run_until(self.scheduler.now + 0.5)
        self.is_healed = True
        self._operate = lambda: None  # type: ignore[method-assign]
        # Long enough for sessions to expire, brokers to register and leaders to be elected.
        self.scheduler.run_until(self.scheduler.now + 15.0)
        while any(
            node.image.offset < len(self.checker.committed) for node in self.brokers.values()
        ):
            if self.scheduler.now > deadline:
                break
            self.scheduler.run_until(self.scheduler.now + 0.5)
        for node in self.brokers.values():
            assert node.replica is not None
            if node.image.offset != len(self.checker.committed):
                raise Violation(f"node {node.node_id} knows {node.image.offset} entries only")
            self.checker_of_metadata.image_is(node.image)
        self.checker_of_metadata.finish_metadata()


def _gone(broker_id: int, epoch: int, controller: Controller) -> None:
    controller.brokers.disconnected(broker_id)
    controller.brokers.unreachable(broker_id, epoch)
