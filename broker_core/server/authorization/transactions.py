"""Authorization rules of the APIs for transactions and their producers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from broker_core import errors
from broker_core.security.acl import Operation, ResourceType
from broker_core.server.authorization.groups import refused_topic
from broker_core.server.authorization.guard import Guard, split

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AddOffsetsToTxnRequest,
        AddOffsetsToTxnResponse,
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnRequestV3AndBelowTopic,
        AddPartitionsToTxnResponse,
        AddPartitionsToTxnResponseResultsByTopicV3AndBelow,
        DescribeTransactionsRequest,
        DescribeTransactionsResponse,
        DescribeTransactionsResponseTransactionState,
        EndTxnRequest,
        EndTxnResponse,
        InitProducerIdRequest,
        InitProducerIdResponse,
        ListTransactionsRequest,
        ListTransactionsResponse,
        OffsetCommitResponseTopic,
        TxnOffsetCommitRequest,
        TxnOffsetCommitRequestTopic,
        TxnOffsetCommitResponse,
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
    )

_TOPIC_REFUSED: Final = errors.TopicAuthorizationFailed.code
_GROUP_REFUSED: Final = errors.GroupAuthorizationFailed.code
_TRANSACTION_REFUSED: Final = errors.TransactionalIdAuthorizationFailed.code
_CLUSTER_REFUSED: Final = errors.ClusterAuthorizationFailed.code
_NOT_ATTEMPTED: Final = errors.OperationNotAttempted.code
_TRANSACTIONS_IN_BATCHES_FROM: Final = 4
_NO_ID: Final = bytes(16)


def init_producer_id(guard: Guard[InitProducerIdRequest, InitProducerIdResponse]) -> bool:
    """Require WRITE on the transactional id.

    Without one, require IDEMPOTENT_WRITE on the cluster or WRITE on any topic.
    """
    transactional_id = guard.body["transactional_id"]
    if transactional_id is not None:
        if guard.may_transact(Operation.WRITE, transactional_id):
            return True
        return guard.refuse(_no_producer(_TRANSACTION_REFUSED))
    if guard.may_cluster(Operation.IDEMPOTENT_WRITE) or guard.may_any(
        Operation.WRITE, ResourceType.TOPIC
    ):
        return True
    return guard.refuse(_no_producer(_CLUSTER_REFUSED))


def _no_producer(code: int) -> InitProducerIdResponse:
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}


def of_transaction(guard: Guard[EndTxnRequest, EndTxnResponse]) -> bool:
    """Require WRITE on the transactional id (EndTxn)."""
    if guard.may_transact(Operation.WRITE, guard.body["transactional_id"]):
        return True
    return guard.refuse({"error_code": _TRANSACTION_REFUSED})


def add_offsets_to_txn(guard: Guard[AddOffsetsToTxnRequest, AddOffsetsToTxnResponse]) -> bool:
    """Require WRITE on the transactional id, and READ on the group."""
    if not guard.may_transact(Operation.WRITE, guard.body["transactional_id"]):
        return guard.refuse({"error_code": _TRANSACTION_REFUSED})
    if not guard.may_group(Operation.READ, guard.body["group_id"]):
        return guard.refuse({"error_code": _GROUP_REFUSED})
    return True


def add_partitions_to_txn(
    guard: Guard[AddPartitionsToTxnRequest, AddPartitionsToTxnResponse],
) -> bool:
    """Require WRITE on the transactional id and on all topics; one refusal stops the others.

    From version 4 on, require CLUSTER_ACTION.
    """
    in_batches = guard.request.version >= _TRANSACTIONS_IN_BATCHES_FROM
    if not in_batches:
        refused = _refused_partitions(
            guard,
            guard.body["v3_and_below_transactional_id"],
            guard.body["v3_and_below_topics"],
        )
        if refused is None:
            return True
        return guard.refuse({"results_by_topic_v3_and_below": refused})
    if not guard.may_cluster(Operation.CLUSTER_ACTION):
        # Versions with several transactions are for brokers only.
        return guard.refuse({"error_code": _CLUSTER_REFUSED})
    return True


def _refused_partitions(
    guard: Guard[Any, Any],
    transactional_id: str,
    topics: Sequence[AddPartitionsToTxnRequestV3AndBelowTopic],
) -> list[AddPartitionsToTxnResponseResultsByTopicV3AndBelow] | None:
    if not guard.may_transact(Operation.WRITE, transactional_id):
        codes = {topic["name"]: _TRANSACTION_REFUSED for topic in topics}
    else:
        codes = {
            topic["name"]: _NOT_ATTEMPTED
            if guard.may_topic(Operation.WRITE, topic["name"])
            else _TOPIC_REFUSED
            for topic in topics
        }
        if set(codes.values()) <= {_NOT_ATTEMPTED}:
            return None
    return [
        {
            "name": topic["name"],
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": codes[topic["name"]]}
                for index in topic["partitions"]
            ],
        }
        for topic in topics
    ]


def txn_offset_commit(guard: Guard[TxnOffsetCommitRequest, TxnOffsetCommitResponse]) -> bool:
    """Require WRITE on the transactional id, and READ on the group and the topics."""
    body = guard.body

    def refusals(
        topics: Iterable[TxnOffsetCommitRequestTopic], code: int
    ) -> list[OffsetCommitResponseTopic]:
        return [
            refused_topic(
                topic["name"],
                _NO_ID,
                [each["partition_index"] for each in topic["partitions"]],
                code,
            )
            for topic in topics
        ]

    if not guard.may_transact(Operation.WRITE, body["transactional_id"]):
        return guard.refuse({"topics": refusals(body["topics"], _TRANSACTION_REFUSED)})
    if not guard.may_group(Operation.READ, body["group_id"]):
        return guard.refuse({"topics": refusals(body["topics"], _GROUP_REFUSED)})
    body["topics"], refused = split(
        body["topics"], lambda topic: guard.may_topic(Operation.READ, topic["name"])
    )
    answers = refusals(refused, _TOPIC_REFUSED)

    def amend(response: TxnOffsetCommitResponse) -> None:
        response["topics"] = [*response["topics"], *answers]

    if answers:
        guard.request.amend_with(amend)
    return True


def write_txn_markers(guard: Guard[WriteTxnMarkersRequest, WriteTxnMarkersResponse]) -> bool:
    """Require CLUSTER_ACTION (coordinators) or ALTER (administrators) on the cluster."""
    if guard.may_cluster(Operation.CLUSTER_ACTION) or guard.may_cluster(Operation.ALTER):
        return True
    return guard.refuse(
        {
            "markers": [
                {
                    "producer_id": marker["producer_id"],
                    "topics": [
                        {
                            "name": topic["name"],
                            "partitions": [
                                {"partition_index": index, "error_code": _CLUSTER_REFUSED}
                                for index in topic["partition_indexes"]
                            ],
                        }
                        for topic in marker["topics"]
                    ],
                }
                for marker in guard.body["markers"]
            ]
        }
    )


def describe_transactions(
    guard: Guard[DescribeTransactionsRequest, DescribeTransactionsResponse],
) -> bool:
    """Require DESCRIBE on each transactional id."""
    body = guard.body
    body["transactional_ids"], refused = split(
        body["transactional_ids"], lambda name: guard.may_transact(Operation.DESCRIBE, name)
    )
    answers: list[DescribeTransactionsResponseTransactionState] = [
        {"transactional_id": name, "error_code": _TRANSACTION_REFUSED, "topics": []}
        for name in refused
    ]

    def amend(response: DescribeTransactionsResponse) -> None:
        response["transaction_states"] = [*response["transaction_states"], *answers]

    if answers:
        guard.request.amend_with(amend)
    return True


def list_transactions(guard: Guard[ListTransactionsRequest, ListTransactionsResponse]) -> bool:
    """List the transactions for whose transactional id DESCRIBE is permitted."""

    def amend(response: ListTransactionsResponse) -> None:
        response["transaction_states"] = [
            each
            for each in response.get("transaction_states", ())
            if guard.may_transact(Operation.DESCRIBE, each["transactional_id"])
        ]

    guard.request.amend_with(amend)
    return True
