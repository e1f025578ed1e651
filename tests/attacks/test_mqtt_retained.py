"""What is retained of a device is the same at each of several workers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from tests.attacks.workers import Workers, workers
from tests.consumers.running import Broker
from tests.gateway.mqtt.in_memory import PahoClient
from tests.gateway.running import Login, json_of
from waylog.observability.telemetry import now_ms

#: Connections: with three workers all but surely some to each.
CONNECTIONS = 16


@pytest.fixture(scope="module")
def platform(gateway_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    folder = tmp_path_factory.mktemp("retained")
    with workers(folder, gateway_broker.address, 3) as running:
        yield running


async def connected(platform: Workers, login: Login, number: int) -> PahoClient:
    client = PahoClient(platform.mqtt_port, f"{login.name}-{number}", version=5)
    await client.connect(*login)
    return client


@pytest.mark.parametrize("kind", ["transition", "encrypted", "location"])
async def test_an_old_retained_message_hides_the_newest_position_at_no_worker(
    platform: Workers, kind: str
) -> None:
    ada, root = platform.user(f"ada-{kind}"), platform.user(f"root-{kind}", admin=True)
    topic = f"owntracks/{ada.name}/phone"
    seconds = now_ms() // 1000
    own = {"_type": kind, "tst": seconds - 100, "event": "enter", "lat": 1, "lon": 2, "data": "x"}
    publisher = await connected(platform, ada, 100)
    await publisher.publish(topic, json.dumps(own), retain=True)
    position = {"device": "phone", "lat": 3.5, "lon": 4, "time": seconds * 1000}
    async with platform.client(ada) as http:
        await json_of(await http.post("/v1/positions", json=position))
        async with asyncio.timeout(60):
            while True:
                answer = await http.get(f"/v1/devices/{ada.name}%2Fphone")
                if answer.ok and "3.5" in await answer.text():
                    break
                await asyncio.sleep(0.05)
    for login in (ada, root):
        for topic_filter in (topic, f"owntracks/{ada.name}/+"):
            clients = [await connected(platform, login, n) for n in range(CONNECTIONS)]
            for client in clients:
                await client.subscribe(topic_filter)
            told = [json.loads((await client.message()).payload) for client in clients]
            for client in clients:
                assert client.messages.empty()
                await client.close()
            assert [each["lat"] for each in told] == [3.5] * CONNECTIONS
    await publisher.close()
