"""Requests of brokers to the share coordinator: Initialize-, Read-, Write-, DeleteShareGroupState
and ReadShareGroupStateSummary (KIP-932).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from broker_core import errors
from broker_core.coordinator.sharing.share_records import SharePartitionKey, StoredState, batches_of
from broker_core.server.coordination.groups import Stored
from broker_core.server.network.request import AnyRequest, Request
from broker_core.server.sharing.share_coordinator import ShareCoordinator
from broker_core.server.sharing.share_coordinator_client import state_fields, summary_fields

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        DeleteShareGroupStateRequest,
        DeleteShareGroupStateResponse,
        InitializeShareGroupStateRequest,
        InitializeShareGroupStateRequestPartition,
        InitializeShareGroupStateResponse,
        ReadShareGroupStateRequest,
        ReadShareGroupStateRequestPartition,
        ReadShareGroupStateResponse,
        ReadShareGroupStateSummaryRequest,
        ReadShareGroupStateSummaryResponse,
        WriteShareGroupStateRequest,
        WriteShareGroupStateRequestPartition,
        WriteShareGroupStateResponse,
    )

_Asked = TypeVar("_Asked")
#: The fields of a partition in a response, apart from its number.
_Answer = Callable[[Mapping[str, object]], None]
#: Called with a share partition, the request's fields for it, and a callback.
_Ask = Callable[[SharePartitionKey, _Asked, _Answer], None]


def _each_place(request: AnyRequest, ask: _Ask[Any]) -> None:
    """Call `ask` for each partition, and answer when all of them have a result.

    Requests and responses of all these APIs differ only in the fields of a partition.
    """
    topics: list[dict[str, object]] = []
    waiting = 1

    def one_done() -> None:
        nonlocal waiting
        waiting -= 1
        if not waiting:
            request.reply({"results": topics})

    def collect(result: dict[str, object]) -> _Answer:
        def answered(fields: Mapping[str, object]) -> None:
            result.update(fields)
            one_done()

        return answered

    for topic in request.body["topics"]:
        results: list[dict[str, object]] = []
        topics.append({"topic_id": topic["topic_id"], "partitions": results})
        for each in topic["partitions"]:
            place = SharePartitionKey(
                request.body["group_id"], topic["topic_id"], each["partition"]
            )
            result: dict[str, object] = {"partition": place.partition}
            results.append(result)
            waiting += 1
            try:
                ask(place, each, collect(result))
            except ValueError:
                collect(result)({"error_code": errors.InvalidRequest.code})
    one_done()


def _code(answered: _Answer) -> Stored:
    return lambda code: answered({"error_code": code})


def handle_initialize(
    coordinator: ShareCoordinator,
    request: Request[InitializeShareGroupStateRequest, InitializeShareGroupStateResponse],
) -> None:
    """Answer an InitializeShareGroupState request."""

    def initialize(
        place: SharePartitionKey,
        asked: InitializeShareGroupStateRequestPartition,
        answered: _Answer,
    ) -> None:
        coordinator.initialize(place, asked["state_epoch"], asked["start_offset"], _code(answered))

    _each_place(request, initialize)


def handle_read(
    coordinator: ShareCoordinator,
    request: Request[ReadShareGroupStateRequest, ReadShareGroupStateResponse],
) -> None:
    """Answer a ReadShareGroupState request."""

    def read(
        place: SharePartitionKey, asked: ReadShareGroupStateRequestPartition, answered: _Answer
    ) -> None:
        coordinator.read(
            place,
            asked["leader_epoch"],
            lambda code, state: answered(state_fields(code, state)),
        )

    _each_place(request, read)


def handle_write(
    coordinator: ShareCoordinator,
    request: Request[WriteShareGroupStateRequest, WriteShareGroupStateResponse],
) -> None:
    """Answer a WriteShareGroupState request."""

    def write(
        place: SharePartitionKey, asked: WriteShareGroupStateRequestPartition, answered: _Answer
    ) -> None:
        state = StoredState(
            asked["start_offset"],
            batches_of(asked["state_batches"]),
            asked["state_epoch"],
            asked["leader_epoch"],
        )
        coordinator.write(place, state, _code(answered))

    _each_place(request, write)


def handle_delete(
    coordinator: ShareCoordinator,
    request: Request[DeleteShareGroupStateRequest, DeleteShareGroupStateResponse],
) -> None:
    """Answer a DeleteShareGroupState request."""
    _each_place(request, lambda place, asked, answered: coordinator.delete(place, _code(answered)))


def handle_summary(
    coordinator: ShareCoordinator,
    request: Request[ReadShareGroupStateSummaryRequest, ReadShareGroupStateSummaryResponse],
) -> None:
    """Answer a ReadShareGroupStateSummary request."""
    _each_place(
        request,
        lambda place, asked, answered: answered(summary_fields(*coordinator.find(place))),
    )
