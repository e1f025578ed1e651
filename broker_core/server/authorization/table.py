"""The authorization rule of each API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from broker_core import errors
from broker_core.security.acl import Operation, ResourceType
from broker_core.security.authorizer import Authorizer
from broker_core.server.authorization import groups, topics, transactions
from broker_core.server.authorization.guard import Guard, Guarded, Rule
from broker_core.server.network.request import AnyRequest

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AlterClientQuotasRequest,
        AlterClientQuotasResponse,
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
    )

#: The refusal of any of several APIs.
_Refusal = dict[str, object]

_REFUSED: Final = errors.ClusterAuthorizationFailed.code
_MESSAGE: Final = "Cluster authorization failed."


def _whole(body: Any) -> _Refusal:
    return {"error_code": _REFUSED, "error_message": _MESSAGE}


def _for_each(asked: str, answered: str, **more: Any) -> Callable[[Any], _Refusal]:
    """Return a function that makes a refusal for each element of a list of the request."""

    def response(body: Any) -> _Refusal:
        refusal = {"error_code": _REFUSED, "error_message": _MESSAGE} | more
        return {answered: [refusal for _ in body[asked]]}

    return response


def _quota_refusals(body: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    return {
        "entries": [
            {
                "error_code": _REFUSED,
                "error_message": _MESSAGE,
                "entity": [
                    {"entity_type": part["entity_type"], "entity_name": part["entity_name"]}
                    for part in each["entity"]
                ],
            }
            for each in body["entries"]
        ]
    }


def _scram_refusals(
    body: AlterUserScramCredentialsRequest,
) -> AlterUserScramCredentialsResponse:
    users = dict.fromkeys(each["name"] for each in (*body["deletions"], *body["upsertions"]))
    return {
        "results": [
            {"user": user, "error_code": _REFUSED, "error_message": _MESSAGE} for user in users
        ]
    }


def _of_cluster(
    operation: Operation, response: Callable[[Any], Mapping[str, object]] = _whole
) -> Rule:
    """Return a rule that requires one operation on the cluster."""

    def rule(guard: Guard[Any, Any]) -> bool:
        return guard.may_cluster(operation) or guard.refuse(response(guard.body))

    return rule


def _free(guard: Guard[Any, Any]) -> bool:
    return True


def _between_brokers(guard: Guard[Any, Any]) -> bool:
    """Require CLUSTER_ACTION, for requests that only brokers send."""
    if guard.may_cluster(Operation.CLUSTER_ACTION):
        return True
    guard.request.disconnect()
    return False


#: Rules by API key. APIs without a rule are for brokers only.
RULES: Final[dict[int, Rule]] = {
    0: topics.produce,
    1: _free,  # Fetch: see `may_read`
    2: topics.per_topic(Operation.DESCRIBE, "name", "partition_index", "partition_index"),
    3: topics.metadata,
    8: groups.offset_commit,
    9: groups.offset_fetch,
    10: groups.find_coordinator,
    11: groups.of_group(Operation.READ),
    12: groups.of_group(Operation.READ),
    13: groups.of_group(Operation.READ),
    14: groups.of_group(Operation.READ),
    15: groups.describe_groups("groups"),
    16: groups.list_groups,
    17: _free,
    18: _free,
    19: topics.create_topics,
    20: topics.delete_topics,
    21: topics.per_topic(Operation.DELETE, "name", "partition_index", "partition_index"),
    22: transactions.init_producer_id,
    23: topics.per_topic(Operation.DESCRIBE, "topic", "partition", "partition"),
    24: transactions.add_partitions_to_txn,
    25: transactions.add_offsets_to_txn,
    26: transactions.of_transaction,
    27: transactions.write_txn_markers,
    28: transactions.txn_offset_commit,
    29: _of_cluster(Operation.DESCRIBE),
    30: _of_cluster(Operation.ALTER, _for_each("creations", "results")),
    31: _of_cluster(Operation.ALTER, _for_each("filters", "filter_results", matching_acls=[])),
    32: topics.configs(Operation.DESCRIBE_CONFIGS, "results"),
    33: topics.configs(Operation.ALTER_CONFIGS, "responses"),
    34: _of_cluster(Operation.ALTER, lambda _: {"results": []}),
    35: _of_cluster(Operation.DESCRIBE),
    36: _free,
    37: topics.create_partitions,
    42: groups.delete_groups,
    43: _of_cluster(Operation.ALTER),
    44: topics.configs(Operation.ALTER_CONFIGS, "responses"),
    45: _of_cluster(Operation.ALTER),
    46: _of_cluster(Operation.DESCRIBE),
    47: groups.offset_delete,
    48: _of_cluster(Operation.DESCRIBE_CONFIGS, lambda body: {**_whole(body), "entries": None}),
    49: _of_cluster(Operation.ALTER_CONFIGS, _quota_refusals),
    50: _of_cluster(Operation.DESCRIBE),
    51: _of_cluster(Operation.ALTER, _scram_refusals),
    55: _of_cluster(Operation.DESCRIBE),
    60: topics.describe_cluster,
    61: topics.per_topic(Operation.READ, "name", None, "partition_index"),
    65: transactions.describe_transactions,
    66: transactions.list_transactions,
    68: groups.consumer_group_heartbeat,
    69: groups.describe_groups("group_ids"),
    74: _of_cluster(Operation.DESCRIBE_CONFIGS),
    75: topics.describe_topic_partitions,
    76: groups.consumer_group_heartbeat,
    77: groups.describe_groups("group_ids"),
    78: groups.share_group,  # topics: see `may_read`
    79: groups.share_group,
    **dict.fromkeys(range(83, 88), _between_brokers),
    90: groups.describe_share_group_offsets,
    91: groups.of_group(Operation.READ),
    92: groups.of_group(Operation.DELETE),
}


def authorize(broker: Guarded, request: AnyRequest) -> bool:
    """Tell whether the handler is to be called; if not, the request is answered already."""
    authorizer = broker.authorizer
    if authorizer is None:
        return True
    rule = RULES.get(request.header.api.key)
    return (rule or _between_brokers)(Guard(broker, request, authorizer))


def may_read(authorizer: Authorizer | None, request: AnyRequest, topic: str) -> bool:
    """Tell whether the client may read a topic's records now."""
    return authorizer is None or authorizer.allows(
        request.principal, request.host, Operation.READ, ResourceType.TOPIC, topic
    )
