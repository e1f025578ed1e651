"""A gateway that starts again: what it knew is still known, however much the log holds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.consumers.running import Broker
from tests.gateway.running import Gateway, Login, json_of
from waylog.kafka import ensure_topics
from waylog.messages import decode_fix
from waylog.telemetry import now_ms

NOW = now_ms()
HOUR = 3_600_000
#: Far fewer than the fixes that are sent.
TAIL = ("--view-tail", "5")


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """On a log of its own."""
    (tmp_path / "broker").mkdir()
    broker = Broker(tmp_path / "broker")
    ensure_topics(broker.address)
    running = Gateway(tmp_path, broker.address, *TAIL)
    yield running
    running.close()
    broker.process.stop()


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    for _ in range(1500):
        if await condition():
            return
        await asyncio.sleep(0.02)
    pytest.fail(what)


async def send(gateway: Gateway, user: Login, *positions: dict[str, object]) -> None:
    """Send fixes, and wait until the newest of the last one's device can be read."""
    async with gateway.client(user) as client:
        await json_of(await client.post("/v1/positions", json=list(positions)))


async def newest(gateway: Gateway, user: Login, device: str) -> dict[str, Any] | None:
    async with gateway.client(user) as client:
        answer = await client.get(f"/v1/devices/{user.name}%2F{device}")
        found = await answer.json()
        return found["fix"] if answer.status == 200 else None


async def is_newest(gateway: Gateway, user: Login, device: str, time: int) -> None:
    async def there() -> bool:
        fix = await newest(gateway, user, device)
        return fix is not None and fix["time"] == time

    await until(there, f"the newest fix of {device} is not that of {time}")


def times_in_the_log(gateway: Gateway, device: str) -> list[int]:
    return [
        decode_fix(value).time
        for key, value in gateway.records("location")
        if key == device.encode()
    ]


def busy(count: int) -> list[dict[str, object]]:
    """Fixes of many other devices, in all partitions."""
    return [
        {"device": f"d{number % 50}", "lat": 1, "lon": 2, "time": NOW + number}
        for number in range(count)
    ]


@pytest.mark.parametrize("orderly", [True, False])
async def test_the_newest_fix_and_the_ids_of_a_device_survive_a_restart(
    gateway: Gateway, orderly: bool
) -> None:
    ada, eve = gateway.user("ada"), gateway.user("eve")
    sent = [{"device": "phone", "lat": 47, "lon": 9, "time": NOW + n} for n in range(20)]
    await send(gateway, ada, *sent)
    await send(gateway, eve, *busy(1000))
    await is_newest(gateway, ada, "phone", NOW + 19)
    await is_newest(gateway, eve, "d49", NOW + 999)
    if orderly:
        assert gateway.process.stop() == 0
    else:
        gateway.kill()
    gateway.start()
    await is_newest(gateway, ada, "phone", NOW + 19)
    # A phone that was without a network repeats what it has sent, and sends what it kept.
    late = {"device": "phone", "lat": 1, "lon": 2, "time": NOW - HOUR}
    await send(gateway, ada, *sent, late)
    await send(gateway, eve, *busy(1000))
    await until(
        lambda: asyncio.to_thread(
            lambda: NOW - HOUR in times_in_the_log(gateway, f"{ada.name}/phone")
        ),
        "the late fix is not in the log",
    )
    found = await newest(gateway, ada, "phone")
    assert found is not None
    assert found["time"] == NOW + 19
    assert sorted(times_in_the_log(gateway, f"{ada.name}/phone")) == [
        NOW - HOUR,
        *range(NOW, NOW + 20),
    ]
    assert len(gateway.records("location")) == 1021
