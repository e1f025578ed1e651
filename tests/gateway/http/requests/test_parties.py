"""Who is charged for the time that the requests on one connection take: nobody but their sender."""

from __future__ import annotations

import asyncio
import base64
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.http.listener import start_http
from gateway.http.requests.services import Services
from gateway.limits.addresses import TrustedProxies
from gateway.limits.turn_clock import STRANGER, TURN_S, PartyTurns
from gateway.users.auth import Authenticator
from tests.gateway.parts import parts
from waylog.config import Endpoint


class Recorded(PartyTurns):
    """Turns that note who was charged for work."""

    def __init__(self) -> None:
        super().__init__()
        self.charged: set[str] = set()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.waited: set[str] = set()
        self._began: list[float] = []

    def call_soon(self, party: str, callback: Callable[[], object] | asyncio.Future[None]) -> None:
        self.waited.add(party)
        super().call_soon(party, callback)

    def begin(self, party: str) -> str | None:
        self._began.append(time.thread_time())
        return super().begin(party)

    def keep_busy(self, party: str) -> None:
        """Charge a party more than it has in several turns."""
        outer = self.begin(party)
        time.sleep(12 * TURN_S)
        self.end(party, outer)

    def end(self, party: str, outer: str | None) -> None:
        self.charged.add(party)
        self.seconds[party] += time.thread_time() - self._began.pop()
        super().end(party, outer)


class Proxy:
    """One connection of a proxy, which passes on requests of many people."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, request_line: str, *headers: str, body: bytes = b"") -> str:
        """Send a request; return the status of its response."""
        if body:
            headers = (*headers, f"Content-Length: {len(body)}")
        lines = (f"{request_line} HTTP/1.1", "Host: x", *headers, "", "")
        self._writer.write("\r\n".join(lines).encode() + body)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        await self._reader.readexactly(int(length or b"0"))
        return head.split(b" ")[1].decode()

    def close(self) -> None:
        self._writer.close()


def basic(user: str) -> str:
    return f"Authorization: Basic {base64.b64encode(f'{user}:x'.encode()).decode()}"


@asynccontextmanager
async def behind_a_proxy(
    folder: Path, *, open_mode: bool = True
) -> AsyncIterator[tuple[Services, Recorded, Proxy]]:
    turns = Recorded()
    async with asyncio.timeout(60), parts(folder) as services:
        services.turns = turns
        services.proxies = TrustedProxies(["127.0.0.1/32"])
        if not open_mode:
            services.authenticator = Authenticator(services.users)
        server = await start_http(Endpoint("127.0.0.1", 0), services, "test")
        endpoint = server.endpoint
        proxy = Proxy(*await asyncio.open_connection(endpoint.host, endpoint.port))
        try:
            yield services, turns, proxy
        finally:
            proxy.close()
            await server.close()


async def test_a_handshake_that_fails_does_not_make_the_connection_its_senders(
    tmp_path: Path,
) -> None:
    async with behind_a_proxy(tmp_path) as (_, turns, proxy):
        assert await proxy.ask("GET /v1/ws", basic("mallory")) == "400"
        assert "mallory" in turns.charged
        turns.charged.clear()
        assert await proxy.ask("GET /v1/session", basic("alice")) == "200"
        assert "mallory" not in turns.charged
        assert "alice" in turns.charged


async def test_an_unusual_request_is_not_charged_to_the_sender_of_the_one_before(
    tmp_path: Path,
) -> None:
    async with behind_a_proxy(tmp_path) as (_, turns, proxy):
        assert await proxy.ask("GET /v1/session", basic("alice")) == "200"
        assert "alice" in turns.charged
        turns.charged.clear()
        assert await proxy.ask("M-SEARCH /v1/session") == "405"
        assert "alice" not in turns.charged


async def test_a_session_is_charged_to_its_user(tmp_path: Path) -> None:
    async with behind_a_proxy(tmp_path, open_mode=False) as (services, turns, proxy):
        services.users.add("alice")
        secret = services.users.sessions.begin("alice")
        cookie = f"Cookie: {services.session_cookie}={secret}"
        assert await proxy.ask("GET /v1/devices", cookie) == "200"
        assert "alice" in turns.charged


async def test_sending_an_answer_is_charged_to_who_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(_: object, __: object) -> None:
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass

    monkeypatch.setattr("gateway.http.listener._keep_to_the_asker", slow)
    async with behind_a_proxy(tmp_path) as (_, turns, proxy):
        for path, status in (("/v1/session", "200"), ("/", "200"), ("/v1/nothing", "404")):
            turns.seconds.clear()
            assert await proxy.ask(f"GET {path}", basic("alice")) == status
            assert turns.seconds["alice"] >= 0.02, path
        # Nobody knows whose request this is.
        turns.seconds.clear()
        assert await proxy.ask("GET /v1/session", basic("alice"), basic("bob")) == "400"
        strangers = [party for party in turns.seconds if party.startswith(STRANGER)]
        assert sum(turns.seconds[party] for party in strangers) >= 0.02


async def test_who_comes_next_waits_for_no_turn_of_the_sender_before(tmp_path: Path) -> None:
    request, cut = "POST /v1/positions?device=phone", b'{"lat":47.1,'
    async with behind_a_proxy(tmp_path) as (_, turns, proxy):
        assert await proxy.ask(request, basic("mallory"), body=cut) == "400"
        turns.keep_busy("mallory")
        turns.waited.clear()
        assert await proxy.ask(request, basic("alice"), body=cut) == "400"
        assert "mallory" not in turns.waited
