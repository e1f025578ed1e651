"""Charges requests to the quotas of their clients, and throttles clients that exceed them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker_core.environment import Clock
from broker_core.protocol.definitions import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    PRODUCE,
)
from broker_core.security.quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotas,
)
from broker_core.server.network.request import AnyRequest

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        CreatePartitionsRequest,
        CreateTopicsRequest,
        DeleteTopicsRequest,
        FetchResponse,
    )

#: Milliseconds of one throttle at most: a quota should slow clients down, not cut them off.
_THROTTLE_MS_MAX: Final = 30_000
_MUTATIONS: Final = frozenset({CREATE_TOPICS.key, CREATE_PARTITIONS.key, DELETE_TOPICS.key})


class Throttling:
    """Applies client quotas; used only while there are any."""

    def __init__(
        self, quotas: ClientQuotas, partition_count: Callable[[str], int | None], clock: Clock
    ) -> None:
        """`partition_count` returns the partitions of a topic, None if there is no such topic."""
        self._quotas = quotas
        self._partition_count = partition_count
        self._clock = clock

    def before(self, request: AnyRequest) -> None:
        """Charge a request before its handler runs."""
        key = request.header.api.key
        if key == PRODUCE.key:
            self._charge(request, PRODUCER_BYTE_RATE, request.size)
        elif key == FETCH.key:
            request.amend_with(
                lambda response: self._charge(request, CONSUMER_BYTE_RATE, _record_bytes(response))
            )
        elif key in _MUTATIONS:
            self._charge(request, CONTROLLER_MUTATION_RATE, self._mutations(request))

    def after(self, request: AnyRequest, seconds: float) -> None:
        """Charge the seconds that the handler ran."""
        self._charge(request, REQUEST_PERCENTAGE, seconds * 100)

    def _charge(self, request: AnyRequest, quota: str, amount: float) -> None:
        wait_ms = self._quotas.charge(
            quota, request.principal.name, request.client_id, amount, self._clock.monotonic()
        )
        if wait_ms:
            request.throttle(min(wait_ms, _THROTTLE_MS_MAX))

    def _mutations(self, request: AnyRequest) -> int:
        """Return the partitions that a request creates or deletes (KIP-599)."""
        key = request.header.api.key
        if key == DELETE_TOPICS.key:
            deleted: DeleteTopicsRequest = request.body
            names: list[str | None] = [*deleted["topic_names"]]
            names += (each["name"] for each in deleted["topics"])
            # A topic may be named by its id alone.
            return sum(1 if each is None else self._partition_count(each) or 0 for each in names)
        if key == CREATE_PARTITIONS.key:
            grown: CreatePartitionsRequest = request.body
            return sum(self._added(each["name"], each["count"]) for each in grown["topics"])
        created: CreateTopicsRequest = request.body
        return sum(
            len(each["assignments"]) or max(each["num_partitions"], 1) for each in created["topics"]
        )

    def _added(self, name: str, count: int) -> int:
        """Return how many partitions a topic gets, 0 if the request will be refused."""
        present = self._partition_count(name)
        return 0 if present is None else max(count - present, 0)


def _record_bytes(response: FetchResponse) -> int:
    return sum(
        len(partition["records"] or b"")
        for topic in response.get("responses", ())
        for partition in topic["partitions"]
    )
