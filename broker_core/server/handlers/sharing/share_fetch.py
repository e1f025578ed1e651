"""ShareFetch: members of a share group get records, and acknowledge earlier ones (KIP-932)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from broker_core import errors
from broker_core.coordinator.sharing.share_partition import LogBatch
from broker_core.coordinator.sharing.share_records import SharePartitionKey
from broker_core.log.aborted_transactions import AbortedTransaction
from broker_core.protocol.batch_header import BatchHeader
from broker_core.protocol.stored_batches import scan_batches
from broker_core.server.handlers.sharing.share_acknowledge import (
    NO_LEADER,
    Acknowledgements,
    AcknowledgeParts,
    by_name,
    by_topic,
    find_partition,
    lock_ms,
    member_of,
)
from broker_core.server.network.request import Request, client_party
from broker_core.server.network.request_turns import NextTurn, RequestTurns
from broker_core.server.partitions.partition import Partition
from broker_core.server.sharing.share_sessions import CLOSES, Place, ShareSession, is_opening

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        ShareFetchRequest,
        ShareFetchResponse,
        ShareFetchResponsePartition,
    )

logger = logging.getLogger(__name__)

_RECORD_LIMIT: Final = 1  # the acquire mode that never returns more records than requested
#: Reads of a partition without acquired records, after which it waits for the next request.
_READS_MAX: Final = 16
_READ_BYTES: Final = 1024 * 1024
_NOTHING: Final[ShareFetchResponsePartition] = {
    "current_leader": NO_LEADER,
    "error_code": errors.NONE,
    "error_message": None,
    "acknowledge_error_message": None,
    "records": b"",
}


class ShareFetchParts(AcknowledgeParts, Protocol):
    """The parts of a broker that serve records to members of share groups."""

    node_id: int
    #: Turns in which fetches go on that have waited.
    fetch_turns: RequestTurns


def _has_acknowledgements(body: ShareFetchRequest) -> bool:
    return any(
        each["acknowledgement_batches"] for topic in body["topics"] for each in topic["partitions"]
    )


def handle(
    broker: ShareFetchParts, request: Request[ShareFetchRequest, ShareFetchResponse]
) -> None:
    """Answer a ShareFetch request, now or later."""
    body = request.body
    groups = broker.share_partitions
    epoch = body["share_session_epoch"]
    try:
        member = member_of(body)
        if is_opening(epoch):
            if _has_acknowledgements(body):
                raise errors.InvalidRequest("A new share session has nothing to acknowledge.")
            old = groups.sessions.find(*member)
            if old is not None:
                groups.release(old)
            session = groups.sessions.open(*member)
            request.when_lost(lambda: groups.release(session))
        else:
            session = groups.sessions.go_on(*member, epoch)
    except errors.BrokerError as error:
        request.reply({"error_code": error.code, "error_message": str(error)})
        return
    if epoch != CLOSES:
        session.update(body["topics"], body["forgotten_topics_data"])
    fetch = _ShareFetch(broker, request, session)
    fetch.answers.take(fetch.acknowledged)
    if epoch == CLOSES:
        groups.release(session)
    fetch.begin()


class _ShareFetch:
    """One ShareFetch; while it waits, a FetchWaiter and AvailabilityWaiter of its partitions."""

    def __init__(
        self,
        broker: ShareFetchParts,
        request: Request[ShareFetchRequest, ShareFetchResponse],
        session: ShareSession,
    ) -> None:
        self.answers = Acknowledgements(broker, request, session)
        self._broker = broker
        self._request = request
        self._session = session
        self._results: dict[Place, ShareFetchResponsePartition] = {}
        self._partitions: dict[Place, Partition] = {}
        self._is_acknowledged = False
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None
        party = client_party(request.principal, request.host)
        self._next_turn = NextTurn(
            *(broker.fetch_turns, party), partial(request.run, self._take_turn)
        )
        # True when it is answered at its next turn, whatever there is.
        self._is_late = False

    @property
    def _wants_records(self) -> bool:
        body = self._request.body
        return (
            body["share_session_epoch"] != CLOSES
            and body["max_records"] > 0
            and body["max_bytes"] > 0
            and not body["is_renew_ack"]
        )

    def acknowledged(self) -> None:
        """Take note that the request's acknowledgements are durable."""
        self._is_acknowledged = True
        self._answer_if_over()

    def begin(self) -> None:
        """Acquire records, and wait if there are none."""
        body = self._request.body
        is_found = self._wants_records and self._acquire()
        # Records, errors and the results of acknowledgements are returned without waiting.
        if is_found or not self._wants_records or body["max_wait_ms"] <= 0 or self._results:
            self._finish()
            return
        if self.answers.problems:
            self._finish()
            return
        for place, partition in self._partitions.items():
            partition.fetches.add(self)
            self._broker.share_partitions.wait(
                SharePartitionKey(self._session.group_id, *place), self
            )
        self._request.on_close = self._leave
        self._timer = asyncio.get_running_loop().call_later(
            body["max_wait_ms"] / 1000, self._request.run, self.gone
        )

    def grew(self, size: int) -> None:
        """See FetchWaiter."""
        self.available()

    def available(self) -> None:
        """See AvailabilityWaiter."""
        self._next_turn.ask()

    def gone(self) -> None:
        """See FetchWaiter; the same when the client's time is up."""
        self._is_late = True
        self.available()

    def _take_turn(self) -> None:
        if self._is_late or self._acquire() or self._results:
            self._finish()

    def _finish(self) -> None:
        self._leave()
        self._is_over = True
        self._answer_if_over()

    def _leave(self) -> None:
        self._next_turn.cancel()
        if self._timer is not None:
            self._timer.cancel()
        for place, partition in self._partitions.items():
            partition.fetches.discard(self)
            self._broker.share_partitions.stop_waiting(
                SharePartitionKey(self._session.group_id, *place), self
            )

    # ---------------------------------------------------------------------------------- acquiring

    def _acquire(self) -> bool:
        """Acquire available records; return whether there were any."""
        left_records = self._request.body["max_records"]
        left_bytes = self._request.body["max_bytes"]
        session = self._session
        for place in session.places():
            if left_records <= 0 or left_bytes <= 0:
                break
            try:
                partition = find_partition(self._broker, self._request, place)
                self._partitions[place] = partition
                records, acquired = self._acquire_from(place, partition, left_records, left_bytes)
            except errors.BrokerError as error:
                self._results[place] = {
                    "partition_index": place[1],
                    "error_code": error.code,
                    "error_message": str(error),
                }
                continue
            if not acquired:
                continue
            left_bytes -= len(records)
            left_records -= sum(each.last_offset - each.first_offset + 1 for each in acquired)
            session.served(place)
            if is_opening(self._request.body["share_session_epoch"]):
                # A new session takes one partition, and leaves the others to members that join at
                # the same time. In Kafka partitions become ready one by one, with the same effect.
                left_records = 0
            self._results[place] = {
                "partition_index": place[1],
                "current_leader": {
                    "leader_id": self._broker.node_id,
                    "leader_epoch": partition.leader_epoch,
                },
                "records": records,
                "acquired_records": [each._asdict() for each in acquired],
            }
        return any("acquired_records" in each for each in self._results.values())

    def _acquire_from(
        self, place: Place, partition: Partition, records_max: int, bytes_max: int
    ) -> tuple[bytes, list[Any]]:
        groups = self._broker.share_partitions
        session = self._session
        share_place = SharePartitionKey(session.group_id, *place)
        share = groups.share(share_place, partition)
        if share is None:
            return b"", []
        before, start = -1, share.start_offset
        for _ in range(_READS_MAX):
            share.begin_at(partition.log.log_start_offset)
            offset = share.next_offset()
            if offset is None or offset == before or offset >= partition.high_watermark:
                break
            before = offset
            data, headers, batches = self._read(partition, offset, min(bytes_max, _READ_BYTES))
            acquired = share.acquire(
                session.member_id,
                batches,
                records_max,
                groups.now_ms(),
                is_strict=self._request.body["share_acquire_mode"] == _RECORD_LIMIT,
            )
            if acquired:
                groups.locked(share_place)
                first, last = acquired[0].first_offset, acquired[-1].last_offset
                wanted = [
                    header
                    for header in headers
                    if header.last_offset >= first and header.base_offset <= last
                ]
                return data[wanted[0].position : wanted[-1].position + wanted[-1].size], acquired
        if share.start_offset != start:
            # Nobody will acknowledge what has been passed over, and it is no lag.
            groups.passed_over(share_place)
        return b"", []

    def _read(
        self, partition: Partition, offset: int, bytes_max: int
    ) -> tuple[bytes, list[BatchHeader], list[LogBatch]]:
        aborted: list[AbortedTransaction] = []
        up_to_offset = partition.high_watermark
        if self._broker.share_partitions.settings.reads_committed(self._session.group_id):
            up_to_offset = partition.log.last_stable_offset
            data, aborted = partition.read_committed(offset, bytes_max, min_one_message=True)
        else:
            data = partition.read(offset, bytes_max, min_one_message=True)
        if not data:
            data = partition.log.read_gap(offset, up_to_offset)
        headers, _, problem = scan_batches(data, check_crc=False)
        if problem is not None:
            raise errors.CorruptMessage(f"{partition}: {problem}")
        return data, headers, list(_visible(offset, headers, aborted))

    # ---------------------------------------------------------------------------------- answering

    def _answer_if_over(self) -> None:
        if not (self._is_over and self._is_acknowledged):
            return
        for place, problem in self.answers.problems.items():
            result = self._results.setdefault(place, {"partition_index": place[1]})
            result["acknowledge_error_code"] = problem.code
            result["acknowledge_error_message"] = problem.message
        results: dict[Place, ShareFetchResponsePartition] = {
            place: {**_NOTHING, **each} for place, each in self._results.items()
        }
        response: ShareFetchResponse = {
            "error_code": errors.NONE,
            "error_message": None,
            "acquisition_lock_timeout_ms": lock_ms(self._broker.share_partitions, self._session),
            "responses": [
                {"topic_id": topic_id, "partitions": partitions}
                for topic_id, partitions in by_topic(results).items()
            ],
        }
        named = by_name(self._broker.topics, results)
        self._broker.view.add_leaders(self._request, response, named)
        self._request.reply(response)


def _visible(
    offset: int, headers: list[BatchHeader], aborted: list[AbortedTransaction]
) -> Iterator[LogBatch]:
    """Yield all offsets from `offset` on, and whether members see them.

    They see neither markers nor aborted records, nor what is not there: offsets that compaction has
    taken or that are lost, between batches or as a batch without records.
    """
    waiting = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    producers: set[int] = set()
    for header in headers:
        while waiting and waiting[-1].first_offset <= header.last_offset:
            producers.add(waiting.pop().producer_id)
        is_visible = (
            header.record_count > 0
            and not header.is_control
            and not (header.is_transactional and header.producer_id in producers)
        )
        if header.is_control:
            producers.discard(header.producer_id)
        if offset < header.base_offset:
            yield LogBatch(offset, header.base_offset - 1, is_visible=False)
        yield LogBatch(header.base_offset, header.last_offset, is_visible)
        offset = header.last_offset + 1
