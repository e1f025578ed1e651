"""Authorization rules of the APIs for groups, their offsets and transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from broker_core import errors
from broker_core.security.acl import Operation, ResourceType
from broker_core.server.authorization.guard import Entry, Guard, Rule, keep

_TOPIC_REFUSED: Final = errors.TopicAuthorizationFailed.code
_GROUP_REFUSED: Final = errors.GroupAuthorizationFailed.code
_TRANSACTION_REFUSED: Final = errors.TransactionalIdAuthorizationFailed.code
_CLUSTER_REFUSED: Final = errors.ClusterAuthorizationFailed.code
_NOT_ATTEMPTED: Final = errors.OperationNotAttempted.code
_KEY_TYPE_GROUP: Final = 0
_GROUPS_IN_BATCHES_FROM: Final = 8


def _split(names: list[str], permitted: Callable[[str], bool]) -> tuple[list[str], list[str]]:
    """Return (permitted names, refused names)."""
    kept: list[str] = []
    refused: list[str] = []
    for name in names:
        (kept if permitted(name) else refused).append(name)
    return kept, refused


def of_group(operation: Operation) -> Rule:
    """Return a rule that requires one operation on the request's group."""

    def rule(guard: Guard) -> bool:
        if guard.may_group(operation, guard.body["group_id"]):
            return True
        return guard.refuse({"error_code": _GROUP_REFUSED})

    return rule


def consumer_group_heartbeat(guard: Guard) -> bool:
    """Require READ on the group, and DESCRIBE on the topics that the member subscribes to."""
    if not guard.may_group(Operation.READ, guard.body["group_id"]):
        return guard.refuse({"error_code": _GROUP_REFUSED, "error_message": None})
    names = guard.body["subscribed_topic_names"] or ()
    if all(guard.may_topic(Operation.DESCRIBE, name) for name in names):
        return True
    return guard.refuse({"error_code": _TOPIC_REFUSED, "error_message": None})


def _each_partition(topics: list[Entry], code: int) -> list[Entry]:
    return [
        {
            "name": topic["name"],
            "topic_id": topic.get("topic_id", bytes(16)),
            "partitions": [
                {"partition_index": each["partition_index"], "error_code": code}
                for each in topic["partitions"]
            ],
        }
        for topic in topics
    ]


def offset_commit(guard: Guard) -> bool:
    """Require READ on the group and the topics."""
    if not guard.may_group(Operation.READ, guard.body["group_id"]):
        return guard.refuse({"topics": _each_partition(guard.body["topics"], _GROUP_REFUSED)})
    _keep_readable(guard)
    return True


def _keep_readable(guard: Guard) -> None:
    refused = guard.keep(
        "topics",
        lambda topic: (
            (name := guard.topic_name(topic)) is None or guard.may_topic(Operation.READ, name)
        ),
    )
    guard.add("topics", _each_partition(refused, _TOPIC_REFUSED))


def offset_fetch(guard: Guard) -> bool:
    """Require DESCRIBE on the groups and the topics."""
    in_batches = guard.request.version >= _GROUPS_IN_BATCHES_FROM
    asked = guard.body["groups"] if in_batches else [guard.body]
    kept: list[Entry] = []
    refused: list[Entry] = []
    for group in asked:
        allowed = guard.may_group(Operation.DESCRIBE, group["group_id"])
        (kept if allowed else refused).append(group)
    if not in_batches and refused:
        return guard.refuse({"topics": [], "error_code": _GROUP_REFUSED})
    if in_batches:
        guard.body["groups"] = kept
    answers = [
        {"group_id": group["group_id"], "topics": [], "error_code": _GROUP_REFUSED}
        for group in refused
    ]
    hidden: dict[str, list[Entry]] = {}
    for group in kept:
        if group["topics"] is not None:
            hidden[group["group_id"]] = keep(group, "topics", lambda topic: _shown(guard, topic))

    def amend(response: dict[str, Any]) -> None:
        groups = response["groups"] if in_batches else [response]
        for group in groups:
            group_id = group["group_id"]
            # A request for all topics returns the permitted ones; a named topic is refused.
            group["topics"] = [
                *(topic for topic in group["topics"] if _shown(guard, topic)),
                *(_no_offset(topic) for topic in hidden.get(group_id, ())),
            ]
        if in_batches:
            response["groups"] = [*groups, *answers]

    guard.request.amend_with(amend)
    return True


def _shown(guard: Guard, topic: Entry) -> bool:
    name = guard.topic_name(topic)
    return name is None or guard.may_topic(Operation.DESCRIBE, name)


def _no_offset(topic: Entry) -> Entry:
    return {
        "name": topic["name"],
        "topic_id": topic.get("topic_id", bytes(16)),
        "partitions": [
            {
                "partition_index": index,
                "committed_offset": -1,
                "metadata": "",
                "error_code": _TOPIC_REFUSED,
            }
            for index in topic["partition_indexes"]
        ],
    }


def offset_delete(guard: Guard) -> bool:
    """Require DELETE on the group, and READ on the topics."""
    if not guard.may_group(Operation.DELETE, guard.body["group_id"]):
        return guard.refuse({"error_code": _GROUP_REFUSED, "topics": []})
    _keep_readable(guard)
    return True


