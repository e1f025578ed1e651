"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit, WriteTxnMarkers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from broker_core import errors
from broker_core.coordinator.effects import Codes
from broker_core.coordinator.offsets import OffsetToCommit
from broker_core.coordinator.transaction import EPOCH_PER_TRANSACTION, Place, Producer
from broker_core.protocol.control_records import EndMarker
from broker_core.server.cluster.producer_id_blocks import ProducerIdBlocks
from broker_core.server.coordination.transactions import PendingMarkers, Transactions
from broker_core.server.handlers.groups.group_offsets import codes_by_topic
from broker_core.server.handlers.groups.group_parts import GroupParts
from broker_core.server.network.request import AnyRequest, Request

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AddOffsetsToTxnRequest,
        AddOffsetsToTxnResponse,
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnRequestTransaction,
        AddPartitionsToTxnResponse,
        AddPartitionsToTxnResponseResultsByPartition,
        AddPartitionsToTxnResponseResultsByTransaction,
        AddPartitionsToTxnResponseTopicResult,
        EndTxnRequest,
        EndTxnResponse,
        InitProducerIdRequest,
        InitProducerIdResponse,
        TxnOffsetCommitRequest,
        TxnOffsetCommitResponse,
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
        WriteTxnMarkersResponseMarker,
    )

    _OfProducer = (
        AddPartitionsToTxnRequestTransaction
        | AddOffsetsToTxnRequest
        | EndTxnRequest
        | TxnOffsetCommitRequest
    )
    _AddedTopic = AddPartitionsToTxnResponseTopicResult


#: Versions from which clients know ProducerFenced; older ones get InvalidProducerEpoch (KIP-588).
_FENCED_FROM: Final = {22: 4, 24: 2, 25: 2, 26: 2, 28: 10_000}
#: Versions from which clients know TransactionAbortable (KIP-890).
_ABORTABLE_FROM: Final = {24: 5, 25: 4, 26: 4, 28: 4}
_TRANSACTIONS_IN_BATCHES_FROM: Final = 4
_EPOCH_PER_TRANSACTION_FROM: Final = 5
_MEMBER_ERRORS_FROM: Final = 3


class TransactionParts(GroupParts, Protocol):
    """The parts of a broker that transactions are made of: producers, partitions, offsets."""

    transactions: Transactions
    producer_ids: ProducerIdBlocks


def _code(request: AnyRequest, code: int) -> int:
    """Return the error code as the client's version of the API knows it."""
    key = request.header.api.key
    if code == errors.ProducerFenced.code and request.version < _FENCED_FROM[key]:
        return errors.InvalidProducerEpoch.code
    if code == errors.TransactionAbortable.code and request.version < _ABORTABLE_FROM[key]:
        return errors.InvalidTxnState.code
    return code


def _producer(body: _OfProducer) -> Producer:
    return Producer(body["transactional_id"], body["producer_id"], body["producer_epoch"])


def handle_init_producer_id(
    broker: TransactionParts, request: Request[InitProducerIdRequest, InitProducerIdResponse]
) -> None:
    """Answer InitProducerId: a new id, or a transactional producer's next epoch."""
    body = request.body
    transactional_id = body["transactional_id"]
    if transactional_id is None:
        _reply_new_id(broker.producer_ids, request)
        return
    expected = (body["producer_id"], body["producer_epoch"])
    if (expected[0] < 0) != (expected[1] < 0):
        request.reply({"error_code": errors.InvalidRequest.code, "producer_epoch": -1})
        return

    def answer(result: EndTxnResponse) -> None:
        request.reply(
            {
                "error_code": _code(request, result["error_code"]),
                "producer_id": result["producer_id"],
                "producer_epoch": result["producer_epoch"],
            }
        )

    transactions = broker.transactions
    transactions.coordinator.init_producer_id(
        transactional_id,
        body["transaction_timeout_ms"],
        expected if expected[0] >= 0 else None,
        answer,
        transactions.moment(),
    )
    transactions.perform()


