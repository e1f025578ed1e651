"""Consumer groups: which there are, who is in them, how far they are, and setting their offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConsumerGroupDescription,
)

from waylog.administration.answers import answer_to, result_of
from waylog.administration.cluster_admin import FAILURES, REQUEST_S, cluster_admin
from waylog.administration.log_access import LogAccess, NotInLog, partitions_of
from waylog.administration.offsets import find_offset
from waylog.cli import CommandError
from waylog.kafka.protocol.cluster_requests import Place


class KnownGroup(NamedTuple):
    """A group of the log; share groups do not tell the number of their members."""

    group: str
    type: str
    state: str
    members: int | None


def list_groups(access: LogAccess, admin: AdminClient) -> list[KnownGroup]:
    """Return all groups by name, share groups too; raises KafkaException and CommandError."""

    def ask(seconds: float) -> dict[str, Any]:
        # Asked anew each time: librdkafka goes on asking a broker that has died meanwhile.
        # It has to outlive its request.
        client = access.connect()
        found = client.list_consumer_groups(request_timeout=seconds).result()
        if found.errors:
            error = found.errors[0]
            raise error if isinstance(error, KafkaException) else KafkaException(error)
        return {group.group_id: group.type for group in found.valid}

    types = answer_to(access, ask)
    described = (
        admin.describe_consumer_groups(list(types), request_timeout=REQUEST_S) if types else {}
    )
    groups: list[KnownGroup] = []
    for name, kind in types.items():
        group = result_of(access, described[name])
        state = group.state.name.lower() if group.state else ""
        groups.append(
            KnownGroup(name, kind.name.lower() if kind else "", state, len(group.members))
        )
    # No client library can ask for the number of members of share groups yet.
    groups += [
        KnownGroup(name, "share", state, None) for name, state in list_share_groups(access).items()
    ]
    return sorted(groups)


def list_share_groups(access: LogAccess) -> dict[str, str]:
    """Return the states of share groups by name, none if the cluster has no such groups."""
    found: dict[str, str] = {}
    try:
        with cluster_admin(access, request_s=REQUEST_S) as admin:
            brokers = [each.address for each in admin.members().brokers.values()]
        for broker in brokers:
            with cluster_admin(access, brokers=[broker], request_s=REQUEST_S) as admin:
                found |= admin.share_groups()
    except FAILURES:
        return {}  # before Kafka 4
    return {name: state.lower() for name, state in found.items()}


def committed_offsets(access: LogAccess, admin: AdminClient, group: str) -> dict[Place, int]:
    """Return the committed offsets of a group; raises KafkaException and CommandError."""
    asked = [ConsumerGroupTopicPartitions(group)]
    answers = admin.list_consumer_group_offsets(asked, request_timeout=REQUEST_S)
    answer = result_of(access, answers[group])
    places = sorted(answer.topic_partitions, key=lambda each: (each.topic, each.partition))
    return {(each.topic, each.partition): each.offset for each in places}


def find_group(access: LogAccess, admin: AdminClient, name: str) -> ConsumerGroupDescription | None:
    """Return the coordinator's description of a group, None if there is none.

    Raises KafkaException and CommandError.
    """
    try:
        answers = admin.describe_consumer_groups([name], request_timeout=REQUEST_S)
        group: ConsumerGroupDescription = result_of(access, answers[name])
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return None
        raise
    return group


def require_group(access: LogAccess, admin: AdminClient, name: str) -> ConsumerGroupDescription:
    """Return the description of a group; raises NotInLog if there is none, KafkaException."""
    group = find_group(access, admin, name)
    # A group that has only offsets may be described as dead.
    if group is None or (
        group.state == ConsumerGroupState.DEAD and not committed_offsets(access, admin, name)
    ):
        raise NotInLog(f"there is no consumer group {name}; `waylog groups list` shows all")
    return group


def assigned_to(member: Any) -> dict[str, list[int]]:
    """Return the partitions that a member of a described group reads, by topic."""
    assigned: dict[str, list[int]] = {}
    for each in member.assignment.topic_partitions if member.assignment else ():
        assigned.setdefault(each.topic, []).append(each.partition)
    return {topic: sorted(numbers) for topic, numbers in sorted(assigned.items())}


def running(group: ConsumerGroupDescription) -> CommandError:
    """Return the refusal to set the offsets of a group that has members."""
    return CommandError(
        f"group {group.group_id} is running, with {len(group.members)} members: stop them, "
        "then set its offsets"
    )


def offset_targets(
    access: LogAccess,
    consumer: Consumer,
    topics: Sequence[str],
    where: str,
    committed: Mapping[Place, int],
) -> dict[Place, int]:
    """Return the offset that `where` stands for in each partition of topics.

    `where` is +N or -N behind or before what is committed, or a text as in `WHERE_HELP`. Raises
    KafkaException and CommandError.
    """
    shift = int(where) if where[:1] in {"+", "-"} and where[1:].isdecimal() else None
    targets = {}
    for topic in topics:
        for partition in partitions_of(consumer, topic):
            if shift is None:
                wanted = where
            else:
                wanted = str(max(max(committed.get((topic, partition), 0), 0) + shift, 0))
            targets[topic, partition] = find_offset(access, consumer, topic, partition, wanted)
    return targets


def set_offsets(
    access: LogAccess, admin: AdminClient, group: str, targets: Mapping[Place, int]
) -> None:
    """Set the offsets of a group without members; raises KafkaException and CommandError."""
    offsets = [TopicPartition(*place, offset) for place, offset in targets.items()]
    wanted = [ConsumerGroupTopicPartitions(group, offsets)]
    answers = admin.alter_consumer_group_offsets(wanted, request_timeout=REQUEST_S)
    answer = result_of(access, answers[group])
    for each in answer.topic_partitions:
        if each.error is not None:
            raise CommandError(
                f"{each.topic}:{each.partition} was not set, others may have been: "
                f"{each.error.str()}"
            )
