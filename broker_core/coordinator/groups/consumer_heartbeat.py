"""The heartbeat request of the consumer protocol, also for joining and leaving (KIP-848)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from broker_core import errors
from broker_core.coordinator.groups.assignors import ASSIGNORS, TopicPartition
from broker_core.coordinator.groups.consumer_member import LEAVES, LEAVES_FOR_A_WHILE
from broker_core.coordinator.groups.topic_view import ALL_TOPICS, TopicRights


@dataclass(slots=True)
class ConsumerHeartbeat:
    """A ConsumerGroupHeartbeat request; None means unchanged since the last one."""

    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topic_names: Collection[str] | None
    topic_regex: str | None
    assignor: str | None
    owned: Collection[TopicPartition] | None
    #: A regular expression stands for no others than these topics.
    rights: TopicRights = ALL_TOPICS

    @property
    def is_full(self) -> bool:
        """True if the request has all fields: the response then includes the whole assignment."""
        return self.epoch == 0 or (
            self.rebalance_timeout_ms != -1
            and (self.topic_names is not None or self.topic_regex is not None)
            and self.owned is not None
        )


def check_heartbeat(asked: ConsumerHeartbeat, *, needs_member_id: bool) -> None:
    """Raise InvalidRequest or UnsupportedAssignor if a heartbeat is invalid."""
    problem = None
    if not asked.group_id:
        problem = "GroupId can't be empty."
    elif asked.instance_id == "":
        problem = "InstanceId can't be empty."
    elif asked.rack_id == "":
        problem = "RackId can't be empty."
    elif not asked.member_id and (asked.epoch != 0 or needs_member_id):
        problem = "MemberId can't be empty."
    elif asked.epoch == 0:
        if asked.rebalance_timeout_ms == -1:
            problem = "RebalanceTimeoutMs must be provided in first request."
        elif asked.owned is None or asked.owned:
            problem = "TopicPartitions must be empty when (re-)joining."
        elif asked.topic_names is None and asked.topic_regex is None:
            problem = (
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining."
            )
    elif asked.epoch == LEAVES_FOR_A_WHILE:
        if asked.instance_id is None:
            problem = "InstanceId can't be null."
    elif asked.epoch < LEAVES:
        problem = "MemberEpoch is invalid."
    if problem is not None:
        raise errors.InvalidRequest(problem)
    if asked.assignor is not None and asked.assignor not in ASSIGNORS:
        raise errors.UnsupportedAssignor(
            f"ServerAssignor {asked.assignor} is not supported. Supported assignors: "
            f"{', '.join(ASSIGNORS)}."
        )
