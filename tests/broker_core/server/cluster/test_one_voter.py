"""A cluster with one broker, which is the only voter."""

from __future__ import annotations

import asyncio
from pathlib import Path

from broker_core.configuration.config import BrokerConfig
from broker_core.server.runtime import start_broker
from tests.broker_core.server.cluster.conftest import TIMEOUT_S
from tests.ports import reserved_ports


async def test_a_cluster_of_one_voter_serves_on_its_first_start_and_on_the_next(
    tmp_path: Path,
) -> None:
    clients, controller = reserved_ports(2)
    config = BrokerConfig.from_properties(
        {
            "node.id": "1",
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://127.0.0.1:{clients},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(tmp_path / "logs"),
            "controller.quorum.election.timeout.ms": "300",
        }
    )
    cluster_ids = set()
    for _ in range(2):
        async with asyncio.timeout(TIMEOUT_S):
            broker = await start_broker(config)
        assert broker.cluster is not None
        assert broker.cluster.controller_id == 1
        cluster_ids.add(broker.cluster.image.cluster_id)
        await broker.close()
    assert len(cluster_ids) == 1
