"""Fetch: read whole batches; wait until there are enough bytes or the time is up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from broker_core import errors
from broker_core.environment import FileSlice
from broker_core.log.aborted_transactions import AbortedTransaction
from broker_core.server.authorization import may_read
from broker_core.server.fetch_sessions import FetchSession
from broker_core.server.leader_hints import add_leaders
from broker_core.server.partition import Partition
from broker_core.server.request import Request

if TYPE_CHECKING:
    from broker_core.server.runtime import Broker

logger = logging.getLogger(__name__)

_TOPIC_IDS_FROM: Final = 13
_READ_COMMITTED: Final = 1
#: Versions in which clients say where they are, and may read from followers.
_FROM_FOLLOWERS_FROM: Final = 11


def handle(broker: Broker, request: Request) -> None:
    """Fetch."""
    body = request.body
    replica_id, broker_epoch = _replica(body)
    if replica_id >= 0:
        broker.replica_sessions.fetch(request, replica_id, broker_epoch)
        return
    try:
        session, is_incremental = broker.fetch_sessions.find(
            body,
            str(request.principal),
            by_id=request.version >= _TOPIC_IDS_FROM,
            now_s=asyncio.get_running_loop().time(),
        )
    except errors.BrokerError as error:
        request.reply({"error_code": error.code})
        return
    fetch = _Fetch(broker, request, session, is_incremental=is_incremental)
    response, size, final = fetch.read()
    if final or size >= body["min_bytes"] or body["max_wait_ms"] <= 0:
        fetch.answer(response)
    else:
        fetch.wait(body["min_bytes"] - size)


def _replica(body: dict[str, Any]) -> tuple[int, int]:
    """(broker id, epoch) of a follower that asks; (-1, -1) of a consumer."""
    state = body["replica_state"]
    if state is not None:
        return state["replica_id"], state["replica_epoch"]
    return body["replica_id"], -1


class _Fetch:
    """One request; when it waits, a FetchWaiter of each of its partitions."""

    __slots__ = (
        "_broker",
        "_bytes_max",
        "_is_incremental",
        "_missing",
        "_partitions",
        "_request",
        "_session",
        "_timer",
        "_topics",
        "_waking",
        "_wanted",
    )

    def __init__(
        self,
        broker: Broker,
        request: Request,
        session: FetchSession | None,
        *,
        is_incremental: bool,
    ) -> None:
        self._broker = broker
        self._request = request
        self._session = session
        self._is_incremental = is_incremental
        self._wanted: list[dict[str, Any]] = (
            list(session.wanted())
            if session is not None and is_incremental
            else request.body["topics"]
        )
        self._topics = broker.topics
        self._bytes_max = min(request.body["max_bytes"], broker.config.fetch_max_bytes)
        self._partitions: list[Partition] = []
        self._missing = 0
        self._timer: asyncio.TimerHandle | None = None
        self._waking: asyncio.Handle | None = None

    def read(self) -> tuple[dict[str, Any], int, bool]:
        """Returns (response, bytes of records in it, whether waiting would be wrong)."""
        self._partitions = []
        by_id = self._request.version >= _TOPIC_IDS_FROM
        committed = self._request.body["isolation_level"] == _READ_COMMITTED
        unread = self._request.sends_files
        left = self._bytes_max
        size = 0
        final = False
        responses: list[dict[str, Any]] = []
        for each in self._wanted:
            if by_id:
                topic = self._topics.by_id(each["topic_id"])
                missing: type[errors.BrokerError] = errors.UnknownTopicId
            else:
                topic = self._topics.get(each["topic"])
                missing = errors.UnknownTopicOrPartition
            if topic is not None and not may_read(self._broker, self._request, topic.name):
                topic, missing = None, errors.TopicAuthorizationFailed
            results: list[dict[str, Any]] = []
            responses.append(
                {"topic": each["topic"], "topic_id": each["topic_id"], "partitions": results}
            )
            for asked in each["partitions"]:
                index = asked["partition"]
                if topic is None:
                    results.append(_refused(index, missing.code))
                    final = True
                    continue
                try:
                    partition = topic.partition(index)
                except errors.BrokerError as error:
                    results.append(_refused(index, error.code))
                    final = True
                    continue
                self._partitions.append(partition)
                elsewhere = self._preferred(partition, asked)
                if elsewhere is not None:
                    results.append(elsewhere)
                    final = True
                    continue
                result = _read(
                    partition,
                    asked,
                    left,
                    first=size == 0,
                    committed=committed,
                    unread=unread,
                    version=self._request.version,
                )
                results.append(result)
                if result["error_code"]:
                    final = True
                else:
                    length = len(result["records"])
                    size += length
                    left -= length
        response: dict[str, Any] = {"responses": responses}
        if final:
            add_leaders(self._broker, self._request, response, self._results(responses))
        return response, size, final or not self._partitions

    def _preferred(self, partition: Partition, asked: dict[str, Any]) -> dict[str, Any] | None:
        """The answer for a client that had better read from a replica nearer to it (KIP-392)."""
        rack = self._request.body["rack_id"]
        if not rack or not self._broker.config.selects_replicas_by_rack:
            return None
        replica = self._broker.nearest_replica(partition, asked["fetch_offset"], rack)
        if replica is None:
            return None
        return _refused(partition.index, errors.NONE) | {
            "high_watermark": partition.high_watermark,
            "log_start_offset": partition.log.log_start_offset,
            "preferred_read_replica": replica,
        }

    def _results(
        self, responses: list[dict[str, Any]]
    ) -> Iterator[tuple[str, int, dict[str, Any]]]:
        for each in responses:
            topic = self._topics.by_id(each["topic_id"])
            name = each["topic"] if topic is None else topic.name
            for result in each["partitions"]:
                yield name, result["partition_index"], result

    def answer(self, response: dict[str, Any]) -> None:
        """Send what was read, within a session without what the client knows already."""
        session = self._session
        if session is not None:
            news = session.leave_out_known(response["responses"])
            response["session_id"] = session.session_id
            if self._is_incremental:
                response["responses"] = news
        self._request.reply(response)

    def wait(self, missing: int) -> None:
        """Park until `missing` more bytes are there or the client's time is up."""
        self._missing = missing
        for partition in self._partitions:
            partition.fetches.add(self)
        self._request.on_close = self._leave
        self._timer = asyncio.get_running_loop().call_later(
            self._request.body["max_wait_ms"] / 1000, self._finish
        )

    def grew(self, size: int) -> None:
        """See FetchWaiter."""
        self._missing -= size
        if self._missing <= 0 and self._waking is None:
            # One flush makes records of several partitions visible: one answer has them all.
            self._waking = asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        self._waking = None
        response, total, final = self.read()
        wanted = self._request.body["min_bytes"]
        if final or total >= wanted:
            self._leave()
            self.answer(response)
        else:
            self._missing = wanted - total

    def gone(self) -> None:
        """See FetchWaiter."""
        self._finish()

    def _finish(self) -> None:
        self._leave()
        self.answer(self.read()[0])

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._waking is not None:
            self._waking.cancel()
        for partition in self._partitions:
            partition.fetches.discard(self)


