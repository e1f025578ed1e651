"""DescribeTransactions, ListTransactions, DescribeProducers: current transactions (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core import errors
from broker_core.coordinator.patterns import compile_pattern
from broker_core.coordinator.transaction import TransactionState
from broker_core.server.coordination.transactions import Transactions
from broker_core.server.network.request import Request
from broker_core.server.partitions.topics import TopicRegistry

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        DescribeProducersRequest,
        DescribeProducersResponse,
        DescribeProducersResponsePartition,
        DescribeTransactionsRequest,
        DescribeTransactionsResponse,
        DescribeTransactionsResponseTransactionState,
        ListTransactionsRequest,
        ListTransactionsResponse,
    )


def handle_describe(
    transactions: Transactions,
    request: Request[DescribeTransactionsRequest, DescribeTransactionsResponse],
) -> None:
    """Answer a DescribeTransactions request."""
    request.reply(
        {
            "transaction_states": [
                _describe(transactions, transactional_id)
                for transactional_id in request.body["transactional_ids"]
            ]
        }
    )


def _describe(
    transactions: Transactions, transactional_id: str
) -> DescribeTransactionsResponseTransactionState:
    found = transactions.coordinator.transactions.get(transactional_id)
    if not transactional_id or found is None:
        missing = errors.TransactionalIdNotFound if transactional_id else errors.InvalidRequest
        return {"transactional_id": transactional_id, "error_code": missing.code}
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(found.partitions):
        topics.setdefault(topic, []).append(partition)
    return {
        "error_code": errors.NONE,
        "transactional_id": transactional_id,
        "transaction_state": found.state.value,
        "transaction_timeout_ms": found.timeout_ms,
        "transaction_start_time_ms": found.started_ms,
        "producer_id": found.producer_id,
        "producer_epoch": found.epoch,
        "topics": [{"topic": name, "partitions": numbers} for name, numbers in topics.items()],
    }


def handle_list(
    transactions: Transactions, request: Request[ListTransactionsRequest, ListTransactionsResponse]
) -> None:
    """Answer a ListTransactions request."""
    body = request.body
    known = {state.value for state in TransactionState}
    states = set(body["state_filters"])
    producer_ids = set(body["producer_id_filters"])
    ids = transactions.coordinator.transactions.keys()
    expression = body["transactional_id_pattern"]
    try:
        matching = set(compile_pattern(expression).matching(ids)) if expression else ids
    except errors.InvalidRegularExpression as error:
        request.reply({"error_code": error.code})
        return
    now_ms = transactions.moment().wall_ms
    request.reply(
        {
            "error_code": errors.NONE,
            "unknown_state_filters": sorted(states - known),
            "transaction_states": [
                {
                    "transactional_id": each.transactional_id,
                    "producer_id": each.producer_id,
                    "transaction_state": each.state.value,
                }
                for each in transactions.coordinator.transactions.values()
                if (not states or each.state.value in states)
                and (not producer_ids or each.producer_id in producer_ids)
                and (
                    body["duration_filter"] < 0
                    or (each.started_ms >= 0 and now_ms - each.started_ms > body["duration_filter"])
                )
                and each.transactional_id in matching
            ],
        }
    )


def handle_describe_producers(
    topics: TopicRegistry, request: Request[DescribeProducersRequest, DescribeProducersResponse]
) -> None:
    """Answer a DescribeProducers request."""
    request.reply(
        {
            "topics": [
                {
                    "name": topic["name"],
                    "partitions": [
                        _producers(topics, topic["name"], index)
                        for index in dict.fromkeys(topic["partition_indexes"])
                    ],
                }
                for topic in request.body["topics"]
            ]
        }
    )


def _producers(topics: TopicRegistry, topic: str, index: int) -> DescribeProducersResponsePartition:
    try:
        found = topics.get(topic)
        if found is None:
            raise errors.UnknownTopicOrPartition()
        partition = found.partition(index)
        partition.check_is_led()
    except errors.BrokerError as error:
        return {
            "partition_index": index,
            "error_code": error.code,
            "error_message": str(error),
        }
    return {
        "partition_index": index,
        "error_code": errors.NONE,
        "active_producers": [
            {
                "producer_id": each.producer_id,
                "producer_epoch": each.epoch,
                "last_sequence": each.batches[-1].last_sequence if each.batches else -1,
                "last_timestamp": each.last_seen_ms,
                "coordinator_epoch": each.coordinator_epoch,
                "current_txn_start_offset": each.transaction_first_offset,
            }
            for each in partition.log.producers.producers()
        ],
    }
