"""Brokers and partition leaders as clients see them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from broker_core import errors
from broker_core.cluster.image import BrokerImage
from broker_core.cluster.records import NO_LEADER
from broker_core.server.cluster.membership import Cluster
from broker_core.server.network.request import AnyRequest
from broker_core.server.partitions.topics import Topic

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        FetchResponse,
        FetchResponsePartition,
        ProduceResponse,
        ProduceResponsePartition,
        ShareAcknowledgeResponse,
        ShareAcknowledgeResponsePartition,
        ShareFetchResponse,
        ShareFetchResponsePartition,
    )

    _Response = ProduceResponse | FetchResponse | ShareFetchResponse | ShareAcknowledgeResponse
    _Result = (
        ProduceResponsePartition
        | FetchResponsePartition
        | ShareFetchResponsePartition
        | ShareAcknowledgeResponsePartition
    )

_MOVED: Final = frozenset({errors.NotLeaderOrFollower.code, errors.FencedLeaderEpoch.code})


class Node(NamedTuple):
    """A broker, with its address on the client's listener."""

    node_id: int
    host: str
    port: int
    rack: str | None


class PartitionState(NamedTuple):
    """A partition as Metadata describes it."""

    number: int
    leader_id: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    offline: Sequence[int] = ()
    eligible: Sequence[int] = ()

    @property
    def error_code(self) -> int:
        """LeaderNotAvailable if nobody leads the partition, else no error."""
        return errors.LeaderNotAvailable.code if self.leader_id == NO_LEADER else errors.NONE


class ClusterView:
    """The brokers and partition leaders that clients see, taken from the metadata log."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def controller_of(self, nodes: Sequence[Node]) -> int:
        """Return the broker that an answer with these brokers names as the controller.

        It is the active controller if it is one of them, else any of them that serves: all forward
        what only a controller can do. -1 if there is none. Of a controller that has no address, or
        that is not named, librdkafka waits to hear more until its request has timed out.
        """
        active = self._cluster.controller_id
        named = [each.node_id for each in nodes]
        if active in named:
            return active
        serving = {broker.id for broker in self._cluster.brokers()}
        return next((each for each in named if each in serving), -1)

    def nodes(self, request: AnyRequest) -> list[Node]:
        """Return the brokers that serve, with their addresses on the client's listener."""
        return self._at_listener(self._cluster.brokers(), request)

    def named(self, request: AnyRequest) -> list[Node]:
        """Return the brokers that Metadata names: also those that stopped a moment ago."""
        return self._at_listener(self._cluster.named_brokers(), request)

    @staticmethod
    def _at_listener(brokers: list[BrokerImage], request: AnyRequest) -> list[Node]:
        listener = request.session.listener_name
        nodes = []
        for broker in brokers:
            address = broker.address(listener)
            if address is not None:
                nodes.append(Node(broker.id, address.host, address.port, broker.rack))
        return nodes

    def partitions(self, topic: Topic) -> Iterator[PartitionState]:
        """Yield all partitions of a topic."""
        image = self._cluster.image
        described = image.topic_by_id(topic.topic_id)
        alive = {broker.id for broker in self._cluster.brokers()}
        for index, each in enumerate(described.partitions if described is not None else ()):
            yield PartitionState(
                index,
                each.leader if each.leader in alive else NO_LEADER,
                each.leader_epoch,
                each.replicas,
                each.isr,
                [replica for replica in each.replicas if replica not in alive],
                each.elr,
            )

    def leader(self, place: tuple[str, int], request: AnyRequest) -> Node | None:
        """Return the leader of a partition, or None if it has none or is unknown."""
        partition = self._cluster.image.partition(*place)
        if partition is None:
            return None
        return next(
            (each for each in self.nodes(request) if each.node_id == partition.leader), None
        )

    def add_leaders(
        self,
        request: AnyRequest,
        response: _Response,
        results: Iterable[tuple[str, int, _Result]],
    ) -> None:
        """Add the current leader to results (topic, partition, result) of a former leader.

        It saves clients a Metadata request (KIP-951).
        """
        image = self._cluster.image
        leaders: set[int] = set()
        for topic, index, result in results:
            if result["error_code"] not in _MOVED:
                continue
            partition = image.partition(topic, index)
            if partition is None or partition.leader < 0:
                continue
            result["current_leader"] = {
                "leader_id": partition.leader,
                "leader_epoch": partition.leader_epoch,
            }
            leaders.add(partition.leader)
        if leaders:
            response["node_endpoints"] = [
                {"node_id": each.node_id, "host": each.host, "port": each.port, "rack": each.rack}
                for each in self.nodes(request)
                if each.node_id in leaders
            ]
