"""Attacks, and the service that well-behaved users get meanwhile.

Each attack runs against a gateway on a log in memory while one user sends a fix every few
milliseconds. The user's requests must still be answered, and the memory of the process must not
grow.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import zstandard

from gateway.http.listener import HttpServer, start_http
from gateway.limits.addresses import TrustedProxies
from gateway.limits.bounds import HttpLimits
from gateway.users.database import TOKEN_PREFIX
from tests.gateway.parts import parts
from tests.gateway.records import MemoryLog
from tests.resident_memory import resident_kb
from waylog.config import Endpoint

Attack = Callable[[str, int], Awaitable[None]]

SECONDS = 1.5
LIMITS = HttpLimits(
    header_timeout_s=0.6,
    body_timeout_s=0.6,
    connections_max=600,
    all_body_bytes_max=8 * 1024 * 1024,
    body_bytes_max=2 * 1024 * 1024,
    requests_per_s_per_address=100,
)


class AcknowledgingLog(MemoryLog):
    """A log that acknowledges appends in the next turn of the event loop and keeps nothing."""

    def send(self, *arguments: object) -> None:
        super().send(*arguments)  # type: ignore[arg-type]
        asyncio.get_running_loop().call_soon(self.acknowledge)
        self.appended.clear()


def post(body: bytes, more: bytes = b"", length: int | None = None) -> bytes:
    return b"POST /v1/positions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%b\r\n%b" % (
        *(len(body) if length is None else length, more, body),
    )


async def talk(host: str, port: int, *sent: bytes, pause_s: float = 0.0) -> bytes:
    """Send the parts one by one and return what is received; connection errors are ignored."""
    received = b""
    with contextlib.suppress(OSError, TimeoutError):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            for part in sent:
                writer.write(part)
                await writer.drain()
                if pause_s:
                    await asyncio.sleep(pause_s)
            async with asyncio.timeout(2):
                received = await reader.read(65536)
        finally:
            writer.close()
    return received


# --- the attacks --------------------------------------------------------------------------------


async def slow_headers(host: str, port: int) -> None:
    request = [bytes([each]) for each in b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: " + b"y" * 40]
    await asyncio.gather(*(talk(host, port, *request, pause_s=0.05) for _ in range(150)))


async def slow_bodies(host: str, port: int) -> None:
    request = [post(b"", length=60_000), *([b" "] * 40)]
    await asyncio.gather(*(talk(host, port, *request, pause_s=0.05) for _ in range(150)))


async def half_open(host: str, port: int) -> None:
    await asyncio.gather(*(talk(host, port) for _ in range(400)))


async def oversized(host: str, port: int) -> None:
    for _ in range(10):
        await asyncio.gather(
            *(talk(host, port, post(b"x" * 1_000_000, length=50_000_000)) for _ in range(10)),
            *(talk(host, port, b"GET /" + b"a" * 100_000) for _ in range(10)),
            *(talk(host, port, b"GET / HTTP/1.1\r\n" + b"X-Y: z\r\n" * 5_000) for _ in range(10)),
        )


PLAIN = b"[" + b" " * (32 * 1024 * 1024)
BOMBS = {b"gzip": gzip.compress(PLAIN, 1), b"zstd": zstandard.ZstdCompressor().compress(PLAIN)}


async def bombs(host: str, port: int) -> None:
    for encoding, body in BOMBS.items():
        header = b"Content-Encoding: %b\r\n" % encoding
        for _ in range(10):
            answer = await talk(host, port, post(body, header))
            assert answer.startswith((b"HTTP/1.1 413", b"HTTP/1.1 503")) or not answer


async def deep_and_wide(host: str, port: int) -> None:
    for body in (b"[" * 60_000, b'{"a":' * 10_000, b"[" + b"{}," * 15_000 + b"{}]"):
        for _ in range(15):
            await talk(host, port, post(body, b"Connection: close\r\n"))


async def wrong_tokens(host: str, port: int) -> None:
    for start in range(0, 600, 30):
        await asyncio.gather(
            *(
                talk(
                    *(host, port),
                    post(
                        b"{}",
                        b"Connection: close\r\nAuthorization: Bearer %b%043d\r\n"
                        % (TOKEN_PREFIX.encode(), start + number),
                    ),
                )
                for number in range(30)
            )
        )


async def endless_pipeline(host: str, port: int) -> None:
    request = post(b'{"lat":1,"lon":2,"time":1795000000000}') * 500
    with contextlib.suppress(OSError, TimeoutError):
        _, writer = await asyncio.open_connection(host, port)
        try:
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            async with asyncio.timeout(SECONDS):
                while True:
                    writer.write(request)
                    await writer.drain()
        finally:
            writer.transport.abort()
            writer.close()


async def flood(host: str, port: int, address: Callable[[int], str]) -> int:
    """Send requests as fast as they are answered, as a proxy does; return the number refused."""
    refused, number = 0, 0
    until = time.perf_counter() + SECONDS

    async def ask() -> None:
        nonlocal refused, number
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                while time.perf_counter() < until:
                    requests = []
                    for _ in range(50):
                        number += 1
                        header = b"X-Forwarded-For: %b\r\n" % address(number).encode()
                        body = b'{"lat":1,"lon":2,"time":%d}' % (1_795_000_000_000 + number)
                        requests.append(post(body, header))
                    writer.write(b"".join(requests))
                    for _ in requests:
                        head = await reader.readuntil(b"\r\n\r\n")
                        refused += head.startswith(b"HTTP/1.1 503")
                        length = head.lower().partition(b"content-length: ")[2]
                        await reader.readexactly(int(length.partition(b"\r\n")[0]))
            finally:
                writer.close()

    await asyncio.gather(*(ask() for _ in range(20)))
    return refused


async def flood_from_one_address(host: str, port: int) -> None:
    assert await flood(host, port, lambda _: "198.51.100.7") > 0


async def flood_from_many_addresses(host: str, port: int) -> None:
    # From more networks than are counted at a time.
    await flood(host, port, lambda number: f"2001:db8:{number >> 16:x}:{number & 0xFFFF:x}::1")


async def garbage(host: str, port: int) -> None:
    for _ in range(100):
        await asyncio.gather(
            talk(host, port, os.urandom(2000)),
            talk(host, port, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
            talk(
                host, port, b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFF\r\n"
            ),
        )


ATTACKS: list[Attack] = [
    *(slow_headers, slow_bodies, half_open, oversized, bombs, deep_and_wide),
    *(wrong_tokens, endless_pipeline, flood_from_one_address, flood_from_many_addresses, garbage),
]


# --- the user who behaves -----------------------------------------------------------------------


async def served(server: HttpServer, token: str | None, until: asyncio.Event) -> list[float]:
    """Send one fix after the other; return the seconds that each response took."""
    host, port = server.endpoint.host, server.endpoint.port
    reader, writer = await asyncio.open_connection(host, port)
    times: list[float] = []
    number = 0
    while not until.is_set():
        number += 1
        started = time.perf_counter()
        body = b'{"lat":1,"lon":2,"time":%d}' % (1_795_000_000_000 + number)
        writer.write(post(body, b"Authorization: Bearer %b\r\n" % token.encode() if token else b""))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        times.append(time.perf_counter() - started)
        await asyncio.sleep(0.002)
    writer.close()
    return times


@pytest.mark.long
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
async def test_who_behaves_is_served_meanwhile(attack: Attack, tmp_path: Path) -> None:
    async with parts(tmp_path, log=AcknowledgingLog(), limits=LIMITS) as services:
        # In open mode the attacker may send; credentials are needed only if they are attacked.
        services.authenticator.open_mode = attack is not wrong_tokens
        token = services.users.add("ada") if attack is wrong_tokens else None
        services.proxies = TrustedProxies(["127.0.0.0/8"])
        server = await start_http(Endpoint("127.0.0.1", 0), services, "test")
        host, port = server.endpoint.host, server.endpoint.port
        ended = asyncio.Event()
        behaving = asyncio.create_task(served(server, token, ended))
        await asyncio.sleep(0.1)
        before = resident_kb()
        async with asyncio.timeout(60):
            await attack(host, port)
        ended.set()
        times = sorted(await behaving)
        grown_mb = (resident_kb() - before) / 1024
        p99_ms = times[int(len(times) * 0.99)] * 1000
        print(f"{attack.__name__}: {len(times)} fixes, p99 {p99_ms:.0f} ms, +{grown_mb:.0f} MB")
        # The attacker runs in the same process, so these figures include its own work.
        assert p99_ms < 2_000
        assert grown_mb < 64
        await server.close()
