"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments: leaders and replicas."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from broker_core import errors
from broker_core.server.handlers.administration import answer_each
from broker_core.server.network.request import Request
from broker_core.server.settings.admin_operations import Administration, AdminOperations

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
        AlterPartitionReassignmentsResponsePartition,
        AlterPartitionReassignmentsResponseResult,
        ElectLeadersRequest,
        ElectLeadersResponse,
        ElectLeadersResponsePartitionResult,
        ElectLeadersResponseReplicaElectionResult,
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
        ListPartitionReassignmentsResponsePartition,
        ListPartitionReassignmentsResponseTopic,
    )

_PREFERRED: Final = 0


def _attempt(action: Callable[[], None]) -> tuple[int, str | None]:
    """Return the error code and the error message of an attempt."""
    try:
        action()
    except errors.BrokerError as error:
        return error.code, str(error)
    return errors.NONE, None


def handle_elect(
    cluster: Administration, request: Request[ElectLeadersRequest, ElectLeadersResponse]
) -> None:
    """Answer an ElectLeaders request."""
    body = request.body
    kind = body["election_type"] if request.version else _PREFERRED
    topics: list[ElectLeadersResponseReplicaElectionResult] = []
    results: list[ElectLeadersResponsePartitionResult] = []

    def elect(authority: AdminOperations) -> None:
        asked = body["topic_partitions"]
        everything = asked is None
        if asked is None:
            asked = authority.all_partitions()
        for topic in asked:
            elected: list[ElectLeadersResponsePartitionResult] = []
            for index in topic["partitions"]:
                code, message = _attempt(partial(authority.elect, topic["topic"], index, kind))
                elected.append(
                    {"partition_id": index, "error_code": code, "error_message": message}
                )
            if everything:
                # For all partitions, only those whose leader changed or should have are returned.
                needed = errors.ElectionNotNeeded.code
                elected = [each for each in elected if each["error_code"] != needed]
            if elected:
                topics.append({"topic": topic["topic"], "partition_result": elected})
                results.extend(elected)

    cluster.administer(
        elect, answer_each(lambda: request.reply({"replica_election_results": topics}), results)
    )


def handle_reassign(
    cluster: Administration,
    request: Request[AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse],
) -> None:
    """Answer an AlterPartitionReassignments request (KIP-455)."""
    body = request.body
    may_resize = body["allow_replication_factor_change"]
    responses: list[AlterPartitionReassignmentsResponseResult] = []
    results: list[AlterPartitionReassignmentsResponsePartition] = []

    def reassign(authority: AdminOperations) -> None:
        for topic in body["topics"]:
            partitions: list[AlterPartitionReassignmentsResponsePartition] = []
            for asked in topic["partitions"]:
                index = asked["partition_index"]
                move = partial(
                    authority.reassign,
                    topic["name"],
                    index,
                    asked["replicas"],
                    may_resize=may_resize,
                )
                code, message = _attempt(move)
                partitions.append(
                    {"partition_index": index, "error_code": code, "error_message": message}
                )
            responses.append({"name": topic["name"], "partitions": partitions})
            results.extend(partitions)

    answer: AlterPartitionReassignmentsResponse = {
        "error_message": None,
        "allow_replication_factor_change": may_resize,
        "responses": responses,
    }
    cluster.administer(reassign, answer_each(lambda: request.reply(answer), results))


def handle_list_reassignments(
    cluster: Administration,
    request: Request[ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse],
) -> None:
    """Answer a ListPartitionReassignments request."""
    asked = request.body["topics"]
    topics: list[ListPartitionReassignmentsResponseTopic] = []

    def find(authority: AdminOperations) -> None:
        wanted = None
        if asked is not None:
            wanted = {
                (each["name"], index) for each in asked for index in each["partition_indexes"]
            }
        found: dict[str, list[ListPartitionReassignmentsResponsePartition]] = {}
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

    cluster.administer(
        find, answer_each(lambda: request.reply({"error_message": None, "topics": topics}), [])
    )
