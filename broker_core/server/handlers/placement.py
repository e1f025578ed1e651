"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments: leaders and replicas."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from broker_core import errors
from broker_core.server.handlers.administration import answer_each
from broker_core.server.network.request import Request
from broker_core.server.settings.admin_operations import AdminOperations

if TYPE_CHECKING:
    from broker_core.server.runtime import Broker

_PREFERRED: Final = 0


def _attempt(action: Callable[[], None]) -> dict[str, Any]:
    try:
        action()
    except errors.BrokerError as error:
        return {"error_code": error.code, "error_message": str(error)}
    return {"error_code": errors.NONE, "error_message": None}


def handle_elect(broker: Broker, request: Request) -> None:
    """Answer an ElectLeaders request."""
    body = request.body
    kind = body["election_type"] if request.version else _PREFERRED
    topics: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []

    def elect(authority: AdminOperations) -> None:
        asked = body["topic_partitions"]
        everything = asked is None
        if asked is None:
            asked = authority.all_partitions()
        for topic in asked:
            elected = [
                {"partition_id": index}
                | _attempt(partial(authority.elect, topic["topic"], index, kind))
                for index in topic["partitions"]
            ]
            if everything:
                # For all partitions, only those whose leader changed or should have are returned.
                needed = errors.ElectionNotNeeded.code
                elected = [each for each in elected if each["error_code"] != needed]
            if elected:
                topics.append({"topic": topic["topic"], "partition_result": elected})
                results.extend(elected)

    broker.administer(elect, answer_each(request, {"replica_election_results": topics}, results))


def handle_reassign(broker: Broker, request: Request) -> None:
    """Answer an AlterPartitionReassignments request (KIP-455)."""
    body = request.body
    may_resize = body["allow_replication_factor_change"]
    responses: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []

    def reassign(authority: AdminOperations) -> None:
        for topic in body["topics"]:
            partitions = []
            for asked in topic["partitions"]:
                index = asked["partition_index"]
                move = partial(
                    authority.reassign,
                    topic["name"],
                    index,
                    asked["replicas"],
                    may_resize=may_resize,
                )
                partitions.append({"partition_index": index} | _attempt(move))
            responses.append({"name": topic["name"], "partitions": partitions})
            results.extend(partitions)

    answer = {
        "error_message": None,
        "allow_replication_factor_change": may_resize,
        "responses": responses,
    }
    broker.administer(reassign, answer_each(request, answer, results))


def handle_list_reassignments(broker: Broker, request: Request) -> None:
    """Answer a ListPartitionReassignments request."""
    asked = request.body["topics"]
    topics: list[dict[str, Any]] = []

    def find(authority: AdminOperations) -> None:
        wanted = None
        if asked is not None:
            wanted = {
                (each["name"], index) for each in asked for index in each["partition_indexes"]
            }
        found: dict[str, list[dict[str, Any]]] = {}
        for name, index, partition in authority.reassignments():
            if wanted is None or (name, index) in wanted:
                found.setdefault(name, []).append(
                    {
                        "partition_index": index,
                        "replicas": partition.replicas,
                        "adding_replicas": partition.adding,
                        "removing_replicas": partition.removing,
                    }
                )
        topics.extend({"name": name, "partitions": each} for name, each in found.items())

    broker.administer(find, answer_each(request, {"error_message": None, "topics": topics}, []))
