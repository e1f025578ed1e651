"""Connects this broker's replicas with the cluster: metadata comes in, ISR proposals go out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from broker_core.cluster.image import ClusterImage, ImageChanges, PartitionImage
from broker_core.configuration.config import BrokerConfig
from broker_core.configuration.listeners import ListenerConfig, login_of
from broker_core.environment import Clock
from broker_core.errors import BrokerError
from broker_core.log.log import Log
from broker_core.protocol.definitions import ALTER_PARTITION
from broker_core.protocol.schema import Api, RequestBody, ResponseBody
from broker_core.security.tls import client_context
from broker_core.server.cluster.membership import Cluster
from broker_core.server.network.peer import Peer
from broker_core.server.partitions.flusher import Flusher
from broker_core.server.partitions.partition import Partition
from broker_core.server.partitions.replica_fetcher import FetchLimits
from broker_core.server.partitions.replicas import Replicas, RoleListener
from broker_core.server.partitions.replicated_partition import ReplicatedPartition
from broker_core.server.partitions.topics import Topic, TopicRegistry
from waylog.config import ConfigError, Endpoint

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AlterPartitionRequest,
        AlterPartitionResponse,
    )

logger = logging.getLogger(__name__)


class Replication:
    """The cluster for the replicas, and the other brokers for the coordinators."""

    def __init__(
        self,
        config: BrokerConfig,
        cluster: Cluster,
        topics: TopicRegistry,
        flusher: Flusher,
        clock: Clock,
        storage_failed: Callable[[Partition, BrokerError], None],
    ) -> None:
        """`storage_failed` is called when a partition cannot be written."""
        self._node_id = config.node_id
        self._cluster = cluster
        self._topics = topics
        listener = _inter_broker_listener(config)
        self._listener = listener.name
        # A broker that is alone connects to no other, so its configuration need not say how.
        secured = not config.is_alone
        self._tls = (
            client_context(listener.properties) if secured and listener.protocol.uses_tls else None
        )
        self._login = (
            login_of(listener.name, listener.properties, "sasl.mechanism.inter.broker.protocol")
            if secured and listener.protocol.uses_sasl
            else None
        )
        self._peers: dict[int, Peer] = {}
        self.replicas = Replicas(
            self,
            flusher,
            lag_ms=config.replica_lag_time_max_ms,
            limits=FetchLimits(
                config.replica_fetch_max_bytes,
                config.replica_fetch_response_max_bytes,
                config.replica_fetch_wait_max_ms,
                config.replica_fetch_min_bytes,
            ),
            clock=clock,
        )
        self.replicas.on_storage_failure = storage_failed
        topics.make_partition = self._make_partition
        self.set_rates(
            config.leader_replication_throttled_rate, config.follower_replication_throttled_rate
        )

    def set_rates(self, leader: int, follower: int) -> None:
        """Throttle replicas that catch up: bytes a second that this broker sends and fetches."""
        self.replicas.leader_quota.rate = leader
        self.replicas.follower_quota.rate = follower

    def start(self, coordinators: Mapping[str, RoleListener]) -> None:
        """Begin to tell coordinators which partitions of their topics this broker leads."""
        for topic, coordinator in coordinators.items():
            self.replicas.listen(topic, coordinator)
        self.replicas.start()

    def close(self) -> None:
        """Stop fetching and proposing, and close the connections."""
        self.replicas.close()
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    def _make_partition(self, topic: Topic, index: int, log: Log) -> ReplicatedPartition:
        return ReplicatedPartition(topic.name, index, log, self.replicas, topic.topic_id)

    # ------------------------------------------------------------------------------------ images

    def apply(self, image: ClusterImage, changes: ImageChanges) -> None:
        """Apply a change; its topics and replicas have to be open already."""
        if changes.everything:
            brokers: Iterable[int] = image.brokers
        else:
            brokers = changes.brokers
        for broker_id in brokers:
            self._check_peer(broker_id)
        self.replicas.brokers_changed(brokers)
        self.replicas.apply(self._changed(image, changes))

    def _changed(
        self, image: ClusterImage, changes: ImageChanges
    ) -> Iterator[tuple[ReplicatedPartition, PartitionImage]]:
        if changes.everything:
            places: Iterable[tuple[str, int]] = [
                (topic.name, index) for topic, index, _ in image.partitions()
            ]
        else:
            places = changes.partitions
        for place in places:
            partition = self._topics.partition(*place)
            described = image.partition(*place)
            if described is not None and isinstance(partition, ReplicatedPartition):
                yield partition, described

    def nearest_replica(self, partition: Partition, offset: int, rack: str) -> int | None:
        """Return a broker in `rack` that a consumer may read from; None for this broker."""
        leader = partition.leader if isinstance(partition, ReplicatedPartition) else None
        if leader is None:
            return None
        brokers = self.image.brokers
        nearest = next(
            (
                each
                for each in leader.readable_replicas(offset)
                if self.image.is_active(each) and brokers[each].rack == rack
            ),
            None,
        )
        return None if nearest == self.node_id else nearest

    # ------------------------------------------------------------------ the cluster, to replicas

    @property
    def node_id(self) -> int:
        """Id of this broker."""
        return self._node_id

    @property
    def broker_epoch(self) -> int:
        """Epoch of this broker's registration."""
        return self._cluster.lifecycle.epoch

    @property
    def image(self) -> ClusterImage:
        """The committed metadata, up to what this node knows."""
        return self._cluster.image

    def alter_partition(
        self, body: AlterPartitionRequest, answered: Callable[[AlterPartitionResponse | None], None]
    ) -> None:
        """Send AlterPartition to the controller."""
        self._cluster.channel.send(ALTER_PARTITION, body, answered)

    def peer(self, broker_id: int) -> Peer | None:
        """Return a new connection to another broker, or None if its address is unknown."""
        endpoint = self._endpoint(broker_id)
        if endpoint is None:
            return None
        return Peer(endpoint, f"broker-{self.node_id}", tls=self._tls, login=self._login)

    def _endpoint(self, broker_id: int) -> Endpoint | None:
        broker = self.image.brokers.get(broker_id)
        address = None if broker is None else broker.address(self._listener)
        return None if address is None else Endpoint(address.host, address.port)

    # -------------------------------------------------------------- the brokers, to coordinators

    def leader_of(self, place: tuple[str, int]) -> int | None:
        """Return a partition's leader; -1 if it has none, None if there is no such partition."""
        partition = self.image.partition(*place)
        return None if partition is None else partition.leader

    def send(
        self,
        broker_id: int,
        api: Api[RequestBody, ResponseBody],
        version: int,
        body: RequestBody,
        answered: Callable[[ResponseBody | None], None],
    ) -> None:
        """Send a request to a broker; `answered` gets None without an answer."""
        peer = self._peers.get(broker_id)
        if peer is None:
            peer = self.peer(broker_id)
            if peer is None:
                answered(None)
                return
            self._peers[broker_id] = peer
        peer.send(api, version, body, answered)

    def _check_peer(self, broker_id: int) -> None:
        peer = self._peers.get(broker_id)
        if peer is not None and peer.endpoint != self._endpoint(broker_id):
            del self._peers[broker_id]
            peer.close()


def _inter_broker_listener(config: BrokerConfig) -> ListenerConfig:
    """Return the listener that brokers use among themselves; raises ConfigError."""
    name = config.inter_broker_listener_name or config.listeners[0].name
    found = next((each for each in config.listeners if each.name == name), None)
    if found is None:
        raise ConfigError(f"inter.broker.listener.name={name}: there is no such listener")
    return found
