"""What clients of CreateTopics and CreatePartitions wait for beyond the decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from broker_core.protocol.definitions import CREATE_PARTITIONS, CREATE_TOPICS
from broker_core.server.network.request import AnyRequest

#: Calls the last argument when topics have this many partitions here, and they are open, or after
#: so many milliseconds.
WhenKnown = Callable[[Mapping[str, int], int, Callable[[], None]], None]

_GROWING: Final = frozenset({CREATE_TOPICS.key, CREATE_PARTITIONS.key})


def wanted_partitions(
    key: int, body: Mapping[str, Any], default: int, size_of: Callable[[str], int | None]
) -> int:
    """Return how many partitions a request wants to add; 0 if its API adds none.

    A topic has `default` partitions where -1 is asked for, and `size_of` it now, if it exists.
    """
    if key == CREATE_TOPICS.key:
        sizes = {
            each["name"]: len(each["assignments"])
            or (default if each["num_partitions"] == -1 else each["num_partitions"])
            for each in body["topics"]
        }
        return sum(max(size, 0) for size in sizes.values())
    if key == CREATE_PARTITIONS.key:
        return sum(
            max(each["count"] - present, 0)
            for each in body["topics"]
            if (present := size_of(each["name"])) is not None
        )
    return 0


def waits_for_partitions(request: AnyRequest) -> bool:
    """Tell whether a client wants to wait for partitions that its request adds."""
    return request.header.api.key in _GROWING and not request.body["validate_only"]


def without_waiting(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a request that is answered when it has been decided on."""
    return {**body, "timeout_ms": 0}


def new_partitions(
    key: int, body: Mapping[str, Any], response: Mapping[str, Any]
) -> dict[str, int]:
    """Return the topics that a request of this API has created or enlarged, and their sizes."""
    if key == CREATE_TOPICS.key:
        return {
            each["name"]: max(each.get("num_partitions", 1), 1)
            for each in response["topics"]
            if not each["error_code"]
        }
    counts = {each["name"]: each["count"] for each in body["topics"]}
    return {
        each["name"]: counts[each["name"]] for each in response["results"] if not each["error_code"]
    }
