"""A gateway whose log cannot store, since brokers are missing, is not ready while nobody writes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.contract.cluster_processes import ClusterProcesses
from tests.gateway.observability.test_readiness import post, until_ready
from tests.gateway.running import Gateway
from waylog.kafka.clients import ensure_topics


async def test_an_idle_gateway_that_hears_one_of_three_brokers_is_not_ready(
    tmp_path: Path,
) -> None:
    cluster = ClusterProcesses(tmp_path)
    servers = await asyncio.to_thread(cluster.start)
    try:
        await asyncio.to_thread(ensure_topics, servers)
        (tmp_path / "gateway").mkdir()
        gateway = Gateway(tmp_path / "gateway", servers)
        try:
            await until_ready(gateway, ready=True)
            # In order, so that the third one leads all, and all readers hear it.
            await asyncio.to_thread(cluster.brokers[2].stop)
            await asyncio.to_thread(cluster.brokers[3].stop)
            body = await until_ready(gateway, ready=False, timeout_s=60)
            async with asyncio.timeout(60):
                while "appending" not in body["parts"]:
                    body = await until_ready(gateway, ready=False, timeout_s=60)
                    await asyncio.sleep(0.1)
            assert "are the brokers 2, 3 running" in body["parts"]["appending"]
            login = gateway.user("anna")
            assert await post(gateway, login, 1) == 503
            body = await until_ready(gateway, ready=False, timeout_s=60)
            assert "disk" not in body["parts"]["appending"]
            await asyncio.to_thread(cluster.start, 2)
            await until_ready(gateway, ready=True, timeout_s=60)
            assert await post(gateway, login, 1) == 200
        finally:
            await asyncio.to_thread(gateway.close)
    finally:
        cluster.stop()
