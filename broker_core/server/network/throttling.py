"""Counts what requests cost against the quotas of their clients, and makes those wait."""

from __future__ import annotations

from typing import Any, Final

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
from broker_core.server.network.request import Request

#: However much was taken at once, nobody waits longer: a quota should slow down, not cut off.
_THROTTLE_MS_MAX: Final = 30_000
_MUTATIONS: Final = frozenset({CREATE_TOPICS.key, CREATE_PARTITIONS.key, DELETE_TOPICS.key})


class Throttling:
    """Quotas at work; used only while there are any."""

    def __init__(self, quotas: ClientQuotas, clock: Clock) -> None:
        self._quotas = quotas
        self._clock = clock

    def before(self, request: Request) -> None:
        """A request is about to be handled."""
        key = request.header.api.key
        if key == PRODUCE.key:
            self._charge(request, PRODUCER_BYTE_RATE, request.size)
        elif key == FETCH.key:
            amend = request.amend

            def count(response: dict[str, Any]) -> None:
                if amend is not None:
                    amend(response)
                self._charge(request, CONSUMER_BYTE_RATE, _record_bytes(response))

            request.amend = count
        elif key in _MUTATIONS:
            self._charge(request, CONTROLLER_MUTATION_RATE, _mutations(request))

    def after(self, request: Request, seconds: float) -> None:
        """The handler has worked for so long."""
        self._charge(request, REQUEST_PERCENTAGE, seconds * 100)

    def _charge(self, request: Request, quota: str, amount: float) -> None:
        wait_ms = self._quotas.charge(
            quota, request.principal.name, request.client_id, amount, self._clock.monotonic()
        )
        if wait_ms:
            request.throttle(min(wait_ms, _THROTTLE_MS_MAX))


def _record_bytes(response: dict[str, Any]) -> int:
    return sum(
        len(partition["records"] or b"")
        for topic in response.get("responses", ())
        for partition in topic["partitions"]
    )


def _mutations(request: Request) -> int:
    """Partitions that are made; a deletion counts as one."""
    body = request.body
    if request.header.api.key == DELETE_TOPICS.key:
        return len(body["topics"]) or len(body["topic_names"])
    return sum(max(each.get("num_partitions", each.get("count", 1)), 1) for each in body["topics"])
