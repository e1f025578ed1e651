"""MQTT sessions across restarts and several processes of a gateway, on a real broker."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from typing import Final

import pytest

from tests.consumers.running import Broker, Process
from tests.gateway.mqtt.in_memory import PahoClient, address, eventually
from tests.gateway.running import Gateway

TOPIC: Final = "devices/ada/phone/note"


class MqttGateway(Gateway):
    """A gateway that listens for MQTT, too; on the same port after a restart."""

    mqtt = "127.0.0.1:0"

    def start(self) -> None:
        self.process = Process(
            *("gateway", "--bootstrap-servers", self.bootstrap_servers, "--http", self.http),
            *("--mqtt", self.mqtt, "--data", str(self.folder), "--open", *self._options),
        )
        ready = self.process.wait_for(r"gateway ready http=(\S+) mqtt=(\S+)")
        self.http, self.mqtt = ready.group(1), ready.group(2)

    @property
    def port(self) -> int:
        return int(self.mqtt.rpartition(":")[2])


async def test_a_session_outlives_its_gateway(gateway_broker: Broker, tmp_path: Path) -> None:
    gateway = MqttGateway(tmp_path, gateway_broker.address)
    try:
        phone = PahoClient(gateway.port, "phone", clean_session=False)
        assert (await phone.connect("ada"))[1] is False
        await phone.subscribe(TOPIC)
        await phone.subscribe("devices/ada/phone/address")
        await phone.close()
        sender = PahoClient(gateway.port, "sender")
        await sender.connect("ada")
        await sender.publish(TOPIC, "waits over an orderly stop")
        await sender.publish("devices/ada/phone/sign", "retained", retain=True)
        await sender.close()
        assert gateway.process.stop() == 0

        gateway.start()
        phone = PahoClient(gateway.port, "phone", clean_session=False)
        assert (await phone.connect("ada"))[1] is True
        assert (await phone.message()).payload == b"waits over an orderly stop"
        await phone.subscribe("devices/ada/phone/sign")
        assert (await phone.message()).payload == b"retained"
        await phone.close()

        # A crash within the next milliseconds would deliver the message again.
        key = b"session\0ada\0phone"
        await eventually(lambda: b"waiting" not in dict(gateway.records("mqtt-state"))[key])
        gateway.kill()
        gateway.publish(address("ada/phone"))
        gateway.start()
        phone = PahoClient(gateway.port, "phone", clean_session=False)
        assert (await phone.connect("ada"))[1] is True
        news = await phone.message()
        assert news.topic == "devices/ada/phone/address"
        await phone.close()
    finally:
        gateway.close()


async def fill(gateway: MqttGateway, user: str, sessions: int, messages: int) -> None:
    """Have messages wait for clients that are away."""
    topic = f"devices/{user}/all/note"
    for number in range(sessions):
        client = PahoClient(gateway.port, f"c{number}", clean_session=False)
        await client.connect(user)
        await client.subscribe(topic)
        await client.close()
    sender = PahoClient(gateway.port, "sender")
    await sender.connect(user)
    for number in range(messages):
        sender.client.publish(topic, b"%06d" % number + bytes(1000), 1)
    for _ in range(messages):
        await sender.published.get()
    await sender.close()


async def everything_is_there(
    gateway: MqttGateway, user: str, sessions: int, messages: int
) -> None:
    for number in range(sessions):
        client = PahoClient(gateway.port, f"c{number}", clean_session=False)
        assert (await client.connect(user))[1] is True
        received = [int((await client.message()).payload[:6]) for _ in range(messages)]
        assert received == list(range(messages))
        await client.close()
        assert client.messages.empty()


@pytest.mark.parametrize(
    ("users", "sessions"), [(2, 2), pytest.param(20, 15, marks=pytest.mark.long)]
)
async def test_all_that_waits_for_clients_outlives_an_orderly_stop(
    gateway_broker: Broker, tmp_path: Path, users: int, sessions: int
) -> None:
    gateway = MqttGateway(tmp_path, gateway_broker.address)
    names = [f"user{number}" for number in range(users)]
    try:
        for name in names:
            await fill(gateway, name, sessions, 1000)
        started = time.monotonic()
        assert gateway.process.stop() == 0
        stopped = time.monotonic()
        written = re.search(
            r"(\d+) MQTT sessions, with (\d+) messages that wait", gateway.process.output
        )
        assert written is not None
        # The broker also has sessions of other tests, with their waiting messages.
        assert int(written.group(1)) >= users * sessions
        assert int(written.group(2)) >= users * sessions * 1000
        gateway.start()
        print(f"stop {stopped - started:.1f} s, start {time.monotonic() - stopped:.1f} s")
        for name in names:
            await everything_is_there(gateway, name, sessions, 1000)
    finally:
        gateway.close()


async def test_a_client_that_comes_to_another_worker_is_taken_over(
    gateway_broker: Broker, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    workers = [
        MqttGateway(tmp_path / name, gateway_broker.address, "--workers-share-port")
        for name in ("a", "b")
    ]
    try:
        first, second = workers
        old = PahoClient(first.port, "tracker", version=5)
        old.client.reconnect_delay_set(60, 60)
        await old.connect("ada", clean_start=False)
        await old.subscribe(TOPIC)
        new = PahoClient(second.port, "tracker", version=5)
        await new.connect("ada", clean_start=False)
        code = await old.disconnected.get()
        assert code.value == 0x8E
        await new.close()
    finally:
        for worker in workers:
            assert worker.process.stop(signal.SIGTERM) == 0
            worker.users.close()