def _reply_new_id(
    producer_ids: ProducerIdBlocks, request: Request[InitProducerIdRequest, InitProducerIdResponse]
) -> None:
    try:
        producer_id = producer_ids.next_id()
    except errors.BrokerError as error:
        request.reply({"error_code": error.code, "producer_epoch": -1})
        return
    # As in Kafka, a producer that asks for a new epoch of its id gets a new id with epoch 0.
    request.reply({"producer_id": producer_id, "producer_epoch": 0})


def handle_add_partitions(
    broker: TransactionParts,
    request: Request[AddPartitionsToTxnRequest, AddPartitionsToTxnResponse],
) -> None:
    """Answer AddPartitionsToTxn, which from version 4 on only brokers send, in batches."""
    body = request.body
    if request.version < _TRANSACTIONS_IN_BATCHES_FROM:
        asked: AddPartitionsToTxnRequestTransaction = {
            "transactional_id": body["v3_and_below_transactional_id"],
            "producer_id": body["v3_and_below_producer_id"],
            "producer_epoch": body["v3_and_below_producer_epoch"],
            "topics": body["v3_and_below_topics"],
            "verify_only": False,
        }
        _add_partitions(
            broker,
            request,
            asked,
            lambda results: request.reply({"results_by_topic_v3_and_below": results}),
        )
        return
    results: list[AddPartitionsToTxnResponseResultsByTransaction] = []
    count = len(body["transactions"])
    if not count:
        request.reply({"results_by_transaction": []})

    def collect(transactional_id: str) -> Callable[[list[_AddedTopic]], None]:
        def done(topics: list[_AddedTopic]) -> None:
            results.append({"transactional_id": transactional_id, "topic_results": topics})
            if len(results) == count:
                request.reply({"results_by_transaction": results})

        return done

    for asked in body["transactions"]:
        _add_partitions(broker, request, asked, collect(asked["transactional_id"]))


def _add_partitions(
    broker: TransactionParts,
    request: AnyRequest,
    asked: AddPartitionsToTxnRequestTransaction,
    done: Callable[[list[_AddedTopic]], None],
) -> None:
    places = [(topic["name"], each) for topic in asked["topics"] for each in topic["partitions"]]
    producer = _producer(asked)
    coordinator = broker.transactions.coordinator
    missing = {place for place in places if not broker.topics.has_partition(*place)}
    if missing:
        codes = {
            place: errors.UnknownTopicOrPartition.code
            if place in missing
            else errors.OperationNotAttempted.code
            for place in places
        }
        done(_partition_results(codes))
        return
    if asked["verify_only"]:
        codes = {place: _code(request, coordinator.verify(producer, place)) for place in places}
        done(_partition_results(codes))
        return

    def answer(result: EndTxnResponse) -> None:
        code = _code(request, result["error_code"])
        done(_partition_results(dict.fromkeys(places, code)))

    coordinator.add_partitions(producer, places, answer, broker.transactions.moment())
    broker.transactions.perform()


def _partition_results(codes: dict[Place, int]) -> list[_AddedTopic]:
    topics: dict[str, list[AddPartitionsToTxnResponseResultsByPartition]] = {}
    for (topic, partition), code in codes.items():
        topics.setdefault(topic, []).append(
            {"partition_index": partition, "partition_error_code": code}
        )
    return [{"name": name, "results_by_partition": results} for name, results in topics.items()]


def handle_add_offsets(
    broker: TransactionParts, request: Request[AddOffsetsToTxnRequest, AddOffsetsToTxnResponse]
) -> None:
    """Answer AddOffsetsToTxn: add the partition of a group's offsets to the transaction."""
    body = request.body

    def answer(result: EndTxnResponse) -> None:
        request.reply({"error_code": _code(request, result["error_code"])})

    try:
        place = broker.groups.place_of(body["group_id"])
    except errors.CoordinatorNotAvailable as error:
        answer({"error_code": error.code})
        return

    transactions = broker.transactions
    transactions.coordinator.add_partitions(_producer(body), [place], answer, transactions.moment())
    transactions.perform()


