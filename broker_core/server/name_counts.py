"""How many partitions, topics or members a request names: more than there can be are not meant.

Each costs some ten microseconds, also one that does not exist, and takes ten bytes of a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker_core.protocol.definitions import (
    ADD_PARTITIONS_TO_TXN,
    ALTER_CLIENT_QUOTAS,
    ALTER_CONFIGS,
    ALTER_PARTITION_REASSIGNMENTS,
    ALTER_USER_SCRAM_CREDENTIALS,
    CONSUMER_GROUP_HEARTBEAT,
    CREATE_ACLS,
    CREATE_PARTITIONS,
    DELETE_ACLS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    ELECT_LEADERS,
    FETCH,
    INCREMENTAL_ALTER_CONFIGS,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_OFFSETS,
    LIST_PARTITION_REASSIGNMENTS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    SHARE_GROUP_HEARTBEAT,
    TXN_OFFSET_COMMIT,
    WRITE_TXN_MARKERS,
)
from broker_core.server.network.request import AnyRequest
from broker_core.server.partitions.topics import TopicRegistry

#: The names of the list of topics in a request, and of the list of partitions in a topic.
_LISTS: Final[dict[int, tuple[str, str]]] = {
    api.key: lists
    for api, lists in (
        (ADD_PARTITIONS_TO_TXN, ("v3_and_below_topics", "partitions")),
        (ALTER_PARTITION_REASSIGNMENTS, ("topics", "partitions")),
        (DELETE_RECORDS, ("topics", "partitions")),
        (DESCRIBE_LOG_DIRS, ("topics", "partitions")),
        (DESCRIBE_PRODUCERS, ("topics", "partition_indexes")),
        (DESCRIBE_SHARE_GROUP_OFFSETS, ("topics", "partitions")),
        (ELECT_LEADERS, ("topic_partitions", "partitions")),
        (FETCH, ("topics", "partitions")),
        (LIST_OFFSETS, ("topics", "partitions")),
        (LIST_PARTITION_REASSIGNMENTS, ("topics", "partition_indexes")),
        (OFFSET_COMMIT, ("topics", "partitions")),
        (OFFSET_DELETE, ("topics", "partitions")),
        (OFFSET_FETCH, ("topics", "partition_indexes")),
        (OFFSET_FOR_LEADER_EPOCH, ("topics", "partitions")),
        (PRODUCE, ("topic_data", "partition_data")),
        (SHARE_ACKNOWLEDGE, ("topics", "partitions")),
        (SHARE_FETCH, ("topics", "partitions")),
        (TXN_OFFSET_COMMIT, ("topics", "partitions")),
    )
}
#: The names of other lists; there are more partitions than topics, or than members at work.
_FLAT: Final[dict[int, tuple[str, ...]]] = {
    ALTER_CLIENT_QUOTAS.key: ("entries",),
    ALTER_USER_SCRAM_CREDENTIALS.key: ("deletions", "upsertions"),
    ALTER_CONFIGS.key: ("resources",),
    CREATE_PARTITIONS.key: ("topics",),
    INCREMENTAL_ALTER_CONFIGS.key: ("resources",),
    CONSUMER_GROUP_HEARTBEAT.key: ("subscribed_topic_names", "topic_partitions"),
    CREATE_ACLS.key: ("creations",),
    DELETE_ACLS.key: ("filters",),
    DELETE_TOPICS.key: ("topic_names", "topics"),
    DESCRIBE_USER_SCRAM_CREDENTIALS.key: ("users",),
    JOIN_GROUP.key: ("protocols",),
    LEAVE_GROUP.key: ("members",),
    SHARE_GROUP_HEARTBEAT.key: ("subscribed_topic_names",),
    WRITE_TXN_MARKERS.key: ("markers",),
}
#: What a request may always name, and bytes that a name takes at least.
_ALWAYS: Final = 2_000
_NAME_BYTES: Final = 3
#: A request of at most that many bytes is too short to name more than any may.
SHORT_BYTES: Final = _ALWAYS * _NAME_BYTES


def count_of_names(request: AnyRequest) -> int:
    """Return how many things a request names; 0 if its API names none that are counted."""
    key = request.header.api.key
    lists = _LISTS.get(key)
    if lists is None:
        flat = _FLAT.get(key, ())
        return max((len(request.body.get(each) or ()) for each in flat), default=0)
    if key == ADD_PARTITIONS_TO_TXN.key and request.body["transactions"]:
        # From version 4 on, which is for brokers: they are answered all at once.
        return sum(
            len(topic["partitions"])
            for each in request.body["transactions"]
            for topic in each["topics"]
        )
    if groups := request.body.get("groups"):
        # Each is answered for itself.
        return max(_count_of_partitions(each, *lists) for each in groups)
    return _count_of_partitions(request.body, *lists)


def _count_of_partitions(body: Mapping[str, Any], topics: str, partitions: str) -> int:
    count = 0
    for each in body.get(topics) or ():
        # A topic counts, whether or not any of its partitions is named.
        count += len(each[partitions] or ()) or 1
    return count


def may_be_named(count: int, topics: TopicRegistry) -> bool:
    """Tell whether a request may name so many things in a cluster with these topics."""
    return count <= _ALWAYS or count <= _ALWAYS + 2 * sum(each.partition_count for each in topics)
