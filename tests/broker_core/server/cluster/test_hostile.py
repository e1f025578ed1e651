"""Hostile requests to the controllers' listener stop no node."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from broker_core.protocol.definitions import CONTROLLER_APIS, FETCH_METADATA
from broker_core.server.network.peer import Peer, encode_request
from tests.broker_core.protocol.test_definitions import Generator
from tests.broker_core.server.cluster.conftest import TIMEOUT_S, Trio
from tests.broker_core.server.cluster.test_cluster import image
from waylog.config import Endpoint


async def send(endpoint: Endpoint, data: bytes) -> None:
    """Send data, and read until nothing more comes or the connection is closed."""
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    try:
        writer.write(data)
        await writer.drain()
        async with asyncio.timeout(0.05):
            while await reader.read(65536):
                continue
    except (ConnectionError, TimeoutError):
        pass
    finally:
        writer.close()


async def test_random_requests_to_the_active_controller_do_no_harm(trio: Trio) -> None:
    chance = random.Random(1)
    endpoint = dict(trio.brokers[1].config.voters)[trio.active]
    generator = Generator("controllers")
    served = list(CONTROLLER_APIS.values())
    for number in range(30):
        api = served[number % len(served)]
        version = chance.randint(*api.versions)
        body = generator.message(api.request_plan(version))
        frame = bytearray(encode_request(api, version, number, b"x", body))
        if number % 3 == 0:
            for _ in range(3):
                frame[chance.randrange(4, len(frame))] = chance.randrange(256)
        await send(endpoint, bytes(frame))
    # Random epochs may have made the leader resign; another node becomes leader then.
    async with asyncio.timeout(TIMEOUT_S):
        while not any(each.cluster and each.cluster.is_active for each in trio.brokers.values()):
            await asyncio.sleep(0.02)
    await trio.until(lambda broker: not broker.failed.done())
    offset = image(trio.brokers[1]).offset
    await trio.until(lambda broker: image(broker).offset >= offset)


async def test_a_node_of_another_cluster_is_told_so(trio: Trio) -> None:
    endpoint = dict(trio.brokers[1].config.voters)[trio.active]
    peer = Peer(endpoint, "stranger")
    body: Any = {"cluster_id": "another", "replica_id": 9}
    answer = await peer.call(FETCH_METADATA, 0, body)
    peer.close()
    assert answer is not None
    assert answer["error_code"] == 104
