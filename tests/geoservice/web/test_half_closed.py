"""Clients of the geocoder that close their side with their request, as `nc -N` does."""

from __future__ import annotations

import asyncio
import socket

import pytest

from geoservice.reverse.geocoder import Geocoder
from tests.geoservice.web.test_unread_answers import serving

ONE = b"GET /reverse?lat=47.141&lon=9.5209&format=json HTTP/1.1\r\nHost: x\r\n\r\n"


async def said_to(address: tuple[str, int], sent: bytes) -> bytes:
    """Send, close our side, and return all that comes until the server closes its own."""
    loop = asyncio.get_running_loop()
    with socket.socket() as connection:
        connection.setblocking(False)
        await loop.sock_connect(connection, address)
        await loop.sock_sendall(connection, sent)
        connection.shutdown(socket.SHUT_WR)
        came = b""
        while part := await loop.sock_recv(connection, 64 * 1024):
            came += part
        return came


@pytest.mark.parametrize("requests", [1, 3])
async def test_every_complete_request_is_answered(geocoder: Geocoder, requests: int) -> None:
    async with serving(geocoder) as address, asyncio.timeout(60):
        answers = await asyncio.gather(*(said_to(address, requests * ONE) for _ in range(20)))
    assert [each.count(b"HTTP/1.1 200 ") for each in answers] == [requests] * 20
    assert all(each.count(b"Vaduz") >= requests for each in answers)


@pytest.mark.parametrize("sent", [b"", ONE[:-10], b"POST /reverse/batch HTTP/1.1\r\nHost: x\r\n"])
async def test_who_has_not_asked_is_disconnected(geocoder: Geocoder, sent: bytes) -> None:
    async with serving(geocoder) as address, asyncio.timeout(60):
        assert b" 200 " not in await said_to(address, sent)
