"""Metrics and status page of a cluster."""

from __future__ import annotations

import asyncio
import math

import pytest

from broker_core.server.runtime import Broker
from tests.broker_core.server.cluster.conftest import TIMEOUT_S, StartTrio
from tests.broker_core.server.cluster.test_cluster import Connect, create, partitions
from tests.broker_core.server.test_metrics import asked, get, values


async def page(broker: Broker) -> str:
    head, _, body = (await get(broker, asked(broker, "/"))).partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK")
    return body


async def test_metrics_and_page_name_the_quorum_and_what_is_under_replicated(
    start_trio: StartTrio, connect: Connect
) -> None:
    trio = await start_trio(metrics_listener="127.0.0.1:0")
    client = await connect(trio.brokers[trio.active])
    await create(client, "t-1-", 3)
    await trio.until(lambda broker: broker.topics.get("t-1-") is not None)
    active = trio.active
    found = await values(trio.brokers[active])
    assert found["quorum_leader",] == active
    assert found["quorum_voters",] == 3
    assert {name[1] for name in found if name[0] == "quorum_lag"} == {
        str(node) for node in trio.brokers if node != active
    }
    assert "None." in await page(trio.brokers[active])
    stopped = next(node for node in trio.brokers if node != active)
    await trio.stop(stopped)
    broker = trio.brokers[active]
    await trio.until(
        lambda broker: all(stopped not in each.isr for each in partitions(broker, "t-1-"))
    )
    text = await page(broker)
    assert "3 under-replicated, 0 without a leader" in text
    assert "t-1--0" in text
    assert sum([(await values(each))["under_replicated_partitions",] for each in
                trio.brokers.values()]) == 3  # fmt: skip


async def test_a_broker_without_a_controller_says_so_soon_and_claims_nothing_of_replicas(
    start_trio: StartTrio, caplog: pytest.LogCaptureFixture
) -> None:
    trio = await start_trio(
        metrics_listener="127.0.0.1:0", controller_quorum_fetch_timeout_ms="2000"
    )
    alone, *others = trio.brokers
    health = b"GET /healthz HTTP/1.1\r\n\r\n"
    assert "200 OK" in await get(trio.brokers[alone], health)
    assert (await values(trio.brokers[alone]))["under_replicated_partitions",] == 0
    await trio.stop(*others)
    began = asyncio.get_running_loop().time()
    async with asyncio.timeout(TIMEOUT_S):
        while "503" not in (said := await get(trio.brokers[alone], health)):
            await asyncio.sleep(0.05)
    took_s = asyncio.get_running_loop().time() - began
    assert "controller: " in said
    assert "Not up to date: " in await page(trio.brokers[alone])
    assert math.isnan((await values(trio.brokers[alone]))["under_replicated_partitions",])
    async with asyncio.timeout(TIMEOUT_S):
        while "no controller has answered for" not in caplog.text:
            await asyncio.sleep(0.05)
    assert took_s < 30, took_s
    await trio.start(others[0])
    async with asyncio.timeout(TIMEOUT_S):
        while "200 OK" not in await get(trio.brokers[alone], health):
            await asyncio.sleep(0.05)
    assert "a controller answers again" in caplog.text
