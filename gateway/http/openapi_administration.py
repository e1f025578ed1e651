"""The OpenAPI description of what administrators see of the log, and change of it."""

from __future__ import annotations

from typing import Any, Final

from gateway.http.openapi_operations import OPERATING, list_of, operation, schema
from gateway.operations.brokers import Cluster, ElectionOutcome, PlannedMove
from gateway.operations.groups import GroupRow, NewOffset, ShownGroup
from gateway.operations.overview import OverviewAnswer
from gateway.operations.record_browser import FoundRecords
from gateway.operations.refused import RefusedBytes, RefusedList, Retried
from gateway.operations.topics import ShownTopic, TopicList
from waylog.observability.recent_lines import RecentLine

#: The answers, whose schemas the document has.
SCHEMAS: Final = (
    *(OverviewAnswer, Cluster, RecentLine, TopicList, ShownTopic, FoundRecords, ElectionOutcome),
    *(PlannedMove, GroupRow, ShownGroup, NewOffset, RefusedList, RefusedBytes, Retried),
)
_TOPIC: Final = "/v1/admin/topics/{topic}"


def administration_paths() -> dict[str, Any]:
    """Return the paths."""
    return {
        "/v1/admin/overview": {
            "get": operation(
                OPERATING,
                "Rates, latency by stage, lag by group, disks, health of every part",
                answer=schema("OverviewAnswer"),
            )
        },
        "/v1/admin/brokers": {
            "get": operation(OPERATING, "Brokers, controllers, moves", answer=schema("Cluster"))
        },
        "/v1/admin/log": {
            "get": operation(
                OPERATING,
                "The last lines of this gateway's log, behind a number",
                query=("after",),
                answer=list_of("RecentLine"),
            )
        },
        "/v1/admin/topics": {
            "get": operation(
                OPERATING,
                "Topics with a text in their names, 200 at a time",
                query=("name", "after"),
                answer=schema("TopicList"),
            ),
            "post": operation(
                OPERATING,
                "Create a topic: name, confirm (the name again), partitions, replication_factor, "
                "settings, dry_run",
                body=True,
                status="201",
            ),
        },
        _TOPIC: {
            "get": operation(
                OPERATING,
                "Settings, and a hundred partitions from `start` on",
                path=("topic",),
                query=("start",),
                answer=schema("ShownTopic"),
            ),
            "patch": operation(
                OPERATING,
                "Change settings, take others back to their defaults, add partitions: confirm "
                "(the name), settings, defaults, partitions, dry_run",
                path=("topic",),
                body=True,
            ),
            "delete": operation(
                OPERATING,
                "Delete a topic with its records; `confirm` is its name",
                path=("topic",),
                query=("confirm",),
                status="204",
            ),
        },
        f"{_TOPIC}/records": {
            "get": operation(
                OPERATING,
                "Records: the newest, or from an offset or a time on; with a text in the key",
                path=("topic",),
                query=("partition", "from", "limit", "key", "bytes"),
                answer=schema("FoundRecords"),
            )
        },
        f"{_TOPIC}/records/{{partition}}/{{offset}}": {
            "get": operation(
                OPERATING,
                "All bytes of a value",
                path=("topic", "partition", "offset"),
                media_types=("application/octet-stream",),
            )
        },
        f"{_TOPIC}/elections": {
            "post": operation(
                OPERATING,
                "Elect leaders: confirm (the topic), partitions, unclean",
                path=("topic",),
                body=True,
                answer=list_of("ElectionOutcome"),
            )
        },
        f"{_TOPIC}/reassignments": {
            "post": operation(
                OPERATING,
                "Move replicas: confirm (the topic), and brokers, replicas or cancel; "
                "replication_factor, dry_run",
                path=("topic",),
                body=True,
                answer=list_of("PlannedMove"),
            )
        },
        "/v1/admin/groups": {"get": operation(OPERATING, "All groups", answer=list_of("GroupRow"))},
        "/v1/admin/groups/{group}": {
            "get": operation(
                OPERATING,
                "Members of a group, and its lag by partition",
                path=("group",),
                answer=schema("ShownGroup"),
            )
        },
        "/v1/admin/groups/{group}/offsets": {
            "post": operation(
                OPERATING,
                "Set the offsets of a stopped group: topic, to, confirm (the group), dry_run",
                path=("group",),
                body=True,
                answer=list_of("NewOffset"),
            )
        },
        "/v1/admin/refused": {
            "get": operation(
                OPERATING,
                "The newest records of topic error, before an offset",
                query=("before",),
                answer=schema("RefusedList"),
            )
        },
        "/v1/admin/refused/{place}": {
            "get": operation(
                OPERATING,
                "A refused record with its bytes",
                path=("place",),
                answer=schema("RefusedBytes"),
            )
        },
        "/v1/admin/refused/retries": {
            "post": operation(
                OPERATING,
                "Send refused records again, each once: places, to, dry_run",
                body=True,
                answer=list_of("Retried"),
            )
        },
    }
