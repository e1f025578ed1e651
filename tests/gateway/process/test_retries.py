"""Repeated requests while brokers and gateways die."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp

from tests.consumers.running import Broker
from tests.gateway.running import Gateway, Login, json_of
from waylog.kafka.clients import ensure_topics

TIME = 1_795_000_000_000
FIX = {"device": "phone", "lat": 1, "lon": 2, "time": TIME, "id": "the-one"}


async def until_accepted(
    gateway: Gateway, user: Login, fix: dict[str, object]
) -> tuple[list[int], list[str]]:
    """Repeat a request as an app does until it is accepted; return the statuses and the ids."""
    statuses: list[int] = []
    async with asyncio.timeout(60), gateway.client(user) as client:
        while 200 not in statuses:
            try:
                answer = await client.post("/v1/positions", json=fix)
                told = await answer.json()
                statuses.append(answer.status)
            except aiohttp.ClientError:
                await asyncio.sleep(0.05)
    return statuses, told["ids"]


async def test_a_fix_survives_broker_and_gateway_and_is_stored_once(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    gateway: Gateway | None = None
    try:
        ensure_topics(broker.address)
        gateway = Gateway(tmp_path, broker.address, "--append-timeout", "2")
        user = gateway.user("ada")

        # Concurrent repeats are stored once; a busy broker may need longer than those two seconds.
        every = await asyncio.gather(*(until_accepted(gateway, user, FIX) for _ in range(5)))
        assert {status for statuses, _ in every for status in statuses} <= {200, 503}
        assert len({tuple(ids) for _, ids in every}) == 1

        # Without a broker the answer is 503, in time, and in the end the fix is stored.
        broker.kill()
        second = FIX | {"time": TIME + 1, "id": "the-second"}
        repeating = asyncio.create_task(until_accepted(gateway, user, second))
        async with gateway.client(user) as client:
            refused = await json_of(await client.post("/v1/positions", json=second), 503)
        assert "not stored" in refused["error"]
        await asyncio.to_thread(broker.start)
        statuses, _ = await repeating
        assert statuses[-1] == 200
        assert set(statuses) <= {200, 503}

        # A gateway that was killed knows after its restart what it had stored.
        for fix in (FIX, second):
            gateway.kill()
            await asyncio.to_thread(gateway.start)
            statuses, _ = await until_accepted(gateway, user, fix)
            assert set(statuses) <= {200, 503}

        stored = [value for _, value in gateway.records("location")]
        assert len(stored) == 2
    finally:
        if gateway is not None:
            gateway.close()
        broker.process.stop()


async def test_several_gateways_share_a_port(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    ensure_topics(broker.address)
    first = Gateway(tmp_path, broker.address, "--workers-share-port")
    second = Gateway(tmp_path, broker.address, "--workers-share-port", http=first.http)
    try:
        async with first.client(first.admin) as client:
            await json_of(await client.post("/v1/positions", json=FIX))
        # Each reads the log at its own pace, and only then knows what is a repeat.
        knowing: set[bool] = set()
        seen: set[str] = set()
        async with asyncio.timeout(60):
            while len(knowing) < 2:
                # A new connection each time: the kernel chooses the gateway.
                async with first.client(first.admin) as client:
                    devices = await json_of(await client.get("/v1/devices"))
                    text = await (await client.get("/metrics")).text()
                if devices:
                    knowing.add('source="positions"' in text)
            while len(seen) < 2:
                async with first.client(first.admin) as client:
                    await json_of(await client.post("/v1/positions", json=FIX))
                    uptime = (await json_of(await client.get("/v1/pipeline")))["positions"]
                    text = await (await client.get("/metrics")).text()
                seen.add("first" if 'source="positions"' in text else "second")
                assert uptime
        assert len(first.records("location")) == 1
    finally:
        first.close()
        second.close()
        broker.process.stop()