def handle_end(transactions: Transactions, request: Request[EndTxnRequest, EndTxnResponse]) -> None:
    """Answer an EndTxn request."""
    body = request.body
    version = EPOCH_PER_TRANSACTION if request.version >= _EPOCH_PER_TRANSACTION_FROM else 0

    def answer(result: EndTxnResponse) -> None:
        request.reply({**result, "error_code": _code(request, result["error_code"])})

    transactions.coordinator.end_transaction(
        _producer(body), body["committed"], version, answer, transactions.moment()
    )
    transactions.perform()


def handle_offset_commit(
    broker: TransactionParts, request: Request[TxnOffsetCommitRequest, TxnOffsetCommitResponse]
) -> None:
    """Answer TxnOffsetCommit: offsets that take effect if the transaction commits."""
    body = request.body
    producer = _producer(body)
    offsets = [
        OffsetToCommit(
            topic["name"],
            each["partition_index"],
            each["committed_offset"],
            each["committed_leader_epoch"],
            each["committed_metadata"] or "",
            errors.NONE
            if broker.topics.has_partition(topic["name"], each["partition_index"])
            else errors.UnknownTopicOrPartition.code,
        )
        for topic in body["topics"]
        for each in topic["partitions"]
    ]
    places = [(each.topic, each.partition) for each in offsets]
    member = (body["member_id"], body["group_instance_id"], body["generation_id"])
    group_id = body["group_id"]

    def answer(result: Codes) -> None:
        codes = {each: _member_code(request, code) for each, code in result["codes"].items()}
        request.reply({"topics": codes_by_topic(codes)})

    def decided(code: int) -> None:
        request.release()
        commit(code)

    def commit(code: int) -> None:
        if code:
            if code == errors.ProducerFenced.code:
                code = errors.InvalidProducerEpoch.code
            answer(Codes(error_code=code, codes=dict.fromkeys(places, code)))
            return
        groups = broker.groups
        groups.coordinator.commit_transactional_offsets(
            group_id,
            member,
            (producer.producer_id, producer.epoch),
            offsets,
            answer,
            groups.moment(),
        )
        groups.perform()

    partition = broker.topics.partition(*broker.groups.place_of(body["group_id"]))
    if partition is None:
        commit(errors.CoordinatorNotAvailable.code)
        return
    # Offsets that the client commits behind them would be replaced by these.
    request.hold()
    broker.transactions.admit(
        producer,
        partition,
        # For later clients the broker adds the partition to the transaction.
        verify_only=request.version < _EPOCH_PER_TRANSACTION_FROM,
        decided=decided,
    )


def _member_code(request: AnyRequest, code: int) -> int:
    if request.version >= _MEMBER_ERRORS_FROM:
        return _code(request, code)
    if code in {
        errors.IllegalGeneration.code,
        errors.UnknownMemberId.code,
        errors.FencedInstanceId.code,
    }:
        return errors.InvalidRequest.code
    return _code(request, code)


def handle_write_markers(
    transactions: Transactions, request: Request[WriteTxnMarkersRequest, WriteTxnMarkersResponse]
) -> None:
    """Answer WriteTxnMarkers: a coordinator or an administrator ends transactions."""
    markers = request.body["markers"]
    results: list[WriteTxnMarkersResponseMarker] = []
    if not markers:
        request.reply({"markers": []})

    def collect(producer_id: int) -> Callable[[dict[Place, int]], None]:
        def done(codes: dict[Place, int]) -> None:
            results.append({"producer_id": producer_id, "topics": codes_by_topic(codes)})
            if len(results) == len(markers):
                request.reply({"markers": results})

        return done

    for asked in markers:
        transactions.write_markers(
            [
                (topic["name"], partition)
                for topic in asked["topics"]
                for partition in topic["partition_indexes"]
            ],
            (asked["producer_id"], asked["producer_epoch"]),
            EndMarker(asked["transaction_result"], asked["coordinator_epoch"]),
            PendingMarkers(collect(asked["producer_id"])),
        )