def find_coordinator(guard: Guard) -> bool:
    """Require DESCRIBE on the group or the transactional id."""
    body = guard.body
    keys = body["coordinator_keys"] or [body["key"]]
    if body["key_type"] == _KEY_TYPE_GROUP:
        kind, code = ResourceType.GROUP, _GROUP_REFUSED
    else:
        kind, code = ResourceType.TRANSACTIONAL_ID, _TRANSACTION_REFUSED
    refused = dict.fromkeys(key for key in keys if not guard.may(Operation.DESCRIBE, kind, key))
    answers = [
        {"key": key, "node_id": -1, "host": "", "port": -1, "error_code": code} for key in refused
    ]
    if len(refused) == len(set(keys)):
        return guard.refuse(
            {"error_code": code, "node_id": -1, "host": "", "port": -1, "coordinators": answers}
        )
    if refused:
        body["coordinator_keys"] = [key for key in keys if key not in refused]
        guard.add("coordinators", answers)
    return True


def describe_groups(field: str) -> Rule:
    """Return a rule that requires DESCRIBE on each group; `field` contains their ids."""

    def rule(guard: Guard) -> bool:
        guard.body[field], refused = _split(
            guard.body[field], lambda name: guard.may_group(Operation.DESCRIBE, name)
        )
        answers = [
            {"group_id": name, "error_code": _GROUP_REFUSED, "members": []} for name in refused
        ]
        with_operations = guard.body["include_authorized_operations"]

        def amend(response: dict[str, Any]) -> None:
            if with_operations:
                for group in response["groups"]:
                    group["authorized_operations"] = guard.operations(
                        ResourceType.GROUP, group["group_id"]
                    )
            response["groups"] = [*response["groups"], *answers]

        guard.request.amend_with(amend)
        return True

    return rule


def share_group(guard: Guard) -> bool:
    """Require READ on the group of a share session."""
    if guard.may_group(Operation.READ, guard.body["group_id"] or ""):
        return True
    return guard.refuse({"error_code": _GROUP_REFUSED, "error_message": None})


def describe_share_group_offsets(guard: Guard) -> bool:
    """Require DESCRIBE on each group."""
    refused = guard.keep(
        "groups", lambda entry: guard.may_group(Operation.DESCRIBE, entry["group_id"])
    )
    guard.add(
        "groups",
        (
            {"group_id": each["group_id"], "error_code": _GROUP_REFUSED, "error_message": None}
            for each in refused
        ),
    )
    return True


def list_groups(guard: Guard) -> bool:
    """List all groups if DESCRIBE on the cluster is permitted, else those with DESCRIBE."""
    if not guard.may_cluster(Operation.DESCRIBE):

        def amend(response: dict[str, Any]) -> None:
            response["groups"] = [
                group
                for group in response.get("groups", ())
                if guard.may_group(Operation.DESCRIBE, group["group_id"])
            ]

        guard.request.amend_with(amend)
    return True


def delete_groups(guard: Guard) -> bool:
    """Require DELETE on each group."""
    guard.body["groups_names"], refused = _split(
        guard.body["groups_names"], lambda name: guard.may_group(Operation.DELETE, name)
    )
    guard.add("results", ({"group_id": name, "error_code": _GROUP_REFUSED} for name in refused))
    return True


# ------------------------------------------------------------------------------------ transactions


def init_producer_id(guard: Guard) -> bool:
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


def _no_producer(code: int) -> Entry:
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}


def of_transaction(guard: Guard) -> bool:
    """Require WRITE on the transactional id (EndTxn)."""
    if guard.may_transact(Operation.WRITE, guard.body["transactional_id"]):
        return True
    return guard.refuse({"error_code": _TRANSACTION_REFUSED})


def add_offsets_to_txn(guard: Guard) -> bool:
    """Require WRITE on the transactional id, and READ on the group."""
    if not guard.may_transact(Operation.WRITE, guard.body["transactional_id"]):
        return guard.refuse({"error_code": _TRANSACTION_REFUSED})
    if not guard.may_group(Operation.READ, guard.body["group_id"]):
        return guard.refuse({"error_code": _GROUP_REFUSED})
    return True


def add_partitions_to_txn(guard: Guard) -> bool:
    """Require WRITE on the transactional id and on all topics; one refusal stops the others.

    From version 4 on, require CLUSTER_ACTION.
    """
    in_batches = guard.request.version >= 4
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
    guard: Guard, transactional_id: str, topics: list[Entry]
) -> list[Entry] | None:
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


def txn_offset_commit(guard: Guard) -> bool:
    """Require WRITE on the transactional id, and READ on the group and the topics."""
    topics = guard.body["topics"]
    if not guard.may_transact(Operation.WRITE, guard.body["transactional_id"]):
        return guard.refuse({"topics": _each_partition(topics, _TRANSACTION_REFUSED)})
    if not guard.may_group(Operation.READ, guard.body["group_id"]):
        return guard.refuse({"topics": _each_partition(topics, _GROUP_REFUSED)})
    _keep_readable(guard)
    return True


def write_txn_markers(guard: Guard) -> bool:
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


def describe_transactions(guard: Guard) -> bool:
    """Require DESCRIBE on each transactional id."""
    guard.body["transactional_ids"], refused = _split(
        guard.body["transactional_ids"],
        lambda name: guard.may_transact(Operation.DESCRIBE, name),
    )
    guard.add(
        "transaction_states",
        (
            {"transactional_id": name, "error_code": _TRANSACTION_REFUSED, "topics": []}
            for name in refused
        ),
    )
    return True


def list_transactions(guard: Guard) -> bool:
    """List the transactions for whose transactional id DESCRIBE is permitted."""

    def amend(response: dict[str, Any]) -> None:
        response["transaction_states"] = [
            each
            for each in response.get("transaction_states", ())
            if guard.may_transact(Operation.DESCRIBE, each["transactional_id"])
        ]

    guard.request.amend_with(amend)
    return True
