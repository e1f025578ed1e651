"""A small MQTT 3.1.1 server controlled by a test: it acknowledges, holds back, or hangs up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from tests.tcp_server import tcp_server

CONNECT, PUBLISH, SUBSCRIBE, PINGREQ, DISCONNECT = 1, 3, 8, 12, 14


class Received(NamedTuple):
    """One PUBLISH as received."""

    topic: str
    payload: bytes
    dup: bool
    acknowledged: bool


class MqttAcceptor:
    """A server that records received messages.

    `acknowledge(n)` is called for the n-th PUBLISH (from 0): False holds the PUBACK back, None
    hangs up instead. `push(topic, payload)` is called for each position and may return a message
    for the subscribers of `devices/<user>/<device>/address`.
    """

    def __init__(self) -> None:
        self.port = 0
        self.received: list[Received] = []
        self.connections = 0
        self.users: list[str] = []
        self.passwords: list[str] = []
        self.connect_answer = 0
        self.acknowledge: Callable[[int], bool | None] = lambda _: True
        self.push: Callable[[str, bytes], bytes | None] = lambda *_: None
        self._subscribers: dict[str, asyncio.StreamWriter] = {}
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def payloads(self) -> list[bytes]:
        """Return the payloads of acknowledged messages."""
        return [each.payload for each in self.received if each.acknowledged]

    def hang_up(self) -> None:
        """Reset all connections, as a killed process does."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.connections += 1
        self._writers.add(writer)
        try:
            while True:
                first = (await reader.readexactly(1))[0]
                body = await reader.readexactly(await _length(reader))
                if not self._answer(first, body, writer):
                    writer.transport.abort()
                    return
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self._writers.discard(writer)
            writer.close()

    def _answer(self, first: int, body: bytes, writer: asyncio.StreamWriter) -> bool:
        kind = first >> 4
        if kind == CONNECT:
            self._connect(body)
            writer.write(bytes((0x20, 2, 0, self.connect_answer)))
        elif kind == SUBSCRIBE:
            size = int.from_bytes(body[2:4], "big")
            self._subscribers[body[4 : 4 + size].decode()] = writer
            writer.write(bytes((0x90, 3)) + body[:2] + b"\x01")
        elif kind == PINGREQ:
            writer.write(b"\xd0\x00")
        elif kind == PUBLISH:
            return self._publish(first, body, writer)
        return kind != DISCONNECT

    def _connect(self, body: bytes) -> None:
        assert body[:7] == b"\x00\x04MQTT\x04"
        texts, position = [], 10
        while position < len(body):
            size = int.from_bytes(body[position : position + 2], "big")
            texts.append(body[position + 2 : position + 2 + size].decode())
            position += 2 + size
        flags = body[7]
        if flags & 0x40:
            self.passwords.append(texts.pop())
        if flags & 0x80:
            self.users.append(texts.pop())

    def _publish(self, first: int, body: bytes, writer: asyncio.StreamWriter) -> bool:
        size = int.from_bytes(body[:2], "big")
        topic, packet_id = body[2 : 2 + size].decode(), body[2 + size : 4 + size]
        payload = body[4 + size :]
        assert first & 0x06 == 0x02, "QoS 1 is expected"
        verdict = self.acknowledge(len(self.received))
        self.received.append(Received(topic, payload, bool(first & 0x08), verdict is True))
        if verdict is None:
            return False
        if verdict:
            writer.write(b"\x40\x02" + packet_id)
        pushed = self.push(topic, payload)
        to = topic.removesuffix("/position") + "/address"
        if pushed is not None and to in self._subscribers:
            head = len(to).to_bytes(2, "big") + to.encode()
            packet = head + pushed
            self._subscribers[to].write(b"\x30" + _encoded_length(len(packet)) + packet)
        return True


@asynccontextmanager
async def mqtt_acceptor() -> AsyncIterator[MqttAcceptor]:
    """Yield an acceptor that listens on a free loopback port."""
    acceptor = MqttAcceptor()
    async with tcp_server(acceptor.serve) as acceptor.port:
        yield acceptor


async def _length(reader: asyncio.StreamReader) -> int:
    value, shift = 0, 0
    while True:
        byte = (await reader.readexactly(1))[0]
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value
        shift += 7


def _encoded_length(size: int) -> bytes:
    encoded = bytearray()
    while True:
        size, byte = divmod(size, 128)
        encoded.append(byte | (0x80 if size else 0))
        if not size:
            return bytes(encoded)
