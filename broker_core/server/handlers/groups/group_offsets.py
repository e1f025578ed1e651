"""OffsetCommit, OffsetFetch, OffsetDelete: the committed offsets of groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from broker_core import errors
from broker_core.coordinator.effects import Codes
from broker_core.coordinator.groups.consumer_group import ConsumerGroup
from broker_core.coordinator.groups.group_offsets import GroupOffsets
from broker_core.coordinator.offsets import OffsetToCommit
from broker_core.server.coordination.groups import Groups
from broker_core.server.handlers.groups.group_parts import GroupParts
from broker_core.server.network.request import Request

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        OffsetCommitRequest,
        OffsetCommitRequestTopic,
        OffsetCommitResponse,
        OffsetCommitResponseTopic,
        OffsetDeleteRequest,
        OffsetDeleteResponse,
        OffsetDeleteResponsePartition,
        OffsetDeleteResponseTopic,
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
        OffsetFetchResponse,
        OffsetFetchResponseGroup,
        OffsetFetchResponseGroupTopic,
        OffsetFetchResponseGroupTopicPartition,
    )

_GROUPS_IN_BATCHES_FROM: Final = 8
_MEMBER_EPOCHS_FROM: Final = 9
_TOPIC_IDS_FROM: Final = 10
_NO_ID: Final = bytes(16)


def handle_commit(
    broker: GroupParts, request: Request[OffsetCommitRequest, OffsetCommitResponse]
) -> None:
    """Answer an OffsetCommit request."""
    body = request.body
    groups = broker.groups
    by_id = request.version >= _TOPIC_IDS_FROM
    offsets: list[OffsetToCommit] = []
    unknown: list[OffsetCommitResponseTopic] = []
    for asked in body["topics"]:
        topic = broker.topics.by_id(asked["topic_id"]) if by_id else None
        if by_id and topic is None:
            unknown.append(_unknown_topic(asked, errors.UnknownTopicId.code))
            continue
        name = topic.name if topic is not None else asked["name"]
        offsets += [
            OffsetToCommit(
                name,
                each["partition_index"],
                each["committed_offset"],
                each["committed_leader_epoch"],
                each["committed_metadata"] or "",
                errors.NONE
                if broker.topics.has_partition(name, each["partition_index"])
                else errors.UnknownTopicOrPartition.code,
            )
            for each in asked["partitions"]
        ]
    knows_stale_epochs = request.version >= _MEMBER_EPOCHS_FROM

    def answer(result: Codes) -> None:
        codes = result["codes"]
        if not knows_stale_epochs and errors.StaleMemberEpoch.code in codes.values():
            codes = dict.fromkeys(codes, errors.UnsupportedVersion.code)
        topics: list[OffsetCommitResponseTopic] = []
        for each in codes_by_topic(codes):
            found = broker.topics.get(each["name"])
            topic_id = _NO_ID if found is None else found.topic_id
            topics.append({**each, "topic_id": topic_id})
        request.reply({"topics": topics + unknown})

    groups.coordinator.commit_offsets(
        body["group_id"],
        (
            body["member_id"],
            body["group_instance_id"],
            body["generation_id_or_member_epoch"],
        ),
        offsets,
        answer,
        groups.moment(),
    )
    groups.perform()


def _unknown_topic(asked: OffsetCommitRequestTopic, code: int) -> OffsetCommitResponseTopic:
    return {
        "topic_id": asked["topic_id"],
        "partitions": [
            {"partition_index": each["partition_index"], "error_code": code}
            for each in asked["partitions"]
        ],
    }


def codes_by_topic(codes: dict[tuple[str, int], int]) -> list[OffsetDeleteResponseTopic]:
    """Return error codes in the form in which most responses list partitions."""
    topics: dict[str, list[OffsetDeleteResponsePartition]] = {}
    for (topic, partition), code in codes.items():
        topics.setdefault(topic, []).append({"partition_index": partition, "error_code": code})
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]


def handle_fetch(
    broker: GroupParts, request: Request[OffsetFetchRequest, OffsetFetchResponse]
) -> None:
    """Answer an OffsetFetch request."""
    body = request.body
    stable: bool = body["require_stable"]
    if request.version >= _GROUPS_IN_BATCHES_FROM:
        by_id = request.version >= _TOPIC_IDS_FROM
        request.reply(
            {
                "groups": [
                    _committed(broker, group, stable=stable, by_id=by_id)
                    for group in body["groups"]
                ]
            }
        )
    else:
        group_id = body["group_id"]
        found = broker.groups.coordinator.groups.get(group_id)
        wanted = _all_topics(found)
        if body["topics"] is not None:
            wanted = [(each["name"], _NO_ID, each["partition_indexes"]) for each in body["topics"]]
        request.reply(
            {
                "error_code": errors.NONE,
                "topics": [
                    {
                        "name": name,
                        "partitions": [
                            _committed_in(found, name, index, errors.NONE, stable=stable)
                            for index in indexes
                        ],
                    }
                    for name, _, indexes in wanted
                ],
            }
        )


def _committed(
    broker: GroupParts, asked: OffsetFetchRequestGroup, *, stable: bool, by_id: bool
) -> OffsetFetchResponseGroup:
    group_id = asked["group_id"]
    group = broker.groups.coordinator.groups.get(group_id)
    code = _check_member(group, asked)
    if code:
        return {"group_id": group_id, "topics": [], "error_code": code}
    topics: list[OffsetFetchResponseGroupTopic] = []
    wanted = _all_topics(group)
    if asked["topics"] is not None:
        wanted = [
            (each["name"], each["topic_id"], each["partition_indexes"]) for each in asked["topics"]
        ]
    for asked_name, asked_id, indexes in wanted:
        name, topic_id, missing = asked_name, asked_id, errors.NONE
        if by_id and not name:
            topic = broker.topics.by_id(topic_id)
            name = "" if topic is None else topic.name
            missing = errors.UnknownTopicId.code if topic is None else errors.NONE
        elif by_id:
            topic = broker.topics.get(name)
            if topic is None:
                continue  # deleted since: its id, which this version returns, is unknown
            topic_id = topic.topic_id
        topics.append(
            {
                "name": name,
                "topic_id": topic_id,
                "partitions": [
                    _committed_in(group, name, index, missing, stable=stable) for index in indexes
                ],
            }
        )
    return {"group_id": group_id, "topics": topics, "error_code": errors.NONE}


def _check_member(group: GroupOffsets | None, asked: OffsetFetchRequestGroup) -> int:
    """Return an error code for a member with a stale epoch: zombies get nothing (KIP-848)."""
    if not isinstance(group, ConsumerGroup) or asked["member_epoch"] < 0:
        return errors.NONE
    return group.check_member(asked["member_id"] or "", asked["member_epoch"])


def _all_topics(group: GroupOffsets | None) -> list[tuple[str, bytes, Sequence[int]]]:
    """Return name, no id and partitions of all topics of which a group has offsets."""
    wanted: dict[str, list[int]] = {}
    for topic, partition in group.offsets if group is not None else ():
        wanted.setdefault(topic, []).append(partition)
    return [(name, _NO_ID, indexes) for name, indexes in wanted.items()]


def _committed_in(
    group: GroupOffsets | None, topic: str, index: int, code: int, *, stable: bool
) -> OffsetFetchResponseGroupTopicPartition:
    committed = None
    if group is not None and not code:
        committed = group.offsets.get((topic, index))
        if stable and group.is_unstable((topic, index)):
            code, committed = errors.UnstableOffsetCommit.code, None
    return {
        "partition_index": index,
        "committed_offset": committed.offset if committed else -1,
        "committed_leader_epoch": committed.leader_epoch if committed else -1,
        "metadata": committed.metadata if committed else "",
        "error_code": code,
    }


def handle_delete(
    groups: Groups, request: Request[OffsetDeleteRequest, OffsetDeleteResponse]
) -> None:
    """Answer an OffsetDelete request."""
    places = [
        (topic["name"], each["partition_index"])
        for topic in request.body["topics"]
        for each in topic["partitions"]
    ]

    def answer(result: Codes) -> None:
        request.reply(
            {"error_code": result["error_code"], "topics": codes_by_topic(result["codes"])}
        )

    groups.coordinator.delete_offsets(request.body["group_id"], places, answer)
    groups.perform()
