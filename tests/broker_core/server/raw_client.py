"""A minimal Kafka client for requests that no real client would send."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

from broker_core.protocol.decoder import decode
from broker_core.protocol.definitions import APIS
from broker_core.protocol.encoder import encode
from broker_core.protocol.schema import AnyApi
from waylog.config import Endpoint

TIMEOUT_S = 60.0


def request_frame(
    api: AnyApi,
    version: int,
    body: dict[str, Any],
    correlation_id: int = 1,
    client_id: bytes = b"test",
) -> bytes:
    """Encode a request frame with its length."""
    header = struct.pack(">hhih", api.key, version, correlation_id, len(client_id)) + client_id
    if api.is_flexible(version):
        header += b"\0"
    frame = header + encode(api.request_plan(version), body)
    return struct.pack(">i", len(frame)) + frame


class RawClient:
    """One connection; requests may be pipelined."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.client_id = b"test"
        self.reader = reader
        self.writer = writer
        self._correlation_id = 0

    @classmethod
    async def connect(cls, endpoint: Endpoint) -> RawClient:
        """Connect to a broker."""
        return cls(*await asyncio.open_connection(endpoint.host, endpoint.port))

    def send(self, api: AnyApi, version: int, body: dict[str, Any]) -> int:
        """Send a request; return its correlation id."""
        self._correlation_id += 1
        frame = request_frame(api, version, body, self._correlation_id, self.client_id)
        self.writer.write(frame)
        return self._correlation_id

    async def receive(self, api: AnyApi, version: int) -> tuple[int, dict[str, Any]]:
        """Return the next response: (correlation id, body)."""
        async with asyncio.timeout(TIMEOUT_S):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            frame = await self.reader.readexactly(size)
        position = 4
        if api.is_flexible(version) and api.key != 18:
            assert frame[4] == 0
            position = 5
        body, end = decode(api.response_plan(version), memoryview(frame), position)
        assert end == len(frame)
        return int.from_bytes(frame[:4], "big"), body

    async def call(self, api: AnyApi, version: int, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request and await its response."""
        correlation_id = self.send(api, version, body)
        received, answer = await self.receive(api, version)
        assert received == correlation_id
        return answer

    async def is_closed_by_peer(self) -> bool:
        """Tell whether the broker closes the connection without sending another byte."""
        async with asyncio.timeout(TIMEOUT_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True

    async def close(self) -> None:
        """Close the connection."""
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            return


async def client_at(address: str, endpoint: Endpoint) -> RawClient:
    """Connect to a broker from an address of this machine."""
    at = endpoint.host, endpoint.port
    connection = socket.create_connection(at, source_address=(address, 0))
    connection.setblocking(False)
    return RawClient(*await asyncio.open_connection(sock=connection))


def produce_body(
    topic: str, records: bytes, *, acks: int = -1, partition: int = 0
) -> dict[str, Any]:
    """Return a Produce request for one partition."""
    part = {"index": partition, "records": records}
    return {
        "acks": acks,
        "timeout_ms": 60_000,
        "topic_data": [{"name": topic, "partition_data": [part]}],
    }


def fetch_body(topic: str, offset: int, *, partition: int = 0, **more: Any) -> dict[str, Any]:
    """Return a Fetch request for one partition."""
    part = {
        "partition": partition,
        "fetch_offset": offset,
        "partition_max_bytes": more.pop("partition_max_bytes", 1 << 20),
    }
    return {
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 24,
        "topics": [{"topic": topic, "partitions": [part]}],
    } | more


def has_answer(client: socket.socket) -> bool:
    """Tell whether something has come that has not been read from a socket that does not block."""
    try:
        return bool(client.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False


__all__ = ["APIS", "RawClient", "fetch_body", "has_answer", "produce_body", "request_frame"]
