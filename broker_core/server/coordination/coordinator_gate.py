"""Refuses requests for groups and transactions that this broker does not coordinate.

The refusals are those of the protocol. They also apply while a coordinator is still loading. They
are made before a handler sees the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

from broker_core import errors
from broker_core.protocol import definitions as api
from broker_core.server.coordination.groups import Groups
from broker_core.server.coordination.transactions import Transactions
from broker_core.server.network.request import AnyRequest, Request

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnRequestTopic,
        AddPartitionsToTxnRequestTransaction,
        AddPartitionsToTxnResponse,
        AddPartitionsToTxnResponseResultsByTransaction,
        AddPartitionsToTxnResponseTopicResult,
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsResponse,
        DescribeShareGroupOffsetsResponseGroup,
        DescribeTransactionsRequest,
        DescribeTransactionsResponse,
        DescribeTransactionsResponseTransactionState,
        InitProducerIdRequest,
        InitProducerIdResponse,
        ListGroupsRequest,
        ListGroupsResponse,
        ListTransactionsRequest,
        ListTransactionsResponse,
        OffsetCommitRequest,
        OffsetCommitResponse,
        OffsetDeleteRequest,
        OffsetDeleteResponse,
        OffsetFetchRequest,
        OffsetFetchResponse,
        OffsetFetchResponseGroup,
        TxnOffsetCommitRequest,
        TxnOffsetCommitResponse,
    )


class Coordinators(Protocol):
    """The coordinators of a broker: of its groups, and of its transactions."""

    groups: Groups
    transactions: Transactions


#: Returns whether the handler is to be called; if not, the request is answered already.
Gate = Callable[[Coordinators, AnyRequest], bool]

_TRANSACTIONS_IN_BATCHES_FROM: Final = 4
_GROUPS_IN_BATCHES_FROM: Final = 8


def _of_group(coordinators: Coordinators, request: AnyRequest) -> bool:
    code = coordinators.groups.shards.refusal(request.body["group_id"])
    if code:
        request.reply({"error_code": code})
    return not code


def _offset_commit(
    coordinators: Coordinators, request: Request[OffsetCommitRequest, OffsetCommitResponse]
) -> bool:
    code = coordinators.groups.shards.refusal(request.body["group_id"])
    if code:
        request.reply(
            {
                "topics": [
                    {
                        "name": topic["name"],
                        "topic_id": topic["topic_id"],
                        "partitions": [
                            {"partition_index": each["partition_index"], "error_code": code}
                            for each in topic["partitions"]
                        ],
                    }
                    for topic in request.body["topics"]
                ]
            }
        )
    return not code


def _txn_offset_commit(
    coordinators: Coordinators, request: Request[TxnOffsetCommitRequest, TxnOffsetCommitResponse]
) -> bool:
    code = coordinators.groups.shards.refusal(request.body["group_id"])
    if code:
        request.reply(
            {
                "topics": [
                    {
                        "name": topic["name"],
                        "partitions": [
                            {"partition_index": each["partition_index"], "error_code": code}
                            for each in topic["partitions"]
                        ],
                    }
                    for topic in request.body["topics"]
                ]
            }
        )
    return not code


def _offset_fetch(
    coordinators: Coordinators, request: Request[OffsetFetchRequest, OffsetFetchResponse]
) -> bool:
    body, refusal = request.body, coordinators.groups.shards.refusal
    if request.version < _GROUPS_IN_BATCHES_FROM:
        code = refusal(body["group_id"])
        if code:
            request.reply({"error_code": code, "topics": []})
        return not code
    codes = {group["group_id"]: refusal(group["group_id"]) for group in body["groups"]}
    body["groups"] = [group for group in body["groups"] if not codes[group["group_id"]]]
    refused: list[OffsetFetchResponseGroup] = [
        {"group_id": name, "topics": [], "error_code": code} for name, code in codes.items() if code
    ]

    def amend(response: OffsetFetchResponse) -> None:
        response["groups"] = [*response["groups"], *refused]

    if refused:
        request.amend_with(amend)
    return True


def _offset_delete(
    coordinators: Coordinators, request: Request[OffsetDeleteRequest, OffsetDeleteResponse]
) -> bool:
    code = coordinators.groups.shards.refusal(request.body["group_id"])
    if code:
        request.reply({"error_code": code, "topics": []})
    return not code


def _each_group(names: str, answers: str, **more: Any) -> Gate:
    """Return a gate that refuses single names of a list; `answers` is the response's list."""

    def gate(coordinators: Coordinators, request: AnyRequest) -> bool:
        codes = {name: coordinators.groups.shards.refusal(name) for name in request.body[names]}
        request.body[names] = [name for name in request.body[names] if not codes[name]]
        refused = [
            {"group_id": name, "error_code": code} | more for name, code in codes.items() if code
        ]

        def amend(response: Any) -> None:
            response[answers] = [*response.get(answers, ()), *refused]

        if refused:
            request.amend_with(amend)
        return True

    return gate


def _list_groups(
    coordinators: Coordinators, request: Request[ListGroupsRequest, ListGroupsResponse]
) -> bool:
    if coordinators.groups.shards.is_loading:
        request.reply({"error_code": errors.CoordinatorLoadInProgress.code, "groups": []})
        return False
    return True


def _init_producer_id(
    coordinators: Coordinators, request: Request[InitProducerIdRequest, InitProducerIdResponse]
) -> bool:
    transactional_id = request.body["transactional_id"]
    if not transactional_id:
        return True
    return _of_transaction(coordinators, request)


def _of_transaction(coordinators: Coordinators, request: AnyRequest) -> bool:
    code = coordinators.transactions.shards.refusal(request.body["transactional_id"])
    if code:
        request.reply({"error_code": code, "producer_id": -1, "producer_epoch": -1})
    return not code


