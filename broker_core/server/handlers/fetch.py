"""Fetch: reads whole batches, and waits until there are enough bytes or the time is up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from broker_core import errors
from broker_core.configuration.config import BrokerConfig
from broker_core.environment import FileSlice
from broker_core.log.aborted_transactions import AbortedTransaction
from broker_core.security.authorizer import Authorizer
from broker_core.server.authorization import may_read
from broker_core.server.cluster.replication import Replication
from broker_core.server.cluster.view import ClusterView
from broker_core.server.network.request import Request, client_party
from broker_core.server.network.request_turns import NextTurn, RequestTurns
from broker_core.server.partitions.fetch_sessions import FetchSession, FetchSessions
from broker_core.server.partitions.partition import Partition
from broker_core.server.partitions.replica_sessions import ReplicaSessions
from broker_core.server.partitions.topics import Topic, TopicRegistry

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        FetchRequest,
        FetchRequestPartition,
        FetchRequestTopic,
        FetchResponse,
        FetchResponseAbortedTransaction,
        FetchResponsePartition,
        FetchResponseResult,
    )

logger = logging.getLogger(__name__)

_TOPIC_IDS_FROM: Final = 13
_READ_COMMITTED: Final = 1
#: First version in which clients send their rack, and may read from followers (KIP-392).
_FROM_FOLLOWERS_FROM: Final = 11
#: A client that was answered less than this many seconds ago is answered at the end of them, unless
#: there are this many bytes. Where records keep coming one by one, this saves two thirds of the
#: responses and their cost to both sides. A client that has waited longer is answered at once.
_GATHER_S: Final = 0.002
_GATHER_BYTES: Final = 64 * 1024


class FetchParts(Protocol):
    """The parts of a broker that serve records to consumers and followers."""

    authorizer: Authorizer | None
    config: BrokerConfig
    topics: TopicRegistry
    fetch_sessions: FetchSessions
    replica_sessions: ReplicaSessions
    replication: Replication
    view: ClusterView
    #: Turns in which fetches go on that have waited: thousands may wait for the same partition.
    fetch_turns: RequestTurns


def handle(broker: FetchParts, request: Request[FetchRequest, FetchResponse]) -> None:
    """Answer a Fetch request, now or later."""
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
    missing = body["min_bytes"] - size
    if final or body["max_wait_ms"] <= 0 or (missing <= 0 and not fetch.may_gather(size)):
        fetch.answer(response)
    else:
        fetch.wait(missing)


def _replica(body: FetchRequest) -> tuple[int, int]:
    """Return (broker id, broker epoch) of a follower, (-1, -1) for a consumer."""
    state = body["replica_state"]
    if state is not None:
        return state["replica_id"], state["replica_epoch"]
    return body["replica_id"], -1


class _Place:
    """One partition of a request, and the result of its last read if that was empty."""

    __slots__ = ("asked", "code", "had_nothing_at", "index", "partition", "result")

    def __init__(self, topic: Topic | None, asked: FetchRequestPartition, code: int) -> None:
        self.asked = asked
        self.index: int = asked["partition"]
        #: Error code if the partition cannot be read.
        self.code = code
        self.partition: Partition | None = None
        #: High watermark and log start offset at which there was nothing to read.
        self.had_nothing_at: tuple[int, int] | None = None
        self.result: FetchResponsePartition = {}
        if topic is not None:
            try:
                self.partition = topic.partition(self.index)
            except errors.BrokerError as error:
                self.code = error.code


class _Fetch:
    """One Fetch request; while it waits, a FetchWaiter of each of its partitions."""

    #: There is one while the request waits.
    _next_turn: NextTurn

    __slots__ = (
        "_broker",
        "_bytes_max",
        "_is_incremental",
        "_is_late",
        "_loop",
        "_missing",
        "_next_turn",
        "_partitions",
        "_places",
        "_request",
        "_session",
        "_timer",
        "_topics",
        "_waits_at",
        "_waking",
        "_wanted",
    )

    def __init__(
        self,
        broker: FetchParts,
        request: Request[FetchRequest, FetchResponse],
        session: FetchSession | None,
        *,
        is_incremental: bool,
    ) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._request = request
        self._session = session
        self._is_incremental = is_incremental
        self._wanted: Sequence[FetchRequestTopic] = (
            list(session.wanted())
            if session is not None and is_incremental
            else request.body["topics"]
        )
        self._topics = broker.topics
        self._bytes_max = min(request.body["max_bytes"], broker.config.fetch_max_bytes)
        self._partitions: list[Partition] = []
        # Those at which it waits; a later read may find others.
        self._waits_at: list[Partition] = []
        self._places: list[tuple[FetchRequestTopic, Topic | None, list[_Place]]] = []
        self._missing = 0
        self._timer: asyncio.TimerHandle | None = None
        self._waking: asyncio.TimerHandle | None = None
        # True when it is answered at its next turn, whatever there is.
        self._is_late = False

    def read(self) -> tuple[FetchResponse, int, bool]:
        """Return (response, bytes of its records, whether it must be sent without waiting)."""
        if not self._places:
            self._find_places()
        self._partitions = []
        left = self._bytes_max
        size = 0
        final = False
        responses: list[FetchResponseResult] = []
        for each, topic, places in self._places:
            results: list[FetchResponsePartition] = []
            responses.append(
                {"topic": each["topic"], "topic_id": each["topic_id"], "partitions": results}
            )
            refused = (
                errors.NONE
                if topic is None or may_read(self._broker.authorizer, self._request, topic.name)
                else errors.TopicAuthorizationFailed.code
            )
            for place in places:
                partition = place.partition
                code = refused or place.code
                if code or partition is None:
                    results.append(_refused(place.index, code))
                    final = True
                    continue
                self._partitions.append(partition)
                elsewhere = self._preferred(partition, place.asked)
                if elsewhere is not None:
                    results.append(elsewhere)
                    final = True
                    continue
                result = self._read(place, partition, left, first=size == 0)
                results.append(result)
                if result["error_code"]:
                    final = True
                else:
                    length = len(result["records"] or b"")
                    size += length
                    left -= length
        response: FetchResponse = {"responses": responses}
        if final:
            self._broker.view.add_leaders(self._request, response, self._results(responses))
        return response, size, final or not self._partitions

    def _find_places(self) -> None:
        by_id = self._request.version >= _TOPIC_IDS_FROM
        for each in self._wanted:
            if by_id:
                topic = self._topics.by_id(each["topic_id"])
            else:
                topic = self._topics.get(each["topic"])
            code = errors.NONE
            if topic is None:
                code = (errors.UnknownTopicId if by_id else errors.UnknownTopicOrPartition).code
            places = [_Place(topic, asked, code) for asked in each["partitions"]]
            self._places.append((each, topic, places))

    def _read(
        self, place: _Place, partition: Partition, left: int, *, first: bool
    ) -> FetchResponsePartition:
        version = self._request.version
        try:
            partition.check_leader_epoch(place.asked["current_leader_epoch"])
            partition.check_is_readable(from_follower=version >= _FROM_FOLLOWERS_FROM)
        except errors.BrokerError as error:
            return _refused(place.index, error.code)
        seen = partition.high_watermark, partition.log.log_start_offset
        if place.had_nothing_at == seen:
            # The request has waited, and only another partition has something new.
            return place.result
        result = _read(
            partition,
            place.asked,
            left,
            first=first,
            committed=self._request.body["isolation_level"] == _READ_COMMITTED,
            unread=self._request.sends_files,
        )
        if not result["error_code"] and place.asked["fetch_offset"] >= seen[0]:
            place.had_nothing_at, place.result = seen, result
        return result

    def _preferred(
        self, partition: Partition, asked: FetchRequestPartition
    ) -> FetchResponsePartition | None:
        """Return a result that sends the client to a replica in its rack, or None (KIP-392)."""
        rack = self._request.body["rack_id"]
        if not rack or not self._broker.config.selects_replicas_by_rack:
            return None
        replica = self._broker.replication.nearest_replica(partition, asked["fetch_offset"], rack)
        if replica is None:
            return None
        return _refused(partition.index, errors.NONE) | {
            "high_watermark": partition.high_watermark,
            "log_start_offset": partition.log.log_start_offset,
            "preferred_read_replica": replica,
        }

    def _results(
        self, responses: list[FetchResponseResult]
    ) -> Iterator[tuple[str, int, FetchResponsePartition]]:
        for each in responses:
            topic = self._topics.by_id(each["topic_id"])
            name = each["topic"] if topic is None else topic.name
            for result in each["partitions"]:
                yield name, result["partition_index"], result

    def answer(self, response: FetchResponse) -> None:
        """Send what was read; within a session, leave out what the client knows already."""
        session = self._session
        if session is not None:
            news = session.leave_out_known(response["responses"])
            response["session_id"] = session.session_id
            if self._is_incremental:
                response["responses"] = news
        self._request.session.told_at = self._loop.time()
        self._request.reply(response)

    def may_gather(self, size: int) -> bool:
        """Tell whether the client was answered a moment ago, and there are few bytes for it."""
        return size < _GATHER_BYTES and self._loop.time() < self._due

    @property
    def _due(self) -> float:
        """Time from which the client may be answered again."""
        return self._request.session.told_at + _GATHER_S

    def wait(self, missing: int) -> None:
        """Wait until there are `missing` more bytes, or the client's time is up."""
        self._missing = missing
        party = client_party(self._request.principal, self._request.host)
        self._next_turn = NextTurn(
            *(self._broker.fetch_turns, party), partial(self._request.run, self._take_turn)
        )
        if missing <= 0:
            self._waking = self._loop.call_at(self._due, self._request.run, self._wake)
        self._waits_at = self._partitions
        for partition in self._waits_at:
            partition.fetches.add(self)
        self._request.on_close = self._leave
        wait_s = self._request.body["max_wait_ms"] / 1000
        self._timer = self._loop.call_later(wait_s, self._request.run, self._finish)

    def grew(self, size: int) -> None:
        """See FetchWaiter."""
        self._missing -= size
        if self._missing <= 0 and self._waking is None and not self._next_turn.is_due:
            # One flush makes records of several partitions visible, which go into one response.
            # Where records keep coming, those of a short while are gathered too.
            if self._loop.time() < self._due:
                self._waking = self._loop.call_at(self._due, self._request.run, self._wake)
            else:
                self._next_turn.ask()

    def gone(self) -> None:
        """See FetchWaiter."""
        self._places.clear()
        self._finish()

    def _finish(self) -> None:
        self._is_late = True
        self._next_turn.ask()

    def _wake(self) -> None:
        self._waking = None
        self._next_turn.take()

    def _take_turn(self) -> None:
        response, total, final = self.read()
        wanted = self._request.body["min_bytes"]
        if final or self._is_late or total >= wanted:
            self._leave()
            self.answer(response)
        else:
            self._missing = wanted - total

    def _leave(self) -> None:
        self._next_turn.cancel()
        if self._timer is not None:
            self._timer.cancel()
        if self._waking is not None:
            self._waking.cancel()
        for partition in self._waits_at:
            partition.fetches.discard(self)


