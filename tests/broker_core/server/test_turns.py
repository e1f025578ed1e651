"""How long one request about many things keeps a broker from what others ask."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from broker_core.protocol import definitions as api
from broker_core.protocol.schema import AnyApi
from broker_core.server.runtime import Broker
from tests.attacks.turns import TURN_MS_MAX, measured_turns
from tests.broker_core.server.raw_client import TIMEOUT_S, request_frame
from tests.broker_core.server.topics import create_topic, start_coordinators
from waylog.config import Endpoint

_TOPICS = [f"t{number}" for number in range(300)]
_NEW = [f"new{number}" for number in range(8_000)]


def _new_topic(name: str) -> dict[str, Any]:
    return {"name": name, "num_partitions": 1, "replication_factor": 1}


def _each(make: Callable[[str], dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    return [make(name) for name in names]


_VALIDATED = {"timeout_ms": 1_000, "validate_only": True}
_SETTINGS = [{"resource_type": 2, "resource_name": name} for name in _TOPICS]
_VERBOSE = {"include_synonyms": True, "include_documentation": True}

#: Each of these took more than the limit when it was handled in one turn.
ASKED: list[tuple[AnyApi, int, dict[str, Any]]] = [
    (api.CREATE_TOPICS, 5, {"topics": _each(_new_topic, _NEW[:3_000]), **_VALIDATED}),
    (api.DESCRIBE_CONFIGS, 4, {"resources": _SETTINGS, **_VERBOSE}),
    (api.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": _NEW}),
]


@pytest.fixture(scope="module")
def frames() -> list[tuple[str, bytes]]:
    """The requests, encoded: that is the client's work."""
    return [(asked.name, request_frame(asked, version, body)) for asked, version, body in ASKED]


async def test_no_request_about_many_things_keeps_others_waiting(
    broker: Broker, frames: list[tuple[str, bytes]]
) -> None:
    for name in _TOPICS:
        create_topic(broker, name, 1, {})
    await start_coordinators(broker)
    took: dict[str, float] = {}
    with measured_turns() as turns:
        for name, frame in frames:
            took[name] = await turns.least_worst(lambda: _ask(broker.endpoint, frame))  # noqa: B023
    assert {name: each for name, each in took.items() if each > TURN_MS_MAX} == {}


async def _ask(endpoint: Endpoint, frame: bytes) -> None:
    """Send a request and read its answer in another thread, whose time does not count."""
    size = await asyncio.to_thread(_answer_size, endpoint, frame)
    assert size, "the broker has disconnected the client"


def _answer_size(endpoint: Endpoint, frame: bytes) -> int:
    address = endpoint.host, endpoint.port
    with socket.create_connection(address, TIMEOUT_S) as client, client.makefile("rb") as answers:
        client.sendall(frame)
        return len(answers.read(int.from_bytes(answers.read(4))))
