"""What one user's clients cost the gateway with the views when they come to another worker."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.mqtt.listening.listener import MqttServer, start_mqtt
from gateway.mqtt.workers.relay import Relay
from gateway.mqtt.workers.relay_client import NoAddresses, RelayClient
from gateway.mqtt.workers.worker_hub import WorkerHub
from gateway.process.mqtt_worker_process import ask_for_retained
from tests.attacks.test_mqtt_turns import packet, subscribe, text
from tests.gateway.mqtt.in_memory import (
    ANY_PORT,
    WAIT_S,
    Addresses,
    MemoryLog,
    Platform,
    Push,
    Users,
    address,
    eventually,
)
from waylog.messages import Address

DEVICES: Final = 1_000
CLIENTS: Final = 40
#: Each reaches all devices of its user.
FILTERS: Final = (
    *("#", "+/#", "+/+/#", "+/+/+/#", "+/+/+/+", "+/+/+/address", "+/eve/#", "+/eve/+/#"),
    *("+/eve/+/+", "+/eve/+/address", "devices/#", "devices/+/#", "devices/+/+/#"),
    *("devices/+/+/address", "devices/eve/#", "devices/eve/+/#", "devices/eve/+/address"),
)
#: Devices that may be looked at for Eve before Bob has a CONNACK of the gateway (some 2,000 are),
#: and before another worker has connected him and sent him what is retained (some 10,000). Without
#: turns these were 17,000 and 85,000.
CONNECT_LOOKS_MAX: Final = 10_000
RETAINED_LOOKS_MAX: Final = 40_000


class CountingAddresses(Addresses):
    """A view that counts how often it is asked."""

    looks = 0
    lists = 0

    def devices(self, user: str | None) -> list[str]:
        self.lists += 1
        return super().devices(user)

    def newest_raw(self, device: str) -> bytes | None:
        return None

    def latest(self, device: str) -> Address | None:
        self.looks += 1
        return super().latest(device)


@dataclass
class Both:
    """The gateway with the views, and a worker without views."""

    gateway: MqttServer
    edge: MqttServer
    addresses: CountingAddresses


@asynccontextmanager
async def both(folder: Path) -> AsyncIterator[Both]:
    addresses = CountingAddresses()
    for number in range(DEVICES):
        device = f"eve/d{number}"
        addresses.by_device[device] = address(device)
    addresses.by_device["bob/phone"] = address("bob/phone")
    platform = Platform(addresses=addresses)
    loop = asyncio.get_running_loop()
    async with platform.listening():
        hub = WorkerHub(loop.call_later, lambda *_: False)
        relay = Relay(platform.server.channel, addresses, hub)
        await relay.start(folder / "relay")
        client = RelayClient(folder / "relay", *[lambda *_: None] * 3)
        running = asyncio.create_task(client.run())
        await client.connected.wait()
        nothing = NoAddresses()
        edge = await start_mqtt(
            ANY_PORT,
            submitter=MemoryLog(),
            authenticator=Users(),
            address_view=nothing,
            location_view=nothing,
            pusher=Push(),
        )
        ask_for_retained(edge, client)
        try:
            yield Both(platform.server, edge, addresses)
        finally:
            await edge.close(0)
            running.cancel()
            await relay.close()


class Client:
    """A client whose requests and answers take only turns of the loop, and no thread's time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connected(cls, server: MqttServer, user: str, name: str) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.endpoint.port)
        client = cls(reader, writer)
        body = text("MQTT") + bytes([4, 0xC2]) + struct.pack(">H", 0) + text(name)
        await client.ask(packet(0x10, body + text(user) + text("x")), 2)
        return client

    async def ask(self, data: bytes, *answers: int) -> None:
        """Send a packet, and wait for packets of these types, one after the other."""
        self._writer.write(data)
        async with asyncio.timeout(WAIT_S):
            for kind in answers:
                while (await self._packet()) >> 4 != kind:
                    pass

    async def _packet(self) -> int:
        (first,) = await self._reader.readexactly(1)
        size, shift, digit = 0, 0, 0x80
        while digit & 0x80:
            (digit,) = await self._reader.readexactly(1)
            size |= (digit & 0x7F) << shift
            shift += 7
        await self._reader.readexactly(size)
        return first

    def cut(self) -> None:
        self._writer.transport.abort()


async def test_filters_of_one_user_keep_nobody_waiting_at_the_gateway_with_the_views(
    tmp_path: Path,
) -> None:
    async with both(tmp_path) as workers:
        storm = [
            await Client.connected(workers.edge, "eve", f"e{number}") for number in range(CLIENTS)
        ]
        for each in storm:
            await each.ask(subscribe(*FILTERS), 9)
        await eventually(lambda: not workers.edge.router.work and workers.addresses.looks > 0)
        before = workers.addresses.looks
        bob = await Client.connected(workers.gateway, "bob", "b1")
        served = workers.addresses.looks
        assert served - before < CONNECT_LOOKS_MAX
        other = await Client.connected(workers.edge, "bob", "b2")
        await other.ask(subscribe("devices/bob/phone/address"), 9, 3)
        assert workers.addresses.looks - served < RETAINED_LOOKS_MAX
        for each in (bob, other, *storm):
            each.cut()


async def test_what_clients_asked_that_have_gone_is_not_looked_for(tmp_path: Path) -> None:
    """Whoever is cut at once costs the gateway what is under way, and no more."""
    async with both(tmp_path) as workers:
        for number in range(CLIENTS):
            eve = await Client.connected(workers.edge, "eve", f"e{number}")
            await eve.ask(subscribe(*FILTERS), 9)
            eve.cut()
        await eventually(lambda: not workers.edge.router.sessions)
        bob = await Client.connected(workers.edge, "bob", "b")
        for _ in range(3):
            await bob.ask(subscribe("devices/bob/phone/address"), 9, 3)
        # Each question lists them at least once.
        assert workers.addresses.lists < CLIENTS * len(FILTERS) // 2
        bob.cut()


async def test_filters_that_match_nothing_of_the_platform_cost_the_gateway_nothing(
    tmp_path: Path,
) -> None:
    async with both(tmp_path) as workers:
        eve = await Client.connected(workers.edge, "eve", "e")
        await eve.ask(subscribe(*(f"owntracks/eve/+/{n}/+/#" for n in range(199))), 9)
        await eve.ask(subscribe("devices/eve/d1/address"), 9, 3)
        assert workers.addresses.lists == 0
        eve.cut()