def _refused(index: int, code: int) -> FetchResponsePartition:
    return {
        "partition_index": index,
        "error_code": code,
        "high_watermark": -1,
        "records": b"",
    }


def _read(
    partition: Partition,
    asked: FetchRequestPartition,
    left: int,
    *,
    first: bool,
    committed: bool,
    unread: bool,
) -> FetchResponsePartition:
    index = partition.index
    last_stable_offset = partition.log.last_stable_offset
    log_start_offset = partition.log.log_start_offset
    aborted: list[FetchResponseAbortedTransaction] | None = [] if committed else None
    records: bytes | FileSlice = b""
    code = errors.NONE
    bytes_max = min(asked["partition_max_bytes"], left)
    offset = asked["fetch_offset"]
    up_to_offset = last_stable_offset if committed else partition.high_watermark
    try:
        has_nothing_new = log_start_offset <= offset == up_to_offset
        # The first batch is returned even if it is larger than allowed; otherwise a consumer with a
        # small buffer would never get past it (KIP-74).
        if not has_nothing_new and (first or bytes_max > 0):
            bytes_max = max(bytes_max, 0)
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
            if not records:
                records = partition.log.read_gap(offset, up_to_offset)
            if committed:
                aborted = [
                    {"producer_id": each.producer_id, "first_offset": each.first_offset}
                    for each in transactions
                ]
    except (errors.OffsetOutOfRange, errors.CorruptMessage) as error:
        code = error.code  # the log has reported damage already
    except errors.BrokerError as error:
        logger.error("%s cannot be read: %s", partition, error)
        code = error.code
    return {
        "partition_index": index,
        "error_code": code,
        "high_watermark": partition.high_watermark,
        "last_stable_offset": last_stable_offset,
        "log_start_offset": log_start_offset,
        "aborted_transactions": aborted,
        "records": records,
    }
