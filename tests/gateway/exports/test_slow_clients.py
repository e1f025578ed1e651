"""A client that does not read its export holds a place for a while, and not for ever."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import aiohttp

from gateway.http.listener import start_http
from gateway.limits.bounds import HttpLimits
from tests.gateway.parts import parts
from tests.http_session import http_session
from waylog.config import Endpoint

POINTS = 150_000
PATH = "/v1/export?device=phone&format=csv"


async def test_who_reads_nothing_is_disconnected_and_who_reads_gets_all(tmp_path: Path) -> None:
    limits = HttpLimits(export_patience_s=3.0, export_bytes_per_s_min=2_000_000)
    async with parts(tmp_path, limits=limits, open_mode=False) as services:
        token = services.users.add("ada")
        assert token is not None
        for number in range(POINTS):
            services.location_view.tracks.append("ada/phone", 1_780_000_000_000 + number, 47, 9.5)
        server = await start_http(Endpoint("127.0.0.1", 0), services, "test")
        login = aiohttp.encode_basic_auth("ada", token)
        address = (server.endpoint.host, server.endpoint.port)
        loop = asyncio.get_running_loop()
        try:
            with socket.socket() as connection:
                # Its system keeps little for it, so that the gateway notices soon.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
                connection.setblocking(False)
                await loop.sock_connect(connection, address)
                head = f"GET {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: {login}\r\n\r\n"
                await loop.sock_sendall(connection, head.encode())
                url = f"http://{server.endpoint}"
                async with (
                    asyncio.timeout(120),
                    http_session(url, headers={"Authorization": login}) as session,
                    session.get(PATH) as answer,
                ):
                    # It waits for the place of the other one.
                    content = await answer.read()
                    assert answer.status == 200
                    assert content.count(b"\n") == POINTS + 1
                received = b""
                try:
                    async with asyncio.timeout(60):
                        while piece := await loop.sock_recv(connection, 1 << 20):
                            received += piece
                except ConnectionError:
                    pass
                assert received.startswith(b"HTTP/1.1 200 OK") or not received
                assert len(received) < len(content)
        finally:
            await server.close()
