"""Sessions of group members, as seen by requests that come before the broker's timer fires."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker_core.environment import Environment, SystemDisk
from broker_core.protocol.definitions import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    JOIN_GROUP,
    LIST_GROUPS,
    SYNC_GROUP,
)
from broker_core.server.runtime import Broker
from tests.broker_core.server.raw_client import RawClient
from tests.broker_core.server.topics import start_coordinators

Connect = Callable[[Broker], Awaitable[RawClient]]
Start = Callable[..., Awaitable[Broker]]


@pytest.fixture
async def start(start: Start) -> Start:
    """Start brokers that coordinate from the beginning."""

    async def run(*arguments: Any, **properties: str) -> Broker:
        broker = await start(*arguments, **properties)
        await start_coordinators(broker)
        return broker

    return run


SESSION_MS = 60_000


class SteppedClock:
    """The system's clock plus a step, of which the event loop's timers do not know."""

    def __init__(self) -> None:
        self.step_s = 0.0

    def now_ms(self) -> int:
        """See Clock."""
        return time.time_ns() // 1_000_000 + int(self.step_s * 1000)

    def monotonic(self) -> float:
        """See Clock."""
        return time.monotonic() + self.step_s


async def join(client: RawClient) -> None:
    """Join group `g` as its only member, a static one."""
    asked: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": SESSION_MS,
        "member_id": "",
        "group_instance_id": "i",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    joined = await client.call(JOIN_GROUP, 5, asked)
    assert joined["error_code"] == 0
    synced = await client.call(
        SYNC_GROUP,
        3,
        {
            "group_id": "g",
            "generation_id": joined["generation_id"],
            "member_id": joined["member_id"],
            "group_instance_id": "i",
            "assignments": [{"member_id": joined["member_id"], "assignment": b""}],
        },
    )
    assert synced["error_code"] == 0


async def test_a_group_is_empty_the_moment_its_last_session_ends(
    start: Start, connect: Connect
) -> None:
    clock = SteppedClock()
    broker = await start(Environment(clock, SystemDisk()))
    client = await connect(broker)
    await join(client)

    described = await client.call(DESCRIBE_GROUPS, 4, {"groups": ["g"]})
    assert described["groups"][0]["group_state"] == "Stable"
    deleted = await client.call(DELETE_GROUPS, 1, {"groups_names": ["g"]})
    assert deleted["results"][0]["error_code"] == 68  # NON_EMPTY_GROUP

    clock.step_s = SESSION_MS / 1000
    listed = await client.call(LIST_GROUPS, 4, {"states_filter": []})
    assert listed["groups"][0]["group_state"] == "Empty"
    deleted = await client.call(DELETE_GROUPS, 1, {"groups_names": ["g"]})
    assert deleted["results"][0]["error_code"] == 0
