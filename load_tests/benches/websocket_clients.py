"""Clients of `GET /v1/ws` that send fixes and count acknowledgements, on plain streams."""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode

from waylog.cli import CommandError


async def acknowledged_messages(port: int, number: int, window: int, until: float) -> int:
    """Keep `window` messages in flight on a connection; return the number of acknowledged ones.

    `until` is the end, on the monotonic clock. Raises CommandError.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"GET /v1/ws?topics=address&u=bench%d HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
        b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        b"Authorization: Basic %b\r\n\r\n" % (number, b64encode(b"bench%d:x" % number))
    )
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 101"):
        raise CommandError(f"no WebSocket: {head[:200]!r}")
    await _frame(reader)  # the message "ready"
    writer.write(_masked(b'{"type":"unsubscribe"}'))
    fix_time = int(time.time() * 1000) - 10**9 + number * 10**6
    acknowledged, under_way = 0, 0
    while time.monotonic() < until or under_way:
        if time.monotonic() < until and under_way <= window // 2:
            frames = []
            while under_way < window:
                fix_time += 1
                frames.append(
                    _masked(
                        b'{"type":"fix","device":"d%d","lat":47.14%d,"lon":9.52,"time":%d}'
                        % (number, fix_time % 1000, fix_time)
                    )
                )
                under_way += 1
            writer.write(b"".join(frames))
        answer = await _frame(reader)
        if not answer.startswith(b'{"type":"ack"'):
            raise CommandError(f"not acknowledged: {answer[:200]!r}")
        acknowledged += 1
        under_way -= 1
    writer.close()
    return acknowledged


def _masked(payload: bytes) -> bytes:
    # A mask of zeros is valid too.
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    return b"\x81" + length + b"\0\0\0\0" + payload


async def _frame(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(2)
    size = head[1] & 0x7F
    if size == 126:
        size = int.from_bytes(await reader.readexactly(2), "big")
    return await reader.readexactly(size)
