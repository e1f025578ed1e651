"""Requests of brokers to the share coordinator: Initialize-, Read-, Write-, DeleteShareGroupState
and ReadShareGroupStateSummary (KIP-932).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker_core import errors
from broker_core.coordinator.share_records import SharePartitionKey, StoredState, batches_of
from broker_core.server.coordination.groups import Stored
from broker_core.server.network.request import Request
from broker_core.server.sharing.share_coordinator_client import state_fields, summary_fields

if TYPE_CHECKING:
    from broker_core.server.runtime import Broker

Fields = dict[str, Any]
#: Called with a share partition, the request's fields for it, and a callback.
_Ask = Callable[[SharePartitionKey, Fields, Callable[[Fields], None]], None]


def _each_place(request: Request, ask: _Ask) -> None:
    """Call `ask` for each partition, and answer when all of them have a result."""
    topics: list[Fields] = []
    waiting = 1

    def one_done() -> None:
        nonlocal waiting
        waiting -= 1
        if not waiting:
            request.reply({"results": topics})

    def collect(result: Fields) -> Callable[[Fields], None]:
        def answered(fields: Fields) -> None:
            result.update(fields)
            one_done()

        return answered

    for topic in request.body["topics"]:
        results: list[Fields] = []
        topics.append({"topic_id": topic["topic_id"], "partitions": results})
        for each in topic["partitions"]:
            place = SharePartitionKey(
                request.body["group_id"], topic["topic_id"], each["partition"]
            )
            result: Fields = {"partition": place.partition}
            results.append(result)
            waiting += 1
            try:
                ask(place, each, collect(result))
            except ValueError:
                collect(result)({"error_code": errors.InvalidRequest.code})
    one_done()


def _code(answered: Callable[[Fields], None]) -> Stored:
    return lambda code: answered({"error_code": code})


def handle_initialize(broker: Broker, request: Request) -> None:
    """Answer an InitializeShareGroupState request."""
    coordinator = broker.share_coordinator
    _each_place(
        request,
        lambda place, asked, answered: coordinator.initialize(
            place, asked["state_epoch"], asked["start_offset"], _code(answered)
        ),
    )


def handle_read(broker: Broker, request: Request) -> None:
    """Answer a ReadShareGroupState request."""
    coordinator = broker.share_coordinator
    _each_place(
        request,
        lambda place, asked, answered: coordinator.read(
            place,
            asked["leader_epoch"],
            lambda code, state: answered(state_fields(code, state)),
        ),
    )


def handle_write(broker: Broker, request: Request) -> None:
    """Answer a WriteShareGroupState request."""
    coordinator = broker.share_coordinator

    def write(place: SharePartitionKey, asked: Fields, answered: Callable[[Fields], None]) -> None:
        state = StoredState(
            asked["start_offset"],
            batches_of(asked["state_batches"]),
            asked["state_epoch"],
            asked["leader_epoch"],
        )
        coordinator.write(place, state, _code(answered))

    _each_place(request, write)


def handle_delete(broker: Broker, request: Request) -> None:
    """Answer a DeleteShareGroupState request."""
    coordinator = broker.share_coordinator
    _each_place(request, lambda place, asked, answered: coordinator.delete(place, _code(answered)))


def handle_summary(broker: Broker, request: Request) -> None:
    """Answer a ReadShareGroupStateSummary request."""
    coordinator = broker.share_coordinator
    _each_place(
        request,
        lambda place, asked, answered: answered(summary_fields(*coordinator.find(place))),
    )
