"""HTTP requests byte by byte, including those that a well-behaved client does not send."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

Headers = tuple[tuple[str, str | bytes], ...]

_TIMEOUT_S = 60


class Answer(NamedTuple):
    """Status, headers in lower case, and the body, which is empty for an endless response."""

    status: int
    headers: dict[str, str]
    body: bytes


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def request(
    method: str, target: str | bytes, headers: Headers = (), body: bytes | None = None
) -> bytes:
    """Return a request as bytes; adds Host and Content-Length if they are needed."""
    lines = [b"%b %b HTTP/1.1" % (method.encode(), _bytes(target))]
    if not any(name.lower() == "host" for name, _ in headers):
        lines.append(b"Host: 127.0.0.1")
    lines += [b"%b: %b" % (name.encode(), _bytes(value)) for name, value in headers]
    if body is not None:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join((*lines, b"", body or b""))


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """Return the next response of a connection."""
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    length = int(headers.get("content-length", "0"))
    return Answer(int(first.split()[1]), headers, await reader.readexactly(length))


async def ask(
    address: tuple[str, int],
    method: str,
    target: str | bytes,
    headers: Headers = (),
    body: bytes | None = None,
) -> Answer:
    """Send one request over a connection of its own."""
    async with asyncio.timeout(_TIMEOUT_S):
        reader, writer = await asyncio.open_connection(*address)
        try:
            writer.write(request(method, target, headers, body))
            return await read_answer(reader)
        finally:
            writer.transport.abort()
