"""ListOffsets, OffsetForLeaderEpoch: offsets by timestamp, and where leader epochs end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker_core import errors
from broker_core.server.network.request import Request
from broker_core.server.partitions.partition import Partition
from broker_core.server.partitions.topics import TopicRegistry

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        ListOffsetsRequest,
        ListOffsetsRequestPartition,
        ListOffsetsResponse,
        ListOffsetsResponsePartition,
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochRequestPartition,
        OffsetForLeaderEpochResponse,
        OffsetForLeaderEpochResponsePartition,
    )

#: Special values of `timestamp`.
_LATEST: Final = -1
_EARLIEST: Final = -2
_MAX_TIMESTAMP: Final = -3
_EARLIEST_LOCAL: Final = -4

_READ_COMMITTED: Final = 1

_NOTHING: Final = (-1, -1)


def handle(
    topics: TopicRegistry, request: Request[ListOffsetsRequest, ListOffsetsResponse]
) -> None:
    """Answer a ListOffsets request."""
    committed = request.body["isolation_level"] == _READ_COMMITTED
    request.reply(
        {
            "topics": [
                {
                    "name": topic["name"],
                    "partitions": [
                        _answer(topics, topic["name"], asked, committed=committed)
                        for asked in topic["partitions"]
                    ],
                }
                for topic in request.body["topics"]
            ]
        }
    )


def _answer(
    topics: TopicRegistry, topic: str, asked: ListOffsetsRequestPartition, *, committed: bool
) -> ListOffsetsResponsePartition:
    index = asked["partition_index"]
    try:
        partition = _led(topics, topic, index, asked["current_leader_epoch"])
        partition.check_offsets_are_known()
        timestamp, offset = _look_up(partition, asked["timestamp"], committed=committed)
    except errors.BrokerError as error:
        return {"partition_index": index, "error_code": error.code}
    return {
        "partition_index": index,
        "error_code": errors.NONE,
        "timestamp": timestamp,
        "offset": offset,
        "leader_epoch": partition.epoch_at(offset) if offset >= 0 else -1,
    }


def _led(topics: TopicRegistry, topic: str, index: int, epoch: int) -> Partition:
    found = topics.get(topic)
    if found is None:
        raise errors.UnknownTopicOrPartition()
    partition = found.partition(index)
    partition.check_is_led()
    partition.check_leader_epoch(epoch)
    return partition


def _look_up(partition: Partition, timestamp: int, *, committed: bool) -> tuple[int, int]:
    log = partition.log
    end = log.last_stable_offset if committed else partition.high_watermark
    if timestamp == _LATEST:
        return -1, end
    if timestamp in {_EARLIEST, _EARLIEST_LOCAL}:
        return -1, log.log_start_offset
    if timestamp == _MAX_TIMESTAMP:
        found = log.max_timestamp()
    elif timestamp < 0:
        # Special values for tiered storage, which does not exist here.
        found = None
    else:
        found = log.offset_for_timestamp(timestamp)
    if found is None or found[1] >= end:
        return _NOTHING
    return found


def handle_leader_epoch(
    topics: TopicRegistry,
    request: Request[OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse],
) -> None:
    """Answer OffsetForLeaderEpoch: where an epoch ended, to detect truncation (KIP-320)."""
    request.reply(
        {
            "topics": [
                {
                    "topic": topic["topic"],
                    "partitions": [
                        _epoch_end(topics, topic["topic"], asked) for asked in topic["partitions"]
                    ],
                }
                for topic in request.body["topics"]
            ]
        }
    )


def _epoch_end(
    topics: TopicRegistry, topic: str, asked: OffsetForLeaderEpochRequestPartition
) -> OffsetForLeaderEpochResponsePartition:
    index = asked["partition"]
    try:
        partition = _led(topics, topic, index, asked["current_leader_epoch"])
    except errors.BrokerError as error:
        return {"partition": index, "error_code": error.code}
    epoch, end_offset = partition.end_of_epoch(asked["leader_epoch"])
    return {
        "partition": index,
        "error_code": errors.NONE,
        "leader_epoch": epoch,
        "end_offset": end_offset,
    }