def _refused(index: int, code: int) -> dict[str, Any]:
    return {
        "partition_index": index,
        "error_code": code,
        "high_watermark": -1,
        "records": b"",
    }


def _read(
    partition: Partition,
    asked: dict[str, Any],
    left: int,
    *,
    first: bool,
    committed: bool,
    unread: bool,
    version: int,
) -> dict[str, Any]:
    index = partition.index
    last_stable_offset = partition.log.last_stable_offset
    aborted: list[dict[str, int]] | None = None
    try:
        partition.check_leader_epoch(asked["current_leader_epoch"])
        partition.check_is_readable(from_follower=version >= _FROM_FOLLOWERS_FROM)
    except errors.BrokerError as error:
        return _refused(index, error.code)
    records: bytes | FileSlice = b""
    code = errors.NONE
    bytes_max = min(asked["partition_max_bytes"], left)
    try:
        if first or bytes_max > 0:
            # The first batch is given even when it is larger than allowed, or a consumer with a
            # small buffer would never get past it (KIP-74).
            offset = asked["fetch_offset"]
            bytes_max = max(bytes_max, 0)
            up_to_offset = last_stable_offset if committed else partition.high_watermark
            sliced = partition.slice(offset, bytes_max, up_to_offset) if unread else None
            transactions: list[AbortedTransaction] = []
            if sliced is not None:
                records, transactions = sliced
            elif committed:
                records, transactions = partition.read_committed(
                    offset, bytes_max, min_one_message=first
                )
            else:
                records = partition.read(offset, bytes_max, min_one_message=first)
            if committed:
                aborted = [
                    {"producer_id": each.producer_id, "first_offset": each.first_offset}
                    for each in transactions
                ]
    except errors.OffsetOutOfRange as error:
        code = error.code
    except errors.BrokerError as error:
        logger.error("%s cannot be read: %s", partition, error)
        code = error.code
    return {
        "partition_index": index,
        "error_code": code,
        "high_watermark": partition.high_watermark,
        "last_stable_offset": last_stable_offset,
        "log_start_offset": partition.log.log_start_offset,
        "aborted_transactions": aborted,
        "records": records,
    }
