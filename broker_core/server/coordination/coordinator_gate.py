"""Refuses, in a cluster, requests for groups and transactions that this broker does not coordinate.

The refusals are those of the protocol. They also apply while a coordinator is still loading. They
are made before a handler sees the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from broker_core import errors
from broker_core.protocol import definitions as api
from broker_core.server.network.request import Request

if TYPE_CHECKING:
    from broker_core.server.runtime import Broker

Entry = dict[str, Any]

#: Returns whether the handler is to be called; if not, the request is answered already.
Gate = Callable[["Broker", Request], bool]

_TRANSACTIONS_IN_BATCHES_FROM: Final = 4
_GROUPS_IN_BATCHES_FROM: Final = 8
_NO_PRODUCER: Final = {"producer_id": -1, "producer_epoch": -1}


def _of_group(broker: Broker, request: Request) -> bool:
    code = broker.groups.shards.refusal(request.body["group_id"])
    if code:
        request.reply({"error_code": code})
    return not code


def _of_group_by_partition(broker: Broker, request: Request) -> bool:
    code = broker.groups.shards.refusal(request.body["group_id"])
    if code:
        request.reply(
            {
                "topics": [
                    {
                        "name": topic["name"],
                        "topic_id": topic.get("topic_id", bytes(16)),
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


def _offset_fetch(broker: Broker, request: Request) -> bool:
    body, refusal = request.body, broker.groups.shards.refusal
    if request.version < _GROUPS_IN_BATCHES_FROM:
        code = refusal(body["group_id"])
        if code:
            request.reply({"error_code": code, "topics": []})
        return not code
    refused: list[Entry] = []
    kept: list[Entry] = []
    for group in body["groups"]:
        code = refusal(group["group_id"])
        if code:
            refused.append({"group_id": group["group_id"], "topics": [], "error_code": code})
        else:
            kept.append(group)
    body["groups"] = kept
    _add(request, "groups", refused)
    return True


def _offset_delete(broker: Broker, request: Request) -> bool:
    code = broker.groups.shards.refusal(request.body["group_id"])
    if code:
        request.reply({"error_code": code, "topics": []})
    return not code


def _each_group(names: str, answers: str, **more: Any) -> Gate:
    """Return a gate that refuses single names of a list; `answers` is the response's list."""

    def gate(broker: Broker, request: Request) -> bool:
        codes = {name: broker.groups.shards.refusal(name) for name in request.body[names]}
        request.body[names] = [name for name in request.body[names] if not codes[name]]
        _add(
            request,
            answers,
            ({"group_id": name, "error_code": code} | more for name, code in codes.items() if code),
        )
        return True

    return gate


def _list_groups(broker: Broker, request: Request) -> bool:
    if broker.groups.shards.is_loading:
        request.reply({"error_code": errors.CoordinatorLoadInProgress.code, "groups": []})
        return False
    return True


def _init_producer_id(broker: Broker, request: Request) -> bool:
    transactional_id = request.body["transactional_id"]
    if not transactional_id:
        return True
    return _of_transaction(broker, request)


def _of_transaction(broker: Broker, request: Request) -> bool:
    code = broker.transactions.shards.refusal(request.body["transactional_id"])
    if code:
        request.reply({"error_code": code} | _NO_PRODUCER)
    return not code


def _add_partitions(broker: Broker, request: Request) -> bool:
    body, refusal = request.body, broker.transactions.shards.refusal
    if request.version < _TRANSACTIONS_IN_BATCHES_FROM:
        code = refusal(body["v3_and_below_transactional_id"])
        if code:
            refused = _partitions(body["v3_and_below_topics"], code)
            request.reply({"results_by_topic_v3_and_below": refused})
        return not code
    refusals: list[Entry] = []
    kept: list[Entry] = []
    for each in body["transactions"]:
        code = refusal(each["transactional_id"])
        if code:
            refusals.append(
                {
                    "transactional_id": each["transactional_id"],
                    "topic_results": _partitions(each["topics"], code),
                }
            )
        else:
            kept.append(each)
    body["transactions"] = kept
    _add(request, "results_by_transaction", refusals)
    return True


def _partitions(topics: list[Entry], code: int) -> list[Entry]:
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


def _describe_transactions(broker: Broker, request: Request) -> bool:
    body, refusal = request.body, broker.transactions.shards.refusal
    codes = {name: refusal(name) if name else 0 for name in body["transactional_ids"]}
    body["transactional_ids"] = [each for each in body["transactional_ids"] if not codes[each]]
    _add(
        request,
        "transaction_states",
        (
            {"transactional_id": name, "error_code": code, "topics": []}
            for name, code in codes.items()
            if code
        ),
    )
    return True


def _list_transactions(broker: Broker, request: Request) -> bool:
    if broker.transactions.shards.is_loading:
        request.reply({"error_code": errors.CoordinatorLoadInProgress.code})
        return False
    return True


def _add(request: Request, field: str, entries: Iterable[Entry]) -> None:
    """Append elements to a list of the response."""
    refused = list(entries)
    if not refused:
        return

    def amend(response: Entry) -> None:
        response[field] = [*response.get(field, ()), *refused]

    request.amend_with(amend)


def _share_offsets(broker: Broker, request: Request) -> bool:
    codes = {
        group["group_id"]: broker.groups.shards.refusal(group["group_id"])
        for group in request.body["groups"]
    }
    request.body["groups"] = [
        group for group in request.body["groups"] if not codes[group["group_id"]]
    ]
    _add(
        request,
        "groups",
        (
            {"group_id": name, "error_code": code, "topics": []}
            for name, code in codes.items()
            if code
        ),
    )
    return True


def _of_share_group(broker: Broker, request: Request) -> bool:
    code = broker.groups.shards.refusal(request.body["group_id"])
    if code:
        request.reply({"error_code": code, "responses": []})
    return not code


_GATES: Final[dict[int, Gate]] = {
    api.SHARE_GROUP_HEARTBEAT.key: _of_group,
    api.SHARE_GROUP_DESCRIBE.key: _each_group("group_ids", "groups", members=[]),
    api.DESCRIBE_SHARE_GROUP_OFFSETS.key: _share_offsets,
    api.ALTER_SHARE_GROUP_OFFSETS.key: _of_share_group,
    api.DELETE_SHARE_GROUP_OFFSETS.key: _of_share_group,
    api.OFFSET_COMMIT.key: _of_group_by_partition,
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
    api.TXN_OFFSET_COMMIT.key: _of_group_by_partition,
    api.DELETE_GROUPS.key: _each_group("groups_names", "results"),
    api.OFFSET_DELETE.key: _offset_delete,
    api.DESCRIBE_TRANSACTIONS.key: _describe_transactions,
    api.LIST_TRANSACTIONS.key: _list_transactions,
    api.CONSUMER_GROUP_HEARTBEAT.key: _of_group,
    api.CONSUMER_GROUP_DESCRIBE.key: _each_group("group_ids", "groups", members=[]),
}


def is_coordinated_here(broker: Broker, request: Request) -> bool:
    """Tell whether the handler is to be called; if not, the request is answered already."""
    gate = _GATES.get(request.header.api.key)
    return gate is None or gate(broker, request)