def _add_partitions(
    coordinators: Coordinators,
    request: Request[AddPartitionsToTxnRequest, AddPartitionsToTxnResponse],
) -> bool:
    body, refusal = request.body, coordinators.transactions.shards.refusal
    if request.version < _TRANSACTIONS_IN_BATCHES_FROM:
        code = refusal(body["v3_and_below_transactional_id"])
        if code:
            refused = _refused_partitions(body["v3_and_below_topics"], code)
            request.reply({"results_by_topic_v3_and_below": refused})
        return not code
    kept: list[AddPartitionsToTxnRequestTransaction] = []
    refusals: list[AddPartitionsToTxnResponseResultsByTransaction] = []
    for each in body["transactions"]:
        code = refusal(each["transactional_id"])
        if code:
            refusals.append(
                {
                    "transactional_id": each["transactional_id"],
                    "topic_results": _refused_partitions(each["topics"], code),
                }
            )
        else:
            kept.append(each)
    body["transactions"] = kept

    def amend(response: AddPartitionsToTxnResponse) -> None:
        response["results_by_transaction"] = [*response["results_by_transaction"], *refusals]

    if refusals:
        request.amend_with(amend)
    return True


def _refused_partitions(
    topics: Iterable[AddPartitionsToTxnRequestTopic], code: int
) -> list[AddPartitionsToTxnResponseTopicResult]:
    return [
        {
            "name": topic["name"],
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": code}
                for index in topic["partitions"]
            ],
        }
        for topic in topics
    ]


def _describe_transactions(
    coordinators: Coordinators,
    request: Request[DescribeTransactionsRequest, DescribeTransactionsResponse],
) -> bool:
    body, refusal = request.body, coordinators.transactions.shards.refusal
    codes = {name: refusal(name) if name else 0 for name in body["transactional_ids"]}
    body["transactional_ids"] = [each for each in body["transactional_ids"] if not codes[each]]
    refused: list[DescribeTransactionsResponseTransactionState] = [
        {"transactional_id": name, "error_code": code, "topics": []}
        for name, code in codes.items()
        if code
    ]

    def amend(response: DescribeTransactionsResponse) -> None:
        response["transaction_states"] = [*response["transaction_states"], *refused]

    if refused:
        request.amend_with(amend)
    return True


def _list_transactions(
    coordinators: Coordinators, request: Request[ListTransactionsRequest, ListTransactionsResponse]
) -> bool:
    if coordinators.transactions.shards.is_loading:
        request.reply({"error_code": errors.CoordinatorLoadInProgress.code})
        return False
    return True


def _share_offsets(
    coordinators: Coordinators,
    request: Request[DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse],
) -> bool:
    body, refusal = request.body, coordinators.groups.shards.refusal
    codes = {group["group_id"]: refusal(group["group_id"]) for group in body["groups"]}
    body["groups"] = [group for group in body["groups"] if not codes[group["group_id"]]]
    refused: list[DescribeShareGroupOffsetsResponseGroup] = [
        {"group_id": name, "error_code": code, "topics": []} for name, code in codes.items() if code
    ]

    def amend(response: DescribeShareGroupOffsetsResponse) -> None:
        response["groups"] = [*response["groups"], *refused]

    if refused:
        request.amend_with(amend)
    return True


def _of_share_group(coordinators: Coordinators, request: AnyRequest) -> bool:
    code = coordinators.groups.shards.refusal(request.body["group_id"])
    if code:
        request.reply({"error_code": code, "responses": []})
    return not code


_GATES: Final[dict[int, Gate]] = {
    api.SHARE_GROUP_HEARTBEAT.key: _of_group,
    api.SHARE_GROUP_DESCRIBE.key: _each_group("group_ids", "groups", members=[]),
    api.DESCRIBE_SHARE_GROUP_OFFSETS.key: _share_offsets,
    api.ALTER_SHARE_GROUP_OFFSETS.key: _of_share_group,
    api.DELETE_SHARE_GROUP_OFFSETS.key: _of_share_group,
    api.OFFSET_COMMIT.key: _offset_commit,
    api.OFFSET_FETCH.key: _offset_fetch,
    api.JOIN_GROUP.key: _of_group,
    api.HEARTBEAT.key: _of_group,
    api.LEAVE_GROUP.key: _of_group,
    api.SYNC_GROUP.key: _of_group,
    api.DESCRIBE_GROUPS.key: _each_group("groups", "groups", members=[]),
    api.LIST_GROUPS.key: _list_groups,
    api.INIT_PRODUCER_ID.key: _init_producer_id,
    api.ADD_PARTITIONS_TO_TXN.key: _add_partitions,
    api.ADD_OFFSETS_TO_TXN.key: _of_transaction,
    api.END_TXN.key: _of_transaction,
    api.TXN_OFFSET_COMMIT.key: _txn_offset_commit,
    api.DELETE_GROUPS.key: _each_group("groups_names", "results"),
    api.OFFSET_DELETE.key: _offset_delete,
    api.DESCRIBE_TRANSACTIONS.key: _describe_transactions,
    api.LIST_TRANSACTIONS.key: _list_transactions,
    api.CONSUMER_GROUP_HEARTBEAT.key: _of_group,
    api.CONSUMER_GROUP_DESCRIBE.key: _each_group("group_ids", "groups", members=[]),
}


#: APIs of groups and transactions, which only the coordinator answers.
COORDINATED: Final = frozenset(_GATES)


def is_coordinated_here(coordinators: Coordinators, request: AnyRequest) -> bool:
    """Tell whether the handler is to be called; if not, the request is answered already."""
    gate = _GATES.get(request.header.api.key)
    return gate is None or gate(coordinators, request)
