"""The controller's handling of partitions: leaders, in-sync replicas, reassignments."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from broker_core import errors
from broker_core.cluster.elections import PartitionTarget
from broker_core.cluster.image import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    ClusterImage,
    PartitionImage,
    TopicImage,
)
from broker_core.cluster.records import NO_LEADER, PartitionChange
from broker_core.cluster.settings import MIN_INSYNC_REPLICAS, ControllerSettings
from broker_core.cluster.writing import MetadataWriter

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AlterPartitionRequest,
        AlterPartitionRequestPartition,
        AlterPartitionResponse,
        AlterPartitionResponsePartition,
        AlterPartitionResponseTopic,
    )

logger = logging.getLogger(__name__)

_UNCLEAN: Final = "unclean.leader.election.enable"
#: Types of elections in ElectLeaders.
PREFERRED: Final = 0
UNCLEAN: Final = 1

_ANY_EPOCH: Final = -1


class PartitionControl:
    """Changes existing partitions."""

    def __init__(self, writer: MetadataWriter, settings: ControllerSettings) -> None:
        self._writer = writer
        self._settings = settings

    @property
    def _image(self) -> ClusterImage:
        return self._writer.image

    def allows_unclean(self, topic: str) -> bool:
        """Tell whether a replica that is not in sync may become leader of a topic's partitions."""
        value = self._configured(topic, _UNCLEAN)
        if value is not None:
            return value.lower() == "true"
        return self._settings.topic_defaults.unclean_leader_election_enable

    def min_insync_replicas(self, topic: str) -> int:
        """Return how many replicas must be in sync for records to be committed."""
        value = self._configured(topic, MIN_INSYNC_REPLICAS)
        return self._settings.topic_defaults.min_insync_replicas if value is None else int(value)

    def _configured(self, topic: str, name: str) -> str | None:
        configs = self._image.configs
        for resource in ((TOPIC_RESOURCE, topic), (BROKER_RESOURCE, "")):
            value = configs.get(resource, {}).get(name)
            if value is not None:
                return value
        return None

    def _target(
        self,
        topic: TopicImage,
        index: int,
        is_active: Callable[[int], bool] | None = None,
        *,
        prefers_first: bool = False,
        unclean: bool | None = None,
    ) -> PartitionTarget:
        return PartitionTarget(
            topic.partitions[index],
            is_active or self._image.is_active,
            prefers_first=prefers_first,
            allows_unclean=self.allows_unclean(topic.name) if unclean is None else unclean,
            min_insync_replicas=self.min_insync_replicas(topic.name),
        )

    def _change(
        self, topic: TopicImage, index: int, target: PartitionTarget
    ) -> PartitionChange | None:
        change = target.change(topic.id, index)
        if target.is_unclean:
            logger.warning(
                "%s-%d: no member of its ISR %s is alive; broker %d, which may lack acknowledged "
                "records, leads it now, as %s allows",
                topic.name,
                index,
                target.partition.isr,
                target.isr[0],
                _UNCLEAN,
            )
        return change

    # -------------------------------------------------------------------------- brokers come and go

    def without(self, broker_id: int, *, is_lossy: bool = False) -> Iterator[PartitionChange]:
        """Yield changes that take a broker out of leadership and ISRs where other replicas exist.

        A broker that `is_lossy`, that is, may have lost records, is no eligible leader either.
        """
        image = self._image

        def is_active(other: int) -> bool:
            return other != broker_id and image.is_active(other)

        for topic, index, partition in image.partitions():
            if broker_id not in (*partition.isr, *partition.elr, partition.leader):
                continue
            target = self._target(topic, index, is_active)
            target.lossy = broker_id if is_lossy else None
            target.isr = tuple(each for each in partition.isr if each != broker_id)
            change = self._change(topic, index, target)
            if change is not None:
                yield change

    def with_broker(self, broker_id: int) -> Iterator[PartitionChange]:
        """Yield changes that let a returning broker lead partitions without a leader, if it may."""
        image = self._image

        def is_active(other: int) -> bool:
            return other == broker_id or image.is_active(other)

        for topic, index, partition in image.partitions():
            if partition.leader == NO_LEADER and broker_id in partition.replicas:
                change = self._change(topic, index, self._target(topic, index, is_active))
                if change is not None:
                    yield change

    # ----------------------------------------------------------------------------- in-sync replicas

    def alter(self, body: AlterPartitionRequest) -> AlterPartitionResponse:
        """Handle AlterPartition: a leader reports its in-sync replicas (KIP-497)."""
        broker_id = body["broker_id"]
        broker = self._image.brokers.get(broker_id)
        if broker is None or broker.epoch != body["broker_epoch"]:
            return {"error_code": errors.StaleBrokerEpoch.code, "topics": []}
        topics: list[AlterPartitionResponseTopic] = []
        for asked in body["topics"]:
            topic = self._image.topic_by_id(asked["topic_id"])
            topics.append(
                {
                    "topic_id": asked["topic_id"],
                    "partitions": [
                        self._alter(topic, broker_id, each) for each in asked["partitions"]
                    ],
                }
            )
        return {"error_code": errors.NONE, "topics": topics}

    def _alter(
        self, topic: TopicImage | None, broker_id: int, asked: AlterPartitionRequestPartition
    ) -> AlterPartitionResponsePartition:
        index = asked["partition_index"]
        try:
            if topic is None:
                raise errors.UnknownTopicId()
            if not 0 <= index < len(topic.partitions):
                raise errors.UnknownTopicOrPartition()
            isr = self._checked_isr(topic.partitions[index], broker_id, asked)
            target = self._target(topic, index)
            target.isr = isr
            target.recovering = bool(asked["leader_recovery_state"])
            change = self._change(topic, index, target)
            if change is not None:
                self._writer.write([change])
            after = topic.partitions[index]
            if after.leader != broker_id:
                # A reassignment that waited for this ISR is complete, and it removed the leader.
                raise errors.NewLeaderElected()
        except errors.BrokerError as error:
            return {"partition_index": index, "error_code": error.code}
        return {
            "partition_index": index,
            "error_code": errors.NONE,
            "leader_id": after.leader,
            "leader_epoch": after.leader_epoch,
            "isr": list(after.isr),
            "leader_recovery_state": int(after.recovering),
            "partition_epoch": after.partition_epoch,
        }

    def _checked_isr(
        self, partition: PartitionImage, broker_id: int, asked: AlterPartitionRequestPartition
    ) -> tuple[int, ...]:
        if (
            asked["leader_epoch"] > partition.leader_epoch
            or asked["partition_epoch"] > partition.partition_epoch
        ):
            # The leader has newer metadata than this controller, which is therefore not active any
            # more.
            raise errors.NotController()
        if asked["leader_epoch"] < partition.leader_epoch:
            raise errors.FencedLeaderEpoch()
        if partition.leader != broker_id:
            raise errors.InvalidRequest(f"broker {broker_id} does not lead the partition")
        if asked["partition_epoch"] < partition.partition_epoch:
            raise errors.InvalidUpdateVersion()
        # From version 3 on, the request has the broker epoch of each member (KIP-903).
        members = asked.get("new_isr_with_epochs") or [
            {"broker_id": each, "broker_epoch": _ANY_EPOCH} for each in asked["new_isr"]
        ]
        isr = tuple(each["broker_id"] for each in members)
        if len(set(isr)) < len(isr) or not set(isr) <= set(partition.replicas):
            raise errors.InvalidRequest(f"{isr} are not replicas {partition.replicas}")
        if broker_id not in isr:
            raise errors.InvalidRequest("the leader is always in sync")
        if partition.recovering and asked["leader_recovery_state"] and len(isr) > 1:
            raise errors.InvalidRequest("while it recovers, the leader alone is in sync")
        if not partition.recovering and asked["leader_recovery_state"]:
            raise errors.InvalidRequest("the partition has recovered")
        for each in members:
            self._check_eligible(each["broker_id"], each["broker_epoch"])
        return isr

    def _check_eligible(self, broker_id: int, epoch: int) -> None:
        broker = self._image.brokers.get(broker_id)
        if broker is None or not broker.is_active or epoch not in {_ANY_EPOCH, broker.epoch}:
            raise errors.IneligibleReplica(f"broker {broker_id} cannot be in sync now")

    # ------------------------------------------------------------------------------------ elections

    def elect(self, topic_name: str, index: int, kind: int) -> None:
        """Elect a leader at a client's request; raises BrokerError if that is not possible."""
        topic, partition = self._find(topic_name, index)
        if kind == UNCLEAN:
            if partition.leader != NO_LEADER:
                raise errors.ElectionNotNeeded("The partition has a leader.")
            target = self._target(topic, index, unclean=True)
            refusal: errors.BrokerError = errors.EligibleLeadersNotAvailable()
        elif kind == PREFERRED:
            if partition.leader == partition.replicas[0]:
                raise errors.ElectionNotNeeded("The preferred replica leads already.")
            target = self._target(topic, index, prefers_first=True)
            refusal = errors.PreferredLeaderNotAvailable()
        else:
            raise errors.InvalidRequest(f"Unknown election type {kind}")
        change = self._change(topic, index, target)
        wanted = change is not None and (
            change.leader == partition.replicas[0] if kind == PREFERRED else change.leader >= 0
        )
        if change is None or not wanted:
            raise refusal
        self._writer.write([change])

    def prefer_first(self) -> int:
        """Elect the preferred leader of every partition where it is in sync; return how many."""
        changes = []
        for topic, index, partition in self._image.partitions():
            if partition.leader in {partition.replicas[0], NO_LEADER}:
                continue
            target = self._target(topic, index, prefers_first=True)
            change = self._change(topic, index, target)
            if change is not None:
                changes.append(change)
        self._writer.write_each(changes)
        return len(changes)

    def _find(self, topic_name: str, index: int) -> tuple[TopicImage, PartitionImage]:
        topic = self._image.topics.get(topic_name)
        if topic is None or not 0 <= index < len(topic.partitions):
            raise errors.UnknownTopicOrPartition()
        return topic, topic.partitions[index]

    # -------------------------------------------------------------------------------- reassignments

    def reassign(
        self, topic_name: str, index: int, wanted: Sequence[int] | None, *, may_resize: bool = True
    ) -> None:
        """Change a partition's replicas; None cancels the reassignment in progress.

        Raises BrokerError.
        """
        topic, partition = self._find(topic_name, index)
        target = self._target(topic, index)
        if wanted is None:
            self._cancel(partition, target)
        else:
            self._check_replicas(wanted)
            original = _without(partition.replicas, partition.adding)
            if not may_resize and len(wanted) != len(original):
                raise errors.InvalidReplicationFactor(
                    f"the partition has {len(original)} replicas, not {len(wanted)}"
                )
            target.adding = _without(wanted, original)
            target.removing = _without(original, wanted)
            target.replicas = (*wanted, *target.removing)
            target.isr = tuple(each for each in partition.isr if each in target.replicas)
            _check_in_sync(target)
        change = self._change(topic, index, target)
        if change is not None:
            self._writer.write([change])

    def _cancel(self, partition: PartitionImage, target: PartitionTarget) -> None:
        if not partition.is_reassigning:
            raise errors.NoReassignmentInProgress()
        target.replicas = _without(partition.replicas, partition.adding)
        target.isr = _without(partition.isr, partition.adding)
        target.adding = target.removing = ()
        _check_in_sync(target)

    def _check_replicas(self, wanted: Sequence[int]) -> None:
        if not wanted or len(set(wanted)) < len(wanted):
            raise errors.InvalidReplicaAssignment(f"{wanted} is empty, or names a broker twice")
        unknown = [each for each in wanted if each not in self._image.brokers]
        if unknown:
            raise errors.InvalidReplicaAssignment(f"no broker {unknown[0]} is registered")


def _check_in_sync(target: PartitionTarget) -> None:
    """Refuse replicas of which none is in sync.

    The last one in sync may be a replica that only the previous reassignment has added.
    """
    if not target.isr:
        raise errors.InvalidReplicaAssignment(
            f"of the replicas {list(target.replicas)} none is in sync: they cannot take over"
        )


def _without(these: Iterable[int], those: Iterable[int]) -> tuple[int, ...]:
    left_out = set(those)
    return tuple(each for each in these if each not in left_out)
