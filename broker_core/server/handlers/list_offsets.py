"""ListOffsets, OffsetForLeaderEpoch: offsets by timestamp, and where leader epochs end."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from broker_core import errors
from broker_core.log.log import Log
from broker_core.server.network.request import Request, client_party
from broker_core.server.partitions.batch_opener import BatchOpener
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

logger = logging.getLogger(__name__)

#: Bytes of a batch to be opened, as they count for turns: what it expands to is not known.
_BATCH_BYTES: Final = 64 * 1024

#: Special values of `timestamp`.
_LATEST: Final = -1
_EARLIEST: Final = -2
_MAX_TIMESTAMP: Final = -3
_EARLIEST_LOCAL: Final = -4

_READ_COMMITTED: Final = 1

_NOTHING: Final = (-1, -1)


class OffsetParts(Protocol):
    """The parts of a broker that know the offsets of records."""

    topics: TopicRegistry
    batch_opener: BatchOpener


class _LookUp:
    """Looks for a record by its time, beside the event loop: a batch may have to be expanded."""

    __slots__ = ("_log", "_timestamp", "found")

    def __init__(self, log: Log, timestamp: int) -> None:
        self._log = log
        self._timestamp = timestamp
        #: Timestamp and offset, None if there is no such record, or the error.
        self.found: tuple[int, int] | errors.BrokerError | None = None

    def steps(self) -> Iterator[int]:
        """Look, in steps of a batch; any thread may take them."""
        log = self._log
        try:
            self.found = yield from (
                log.look_for_max_timestamp()
                if self._timestamp == _MAX_TIMESTAMP
                else log.look_for_timestamp(self._timestamp)
            )
        except errors.BrokerError as error:
            self.found = error.with_traceback(None)
        except Exception as error:
            logger.exception("%s: looking for a time failed", log.name)
            self.found = errors.UnknownServerError(f"{log.name}: {error}")


def handle(broker: OffsetParts, request: Request[ListOffsetsRequest, ListOffsetsResponse]) -> None:
    """Answer a ListOffsets request, now or later."""
    look_ups = _look_ups(broker.topics, request.body)
    if not look_ups:
        request.reply(_response(broker.topics, request.body, {}))
        return

    def done() -> None:
        request.on_close = None
        try:
            request.reply(_response(broker.topics, request.body, look_ups))
        except Exception:
            logger.exception("ListOffsets version %d failed", request.version)
            request.disconnect()

    def steps() -> Iterator[int]:
        for each in look_ups.values():
            for _ in each.steps():
                yield _BATCH_BYTES
            yield _BATCH_BYTES

    party = client_party(request.principal, request.host)
    request.on_close = broker.batch_opener.take(party, steps(), done).cancel


def _look_ups(topics: TopicRegistry, body: ListOffsetsRequest) -> dict[int, _LookUp]:
    """Return what to look for in other threads, by the id of its part of the request."""
    look_ups: dict[int, _LookUp] = {}
    for topic in body["topics"]:
        found = topics.get(topic["name"])
        if found is None:
            continue
        for asked in topic["partitions"]:
            timestamp = asked["timestamp"]
            if timestamp >= 0 or timestamp == _MAX_TIMESTAMP:
                with suppress(errors.BrokerError):
                    log = found.partition(asked["partition_index"]).log
                    look_ups[id(asked)] = _LookUp(log, timestamp)
    return look_ups


def _response(
    topics: TopicRegistry, body: ListOffsetsRequest, look_ups: Mapping[int, _LookUp]
) -> ListOffsetsResponse:
    committed = body["isolation_level"] == _READ_COMMITTED
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    _answer(
                        topics, topic["name"], asked, look_ups.get(id(asked)), committed=committed
                    )
                    for asked in topic["partitions"]
                ],
            }
            for topic in body["topics"]
        ]
    }


def _answer(
    topics: TopicRegistry,
    topic: str,
    asked: ListOffsetsRequestPartition,
    look_up: _LookUp | None,
    *,
    committed: bool,
) -> ListOffsetsResponsePartition:
    index = asked["partition_index"]
    try:
        partition = _led(topics, topic, index, asked["current_leader_epoch"])
        partition.check_offsets_are_known()
        timestamp, offset = _offset(partition, asked["timestamp"], look_up, committed=committed)
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


def _offset(
    partition: Partition, timestamp: int, look_up: _LookUp | None, *, committed: bool
) -> tuple[int, int]:
    log = partition.log
    end = log.last_stable_offset if committed else partition.high_watermark
    if timestamp == _LATEST:
        return -1, end
    if timestamp in {_EARLIEST, _EARLIEST_LOCAL}:
        return -1, log.log_start_offset
    # Other values are for tiered storage, which does not exist here.
    found = None if look_up is None else look_up.found
    if isinstance(found, errors.BrokerError):
        raise found
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
