"""Events of the log as notices of a running gateway: choices, repeats, kills, and MQTT."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from gateway.users.database import UserStore
from tests.consumers.running import Broker, await_condition
from tests.gateway.running import Gateway, Login, json_of
from waylog.kafka.clients import producer_config
from waylog.kafka.librdkafka_producer import LibrdkafkaProducer
from waylog.kafka.topics import EVENT
from waylog.messages import Event, encode
from waylog.observability.telemetry import now_ms

NOTICE = "devices/{}/phone/notice"


@pytest.fixture
def own_gateway(gateway_broker: Broker, tmp_path: Path) -> Iterator[Gateway]:
    running = Gateway(tmp_path, gateway_broker.address, "--mqtt", "127.0.0.1:0")
    yield running
    running.close()


class Client:
    """An MQTT client of a user, and what it has received."""

    def __init__(self, gateway: Gateway, login: Login, *filters: str) -> None:
        self.received: list[tuple[str, dict[str, Any]]] = []
        # Its session waits for it, so that it misses nothing between two connections.
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id=f"{login.name}-client", clean_session=False
        )
        self._client.username_pw_set(login.name, login.token)
        self._client.on_message = self._take
        subscribed: list[object] = []
        self._client.on_subscribe = lambda *_: subscribed.append(True)
        found = gateway.process.output.partition("mqtt=")[2].split()[0]
        host, _, port = found.rpartition(":")
        self._client.connect(host, int(port))
        self._client.loop_start()
        self._client.subscribe([(each, 1) for each in filters])
        await_condition(lambda: subscribed, 60, "the subscription")

    def _take(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        self.received.append((message.topic, json.loads(message.payload)))

    def of(self, topic: str) -> list[dict[str, Any]]:
        return [message for where, message in self.received if where == topic]

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def fence_event(login: Login, name: str, *, age_ms: int = 0, **changes: Any) -> Event:
    members = {"transition": "enter", "fence": name, "owner": login.name, "lat": 47.0, "lon": 9.0}
    time = now_ms() - age_ms
    return Event(
        id=f"{login.name}-{name}",
        device=f"{login.name}/phone",
        user=login.name,
        type="geofence",
        time=time,
        received=time,
        source="streams",
        attributes=members | changes,
    )


def append(servers: str, *events: Event | bytes, key: bytes | None = None) -> None:
    producer = LibrdkafkaProducer(producer_config(servers, "test"))
    for each in events:
        value = each if isinstance(each, bytes) else encode(each)
        name = each.device.encode() if key is None and isinstance(each, Event) else key
        producer.produce(EVENT, value, name)
    assert producer.flush(60) == 0


def names(notices: list[dict[str, Any]]) -> list[str]:
    return [each["fence"] for each in notices]


def test_an_event_is_told_once_also_after_a_kill(
    gateway_broker: Broker, own_gateway: Gateway
) -> None:
    ada = own_gateway.user("et-ada")
    topic = NOTICE.format(ada.name)
    client = Client(own_gateway, ada, topic, f"owntracks/{ada.name}/+/event")
    first = fence_event(ada, "first")
    append(gateway_broker.address, b"no event", b"", key=b"et-ada/phone")
    # What somebody else wrote of the device is not told, and does not count as the event itself.
    append(gateway_broker.address, fence_event(ada, "forged"), first, key=b"eve/phone")
    append(gateway_broker.address, first, first, fence_event(ada, "old", age_ms=3_600_000))
    append(gateway_broker.address, fence_event(ada, "late", age_ms=600_000))
    await_condition(lambda: names(client.of(topic)) == ["first", "late"], 60, "two notices")
    assert client.of(topic)[1]["late_s"] >= 600
    place = f"owntracks/{ada.name}/places/event"
    await_condition(lambda: len(client.of(place)) >= 2, 60, "two transitions")
    transitions = client.of(place)
    assert [(each["_type"], each["desc"]) for each in transitions] == [
        *(("transition", "first"), ("transition", "late")),
    ]
    client.close()
    own_gateway.kill()
    # What comes while no gateway runs is told afterwards, what has been told is not; and a topology
    # that was killed itself writes an event again.
    append(gateway_broker.address, fence_event(ada, "meanwhile"), first)
    own_gateway.start()
    client = Client(own_gateway, ada, topic)
    append(gateway_broker.address, first, fence_event(ada, "last"))
    await_condition(lambda: "last" in names(client.of(topic)), 60, "the last notice")
    assert names(client.of(topic)) == ["meanwhile", "last"]
    client.close()


def test_events_of_a_topic_that_was_made_anew_are_told(
    gateway_broker: Broker, tmp_path: Path
) -> None:
    with closing(UserStore(tmp_path / "users.db")) as users:
        # What was told of the topic before was far more than this one has.
        users.notices.set_told(dict.fromkeys(range(1000), 10**9))
    gateway = Gateway(tmp_path, gateway_broker.address, "--mqtt", "127.0.0.1:0")
    try:
        ada = gateway.user("et-anew")
        topic = NOTICE.format(ada.name)
        client = Client(gateway, ada, topic)
        append(gateway_broker.address, fence_event(ada, "anew"))
        await_condition(lambda: names(client.of(topic)) == ["anew"], 60, "the notice")
        client.close()
    finally:
        gateway.close()


async def test_a_user_chooses_of_what_to_be_told(
    gateway_broker: Broker, own_gateway: Gateway
) -> None:
    ada, bob = own_gateway.user("ec-ada"), own_gateway.user("ec-bob")
    topic, path = NOTICE.format(ada.name), f"/v1/devices/{ada.name}%2Fphone/notices"
    usual = ["enter", "leave", "dwell", "silence", "speeding", "meeting"]
    client = Client(own_gateway, ada, topic)
    async with own_gateway.client(ada) as asking:
        found = await json_of(await asking.get(path))
        assert found == {"device": f"{ada.name}/phone", "kinds": usual, "chosen": False}
        for wrong in (b"", b"[]", b'{"kinds":5}', b'{"kinds":["enter",5]}', b'{"kinds":["x"]}'):
            assert (await asking.put(path, data=wrong)).status == 400
        found = await json_of(await asking.put(path, json={"kinds": ["leave", "enter", "leave"]}))
        assert (found["kinds"], found["chosen"]) == (["enter", "leave"], True)
        append(
            gateway_broker.address,
            fence_event(ada, "dwelt", transition="dwell"),
            fence_event(ada, "left", transition="leave"),
        )
        await_condition(lambda: names(client.of(topic)) == ["left"], 60, "what was chosen")
        assert (await asking.delete(path)).status == 204
        assert (await json_of(await asking.get(path)))["kinds"] == usual
    append(gateway_broker.address, fence_event(ada, "dwelt again", transition="dwell"))
    await_condition(lambda: names(client.of(topic)) == ["left", "dwelt again"], 60, "the usual")
    client.close()
    async with own_gateway.client(bob) as asking:
        assert (await asking.get(path)).status == 403
        own_gateway.users.rights.befriend(ada.name, bob.name)
        async with asyncio.timeout(60):
            while (answer := await asking.get(path)).status != 200:
                await asyncio.sleep(0.05)
        assert (await json_of(answer))["kinds"] == []
        assert (await asking.put(path, json={"kinds": ["silence"]})).status == 400
        assert (await asking.put(path, json={"kinds": ["enter"]})).status == 200
    assert own_gateway.users.notices.of_all(f"{ada.name}/phone").keys() == {bob.name}
    own_gateway.users.revoke(ada.name)
    assert own_gateway.users.notices.of_all(f"{ada.name}/phone") == {}
