"""How many partitions, topics or members a request names: more than there can be are not meant.

Each costs some ten microseconds, also one that does not exist, and takes ten bytes of a request.
"""

from __future__ import annotations

from typing import Any, Final

from broker_core.protocol.definitions import (
    ADD_PARTITIONS_TO_TXN,
    ALTER_PARTITION_REASSIGNMENTS,
    CONSUMER_GROUP_HEARTBEAT,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    ELECT_LEADERS,
    FETCH,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_OFFSETS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    SHARE_GROUP_HEARTBEAT,
    TXN_OFFSET_COMMIT,
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
        (ELECT_LEADERS, ("topic_partitions", "partitions")),
        (FETCH, ("topics", "partitions")),
        (LIST_OFFSETS, ("topics", "partitions")),
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
    CONSUMER_GROUP_HEARTBEAT.key: ("subscribed_topic_names", "topic_partitions"),
    DELETE_TOPICS.key: ("topic_names", "topics"),
    JOIN_GROUP.key: ("protocols",),
    LEAVE_GROUP.key: ("members",),
    SHARE_GROUP_HEARTBEAT.key: ("subscribed_topic_names",),
}
#: What a request may always name.
_ALWAYS: Final = 2_000


def count_of_names(request: AnyRequest) -> int:
    """Return how many things a request names; 0 if its API names none that are counted."""
    key = request.header.api.key
    lists = _LISTS.get(key)
    if lists is None:
        flat = _FLAT.get(key, ())
        return max((len(request.body.get(each) or ()) for each in flat), default=0)
    topics, partitions = lists
    # Of groups, each is answered for itself.
    parts: list[dict[str, Any]] = request.body.get("groups") or [request.body]
    return max(
        sum(len(each[partitions] or ()) for each in part.get(topics) or ()) for part in parts
    )


def may_be_named(count: int, topics: TopicRegistry) -> bool:
    """Tell whether a request may name so many things in a cluster with these topics."""
    return count <= _ALWAYS or count <= _ALWAYS + 2 * sum(each.partition_count for each in topics)
