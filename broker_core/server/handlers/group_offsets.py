"""OffsetCommit, OffsetFetch, OffsetDelete: how far groups have come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker_core import errors
from broker_core.coordinator.group_coordinator import OffsetToCommit
from broker_core.server.request import Request

if TYPE_CHECKING:
    from broker_core.server.runtime import Broker

_GROUPS_IN_BATCHES_FROM: Final = 8


def handle_commit(broker: Broker, request: Request) -> None:
    """OffsetCommit."""
    body = request.body
    groups = broker.groups
    offsets = [
        OffsetToCommit(
            topic["name"],
            each["partition_index"],
            each["committed_offset"],
            each["committed_leader_epoch"],
            each["committed_metadata"] or "",
            errors.NONE
            if broker.topics.partition(topic["name"], each["partition_index"]) is not None
            else errors.UnknownTopicOrPartition.code,
        )
        for topic in body["topics"]
        for each in topic["partitions"]
    ]

    def answer(result: dict[str, Any]) -> None:
        request.reply({"topics": codes_by_topic(result["codes"])})

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


def codes_by_topic(codes: dict[tuple[str, int], int]) -> list[dict[str, Any]]:
    """Error codes as most responses about partitions have them."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), code in codes.items():
        topics.setdefault(topic, []).append({"partition_index": partition, "error_code": code})
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]


def handle_fetch(broker: Broker, request: Request) -> None:
    """OffsetFetch."""
    body = request.body
    stable: bool = body["require_stable"]
    if request.version >= _GROUPS_IN_BATCHES_FROM:
        request.reply(
            {"groups": [_committed(broker, group, stable=stable) for group in body["groups"]]}
        )
    else:
        request.reply(_committed(broker, body, stable=stable))


def _committed(broker: Broker, asked: dict[str, Any], *, stable: bool) -> dict[str, Any]:
    group_id = asked["group_id"]
    group = broker.groups.coordinator.groups.get(group_id)
    offsets = group.offsets if group is not None else {}
    topics: list[dict[str, Any]] = []
    if asked["topics"] is None:
        wanted: dict[str, list[int]] = {}
        for topic, partition in offsets:
            wanted.setdefault(topic, []).append(partition)
    else:
        wanted = {each["name"]: each["partition_indexes"] for each in asked["topics"]}
    for topic, indexes in wanted.items():
        partitions = []
        for index in indexes:
            committed = offsets.get((topic, index))
            code = errors.NONE
            if stable and group is not None and group.is_unstable((topic, index)):
                code, committed = errors.UnstableOffsetCommit.code, None
            partitions.append(
                {
                    "partition_index": index,
                    "committed_offset": committed.offset if committed else -1,
                    "committed_leader_epoch": committed.leader_epoch if committed else -1,
                    "metadata": committed.metadata if committed else "",
                    "error_code": code,
                }
            )
        topics.append({"name": topic, "partitions": partitions})
    return {"group_id": group_id, "topics": topics, "error_code": errors.NONE}


def handle_delete(broker: Broker, request: Request) -> None:
    """OffsetDelete."""
    groups = broker.groups
    places = [
        (topic["name"], each["partition_index"])
        for topic in request.body["topics"]
        for each in topic["partitions"]
    ]

    def answer(result: dict[str, Any]) -> None:
        request.reply(
            {"error_code": result["error_code"], "topics": codes_by_topic(result["codes"])}
        )

    groups.coordinator.delete_offsets(request.body["group_id"], places, answer)
    groups.perform()
