"""The replicas on this broker: applies the controller's decisions, and proposes ISR changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from broker_core import errors
from broker_core.cluster.image import ClusterImage, PartitionImage
from broker_core.environment import Clock
from broker_core.ordered_set import OrderedSet
from broker_core.replication.leader import IsrProposal
from broker_core.replication.throttle import ReplicationQuota
from broker_core.server.network.peer import Peer
from broker_core.server.partitions.flusher import Flusher
from broker_core.server.partitions.partition import Partition
from broker_core.server.partitions.replica_fetcher import FetchLimits, ReplicaFetcher
from broker_core.server.partitions.replicated_partition import ReplicatedPartition

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AlterPartitionRequest,
        AlterPartitionRequestPartition,
        AlterPartitionResponse,
        AlterPartitionResponsePartition,
    )

logger = logging.getLogger(__name__)

_RETRY_S: Final = 0.05
#: Seconds before a follower is proposed again that the controller refused as ineligible.
_REFUSED_S: Final = 0.5

#: Errors of AlterPartition after which the same proposal is sent again.
_AGAIN: Final = frozenset(
    {
        errors.NotController.code,
        errors.UnknownServerError.code,
        errors.RequestTimedOut.code,
        errors.NetworkException.code,
    }
)


class Cluster(Protocol):
    """The cluster as the replicas need it: the metadata, the controller, the other brokers."""

    @property
    def node_id(self) -> int:
        """Id of this broker."""

    @property
    def broker_epoch(self) -> int:
        """Epoch of this broker's registration."""

    @property
    def image(self) -> ClusterImage:
        """The newest published image of the metadata."""

    def alter_partition(
        self, body: AlterPartitionRequest, answered: Callable[[AlterPartitionResponse | None], None]
    ) -> None:
        """Send AlterPartition to the controller; `answered` gets None without a response."""

    def peer(self, broker_id: int) -> Peer | None:
        """Return a new connection to another broker, or None if its address is unknown."""


class RoleListener(Protocol):
    """A coordinator that has to know which partitions of its topic this broker leads."""

    def leads(self, partition: ReplicatedPartition) -> None:
        """Take note that this broker leads the partition in a new leader epoch."""

    def resigned(self, partition: ReplicatedPartition) -> None:
        """Take note that this broker no longer leads the partition."""


