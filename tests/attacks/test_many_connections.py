"""One user with many connections behind a proxy: no turn of the event loop is long for others."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from gateway.http.listener import start_http
from gateway.http.requests.services import Services
from gateway.limits.addresses import TrustedProxies
from gateway.limits.bounds import HttpLimits
from tests.attacks.test_event_loop import AcknowledgingLog
from tests.attacks.turns import TURN_MS_MAX, Turns, measured_turns
from tests.gateway.parts import parts
from waylog.config import Endpoint

_MASK = b"\0\0\0\0"

#: Makes what the connection with a number sends.
Make = Callable[[int], bytes]
#: Called when all clients are connected.
Begun = Callable[[], object]
#: Sends over each connection what is for it, and waits for so many answers.
Send = Callable[[Endpoint, list[bytes], int, Begun], None]


@asynccontextmanager
async def listening(folder: Path) -> AsyncIterator[tuple[Endpoint, Services, Turns]]:
    async with parts(folder, log=AcknowledgingLog()) as services:
        services.proxies = TrustedProxies(["127.0.0.0/8"])
        server = await start_http(Endpoint("127.0.0.1", 0), services, "test")
        try:
            with measured_turns() as turns:
                yield server.endpoint, services, turns
        finally:
            await server.close()


def head(first: str, number: int, *more: str) -> bytes:
    """Return the head of a request of one user, from an address of its own."""
    lines = (
        *(f"{first} HTTP/1.1", "Host: 127.0.0.1", "Authorization: Basic ZXZlOng="),
        *(f"X-Forwarded-For: 203.0.113.{number}", *more),
    )
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def post(number: int, more: int) -> bytes:
    body = b'{"lat":1.5,"lon":2.5,"device":"d%d","time":%d}' % (number, 1_700_000_000_000 + more)
    return head("POST /v1/positions", number, f"Content-Length: {len(body)}") + body


def posts(number: int) -> bytes:
    return b"".join(post(number, more) for more in range(150))


def readings(number: int) -> bytes:
    return head("GET /v1/devices", number) * 8


def fixes(number: int) -> bytes:
    frames = []
    for more in range(300):
        body = b'{"type":"fix","lat":1.5,"lon":2.5,"device":"d%d","time":%d}' % (
            *(number, 1_700_000_000_000 + more),
        )
        frames.append(bytes((0x81, 0x80 | len(body))) + _MASK + body)
    return b"".join(frames)


@contextmanager
def connected(endpoint: Endpoint, connections: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        address = (endpoint.host, endpoint.port)
        yield [
            stack.enter_context(socket.create_connection(address, timeout=60))
            for _ in range(connections)
        ]


def send_requests(endpoint: Endpoint, sent: list[bytes], answers: int, begun: Begun) -> None:
    """Send requests over many connections, and wait for all answers."""
    with connected(endpoint, len(sent)) as clients:
        begun()
        for client, data in zip(clients, sent, strict=True):
            client.sendall(data)
        for client in clients:
            left = answers
            while left:
                data = client.recv(1 << 20)
                assert data, "the gateway has closed the connection"
                left -= data.count(b"HTTP/1.1 200")


def send_frames(endpoint: Endpoint, sent: list[bytes], answers: int, begun: Begun) -> None:
    """Send frames over many WebSockets, and wait for all acknowledgements."""
    handshake = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13")
    key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="
    with connected(endpoint, len(sent)) as clients:
        for number, client in enumerate(clients):
            client.sendall(head("GET /v1/ws", number, *handshake, key))
            assert client.recv(4096).startswith(b"HTTP/1.1 101")
        begun()
        for client, data in zip(clients, sent, strict=True):
            client.sendall(data)
        for client in clients:
            left, got = answers, b""
            while left:
                data = client.recv(1 << 20)
                assert data, "the gateway has closed the connection"
                got += data
                left -= got.count(b'"ack"')
                got = got[got.rfind(b'"ack"') + 5 :] if b'"ack"' in got else got[-4:]


@pytest.mark.parametrize(
    ("send", "make", "connections", "answers"),
    [
        (send_requests, posts, 40, 150),
        (send_requests, readings, 200, 8),
        (send_frames, fixes, 40, 300),
    ],
    ids=["posts", "readings", "fixes over WebSocket"],
)
async def test_no_number_of_connections_of_a_user_makes_a_turn_long(
    tmp_path: Path, send: Send, make: Make, connections: int, answers: int
) -> None:
    sent = [make(number) for number in range(connections)]
    async with listening(tmp_path) as (endpoint, _, turns):
        loop = asyncio.get_running_loop()

        def begun() -> None:
            loop.call_soon_threadsafe(turns.worst)

        async def once() -> None:
            await asyncio.to_thread(send, endpoint, sent, answers, begun)

        worst = await turns.least_worst(once)
        print(f"{worst:.1f} ms")
        assert worst < TURN_MS_MAX


async def answer_to(endpoint: Endpoint, request: bytes) -> bytes:
    """Return the answer to a request that may not be read to its end."""
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    writer.write(request)
    async with asyncio.timeout(60):
        answer = await reader.readuntil(b"\r\n\r\n")
    writer.transport.abort()
    return answer


async def test_a_head_is_bounded_as_a_whole(tmp_path: Path) -> None:
    most = HttpLimits.head_bytes_max
    cookies = [f"Cookie: c{number}={'x' * 8_000}" for number in range(80)]
    async with listening(tmp_path) as (endpoint, _, _turns):
        allowed = head("GET /healthz", 1, *cookies[: most // 8_100])
        assert (await answer_to(endpoint, allowed)).startswith(b"HTTP/1.1 200 ")
        for path in ("/healthz", "/v1/devices"):
            whole = head(f"GET {path}", 1, *cookies)
            # aiohttp would keep what is not complete for as long as it is not.
            for sent in (whole, whole[:-2]):
                assert (await answer_to(endpoint, sent)).startswith(b"HTTP/1.1 431 ")
        little = head("GET /v1/devices", 1, *cookies[: most // 8_100 + 1])
        assert (await answer_to(endpoint, little)).startswith(b"HTTP/1.1 431 ")


async def test_a_large_body_is_no_head(tmp_path: Path) -> None:
    body = b" " * 1_000_000 + b"[]"
    async with listening(tmp_path) as (endpoint, _, _turns):
        for length, status in ((len(body), b"200"), (HttpLimits.body_bytes_max + 1, b"413")):
            request = head("POST /v1/positions", 1, f"Content-Length: {length}") + body
            assert (await answer_to(endpoint, request)).split()[1] == status
