"""Adds current leaders to refusals, which saves clients a Metadata request (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from broker_core import errors

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        FetchResponse,
        FetchResponsePartition,
        ProduceResponse,
        ProduceResponsePartition,
        ShareAcknowledgeResponse,
        ShareAcknowledgeResponsePartition,
        ShareFetchResponse,
        ShareFetchResponsePartition,
    )
    from broker_core.server.network.request import AnyRequest
    from broker_core.server.runtime import Broker

    _Response = ProduceResponse | FetchResponse | ShareFetchResponse | ShareAcknowledgeResponse
    _Result = (
        ProduceResponsePartition
        | FetchResponsePartition
        | ShareFetchResponsePartition
        | ShareAcknowledgeResponsePartition
    )

_MOVED: Final = frozenset({errors.NotLeaderOrFollower.code, errors.FencedLeaderEpoch.code})


def add_leaders(
    broker: Broker,
    request: AnyRequest,
    response: _Response,
    results: Iterable[tuple[str, int, _Result]],
) -> None:
    """Add the current leader to results (topic, partition, result) of a former leader."""
    image = broker.cluster.image
    leaders: set[int] = set()
    for topic, index, result in results:
        if result["error_code"] not in _MOVED:
            continue
        partition = image.partition(topic, index)
        if partition is None or partition.leader < 0:
            continue
        result["current_leader"] = {
            "leader_id": partition.leader,
            "leader_epoch": partition.leader_epoch,
        }
        leaders.add(partition.leader)
    if leaders:
        response["node_endpoints"] = [
            {"node_id": each.node_id, "host": each.host, "port": each.port, "rack": each.rack}
            for each in broker.view.nodes(request)
            if each.node_id in leaders
        ]