class Replicas:
    """All replicas on this broker; the IsrControl of their partitions."""

    def __init__(
        self,
        cluster: Cluster,
        flusher: Flusher,
        *,
        lag_ms: int,
        limits: FetchLimits,
        clock: Clock,
    ) -> None:
        self.lag_ms = lag_ms
        self._cluster = cluster
        self._flusher = flusher
        self._limits = limits
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        #: Throttles for replicas that catch up: what this broker sends, and what it fetches.
        self.leader_quota = ReplicationQuota()
        self.follower_quota = ReplicationQuota()
        #: Called when a partition cannot be written.
        self.on_storage_failure: Callable[[Partition, errors.BrokerError], None] | None = None
        self._led: OrderedSet[ReplicatedPartition] = OrderedSet()
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._listeners: dict[str, RoleListener] = {}  # by topic name
        self._proposals: dict[ReplicatedPartition, IsrProposal] = {}
        self._proposing: asyncio.TimerHandle | asyncio.Handle | None = None
        self._is_asking = False
        self._checking: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def node_id(self) -> int:
        """See IsrControl."""
        return self._cluster.node_id

    def monotonic_ms(self) -> int:
        """See IsrControl."""
        return int(self._clock.monotonic() * 1000)

    def start(self) -> None:
        """Begin to check periodically for followers that lag."""
        self._checking = self._loop.call_later(self.lag_ms / 2000, self._check_isrs)

    def listen(self, topic: str, listener: RoleListener) -> None:
        """Tell a coordinator when this broker starts or stops leading partitions of a topic."""
        self._listeners[topic] = listener

    def close(self) -> None:
        """Stop fetching and proposing."""
        self._closed = True
        for timer in (self._checking, self._proposing):
            if timer is not None:
                timer.cancel()
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()

    def storage_failed(self, partition: ReplicatedPartition, error: errors.BrokerError) -> None:
        """See IsrControl."""
        if self.on_storage_failure is not None:
            self.on_storage_failure(partition, error)

    # ------------------------------------------------------------------------------- decisions

    def apply(self, changed: Iterable[tuple[ReplicatedPartition, PartitionImage]]) -> None:
        """Apply the controller's decisions about partitions with a replica here."""
        for partition, image in changed:
            if image.leader == self.node_id:
                self._lead(partition, image)
            else:
                self._follow(partition, image)

    def brokers_changed(self, broker_ids: Iterable[int]) -> None:
        """Take note of brokers that have registered again, were unfenced, or are gone."""
        broker_ids = list(broker_ids)
        if any(self._cluster.image.is_active(each) for each in broker_ids):
            for partition in self._led:
                partition.propose_growth()
        for broker_id in broker_ids:
            fetcher = self._fetchers.get(broker_id)
            peer = self._cluster.peer(broker_id) if fetcher is not None else None
            if fetcher is None or peer is None:
                continue
            if peer.endpoint == fetcher.peer.endpoint:
                peer.close()
                continue
            followed = fetcher.followed
            self._drop(fetcher)
            for partition in followed:
                self._fetch(partition)

    def removed(self, partition: ReplicatedPartition) -> None:
        """Take note that the replica on this broker is gone."""
        was_led = partition in self._led
        self._led.discard(partition)
        self._proposals.pop(partition, None)
        for fetcher in list(self._fetchers.values()):
            self._stop(fetcher, partition)
        listener = self._listeners.get(partition.topic)
        if was_led and listener is not None:
            listener.resigned(partition)

    def _lead(self, partition: ReplicatedPartition, image: PartitionImage) -> None:
        follower = partition.follower
        if follower is not None and (fetcher := self._fetchers.get(follower.leader_id)):
            self._stop(fetcher, partition)
        is_new = partition.lead(image)
        self._led.add(partition)
        if self._proposals.get(partition) != partition.leader_proposal:
            self._proposals.pop(partition, None)
        listener = self._listeners.get(partition.topic)
        if is_new:
            logger.info(
                "%s: leader in epoch %d from offset %d on",
                partition,
                image.leader_epoch,
                partition.log.log_end_offset,
            )
            if listener is not None:
                listener.leads(partition)

    def _follow(self, partition: ReplicatedPartition, image: PartitionImage) -> None:
        before = partition.follower
        was_led = partition in self._led
        if not partition.follow(image):
            return
        self._led.discard(partition)
        self._proposals.pop(partition, None)
        if (
            before is not None
            and (fetcher := self._fetchers.get(before.leader_id))
            and (before.leader_id != image.leader)
        ):
            self._stop(fetcher, partition)
        listener = self._listeners.get(partition.topic)
        if was_led and listener is not None:
            listener.resigned(partition)
        self._fetch(partition)

    def _fetch(self, partition: ReplicatedPartition) -> None:
        follower = partition.follower
        if follower is None or self._closed:
            return
        fetcher = self._fetchers.get(follower.leader_id)
        if fetcher is None:
            peer = self._cluster.peer(follower.leader_id)
            if peer is None:
                logger.warning("%s: broker %d has no address", partition, follower.leader_id)
                return
            fetcher = self._fetchers[follower.leader_id] = ReplicaFetcher(
                follower.leader_id,
                peer,
                self.node_id,
                lambda: self._cluster.broker_epoch,
                self._flusher,
                self._limits,
                self._clock.now_ms,
                self.follower_quota,
            )
        fetcher.add(partition)

    def _stop(self, fetcher: ReplicaFetcher, partition: ReplicatedPartition) -> None:
        fetcher.remove(partition)
        if not fetcher:
            self._drop(fetcher)

    def _drop(self, fetcher: ReplicaFetcher) -> None:
        del self._fetchers[fetcher.leader_id]
        fetcher.close()

    # ------------------------------------------------------------------------------- proposals

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """See IsrControl."""
        broker = self._cluster.image.brokers.get(broker_id)
        return broker is not None and broker.is_active and broker_epoch in {-1, broker.epoch}

    def propose(self, partition: ReplicatedPartition, proposal: IsrProposal) -> None:
        """See IsrControl."""
        self._proposals[partition] = proposal
        if self._proposing is None and not self._is_asking:
            self._proposing = self._loop.call_soon(self._ask)

    def _ask(self) -> None:
        self._proposing = None
        if self._closed or not self._proposals:
            return
        asked = dict(self._proposals)
        brokers = self._cluster.image.brokers
        topics: dict[bytes, list[AlterPartitionRequestPartition]] = {}
        for partition, proposal in asked.items():
            topics.setdefault(partition.topic_id, []).append(
                {
                    "partition_index": partition.index,
                    "leader_epoch": proposal.leader_epoch,
                    "new_isr_with_epochs": [
                        {
                            "broker_id": each,
                            "broker_epoch": partition.broker_epoch_of(
                                each, brokers[each].epoch if each in brokers else -1
                            ),
                        }
                        for each in proposal.isr
                    ],
                    "leader_recovery_state": 0,
                    "partition_epoch": proposal.partition_epoch,
                }
            )
        body: AlterPartitionRequest = {
            "broker_id": self.node_id,
            "broker_epoch": self._cluster.broker_epoch,
            "topics": [
                {"topic_id": topic_id, "partitions": partitions}
                for topic_id, partitions in topics.items()
            ],
        }
        self._is_asking = True
        self._cluster.alter_partition(body, lambda answer: self._answered(asked, answer))

    def _answered(
        self, asked: dict[ReplicatedPartition, IsrProposal], answer: AlterPartitionResponse | None
    ) -> None:
        self._is_asking = False
        if self._closed:
            return
        if answer is not None and not answer["error_code"]:
            results = {
                (topic["topic_id"], each["partition_index"]): each
                for topic in answer["topics"]
                for each in topic["partitions"]
            }
            for partition, proposal in asked.items():
                result = results.get((partition.topic_id, partition.index))
                if result is not None and self._proposals.get(partition) == proposal:
                    self._decided(partition, proposal, result)
        elif answer is not None:
            logger.info("the controller refuses changes of ISRs: %d", answer["error_code"])
        if self._proposals and self._proposing is None:
            self._proposing = self._loop.call_later(_RETRY_S, self._ask)

    def _decided(
        self,
        partition: ReplicatedPartition,
        proposal: IsrProposal,
        result: AlterPartitionResponsePartition,
    ) -> None:
        code = result["error_code"]
        if code in _AGAIN:
            return
        del self._proposals[partition]
        if code == errors.NONE:
            partition.isr_decided(
                tuple(result["isr"]), result["leader_epoch"], result["partition_epoch"]
            )
            return
        logger.info("%s: ISR %s is refused: %d", partition, proposal.isr, code)
        if code == errors.IneligibleReplica.code:
            self._loop.call_later(_REFUSED_S, partition.isr_refused, proposal)
        # Other errors mean that this broker is behind: the metadata log will bring the decision.

    def _check_isrs(self) -> None:
        for partition in list(self._led):
            partition.check_isr()
        self._checking = self._loop.call_later(self.lag_ms / 2000, self._check_isrs)

    # ---------------------------------------------------------------------------------- for metrics

    @property
    def led(self) -> list[ReplicatedPartition]:
        """The partitions that this broker leads."""
        return list(self._led)
