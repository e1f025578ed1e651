"""The bridge against a cluster whose every packet the test decides."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.gateway.bridge.test_bridge import Bridge, location
from tests.gateway.mqtt.in_memory import eventually
from tests.tcp_server import tcp_server

CONNECT, CONNACK, PUBLISH_QOS_1, PUBACK, SUBSCRIBE = 0x10, 0x20, 0x32, 0x40, 0x82


class Connection:
    """One connection of the bridge, in MQTT 3.1.1."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.over = asyncio.Event()

    async def receive(self, kind: int) -> bytes:
        """Return what the next packet, which must be of a kind, has behind its header."""
        async with asyncio.timeout(60):
            head = await self._reader.readexactly(2)
            assert head[0] == kind
            assert head[1] < 128
            return await self._reader.readexactly(head[1])

    async def accept(self, *codes: int) -> None:
        """Answer CONNECT, and the two subscriptions with these codes."""
        await self.receive(CONNECT)
        self._writer.write(bytes((CONNACK, 2, 0, 0)))
        packet_id = (await self.receive(SUBSCRIBE))[:2]
        self._writer.write(b"\x90\x04" + packet_id + bytes(codes or (1, 1)))

    def deliver(self, packet_id: int, topic: str | bytes, payload: bytes) -> None:
        """Deliver a message that has to be acknowledged."""
        name = topic.encode() if isinstance(topic, str) else topic
        body = len(name).to_bytes(2, "big") + name + packet_id.to_bytes(2, "big")
        body += payload
        assert len(body) < 128
        self._writer.write(bytes((PUBLISH_QOS_1, len(body))) + body)

    async def acknowledged(self) -> int:
        """Return the packet id of the next packet, a PUBACK."""
        return int.from_bytes(await self.receive(PUBACK), "big")


@asynccontextmanager
async def scripted_cluster() -> AsyncIterator[tuple[int, asyncio.Queue[Connection]]]:
    """Yield the port of a cluster, and the connections that come."""
    connections: asyncio.Queue[Connection] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        connections.put_nowait(connection)
        await connection.over.wait()

    async with tcp_server(serve) as port:
        yield port, connections


async def test_what_came_by_an_earlier_connection_is_not_acknowledged_on_a_later_one() -> None:
    # A packet id is that of another message then, which the log may not have.
    async with scripted_cluster() as (port, connections):
        bridge = Bridge(port, version=4)
        bridge.log.hold = True
        bridge.cluster.start()
        first = await connections.get()
        await first.accept()
        first.deliver(1, "owntracks/ada/phone", location(1))
        await eventually(lambda: len(bridge.log.waiting) == 1)
        first.over.set()
        async with asyncio.timeout(60):
            second = await connections.get()
        await second.accept()
        for number in (1, 2):
            second.deliver(number, "owntracks/bob/phone", location(number))
        await eventually(lambda: len(bridge.log.waiting) == 3)
        of_first, of_second, of_third = bridge.log.waiting
        of_first.set_result(None)
        await eventually(lambda: bridge.inbound.counters["appended"] == 1)
        of_third.set_result(None)
        assert await second.acknowledged() == 2
        of_second.set_result(None)
        assert await second.acknowledged() == 1
        await bridge.cluster.close()


async def test_a_bridge_whose_subscription_is_refused_says_so_and_tries_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scripted_cluster() as (port, connections):
        bridge = Bridge(port, version=4)
        bridge.cluster.start()
        first = await connections.get()
        await first.accept(1, 0x80)
        await eventually(lambda: bridge.cluster.disconnections == 1)
        first.over.set()
        second = await connections.get()
        assert bridge.cluster.connections == 0
        assert not bridge.cluster.ready.is_set()
        await second.accept(1, 1)
        await eventually(bridge.cluster.ready.is_set)
        await bridge.cluster.close()
    said = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert len(said) == 1
    assert said[0].startswith("the MQTT cluster refuses a subscription: ")
    assert bridge.cluster.connections == 1


async def test_a_topic_that_is_no_text_is_left_out_and_what_follows_is_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scripted_cluster() as (port, connections):
        bridge = Bridge(port, version=4)
        bridge.cluster.start()
        cluster = await connections.get()
        await cluster.accept()
        cluster.deliver(1, b"owntracks/ada/\xff", location(1))
        cluster.deliver(2, "owntracks/ada/phone", location(2))
        assert await cluster.acknowledged() == 1
        assert await cluster.acknowledged() == 2
        assert bridge.inbound.counters["appended"] == 1
        await bridge.cluster.close()
    assert "its topic is no UTF-8" in caplog.text
