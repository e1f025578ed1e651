"""Connections that several tasks share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from consumers.connect.http.properties import Settings
from consumers.connect.http.sender import DELIVERED, Connectors, Sender
from consumers.connect.http.templates.request import Request
from tests.consumers.connect.http.http_server import HttpServer


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with HttpServer().running() as running:
        yield running


async def test_a_sender_leaves_shared_connections_to_the_others(server: HttpServer) -> None:
    settings = Settings.of({"url": server.url})
    request = Request("POST", server.url, b"1")
    connectors = Connectors.of(4)
    one, other = Sender(settings, connectors), Sender(settings, connectors)
    await one.open()
    await other.open()
    assert await one.send(request, "a") is DELIVERED
    await one.close()
    assert await other.send(request, "b") is DELIVERED
    await other.close()
    again = Sender(settings, connectors)
    await again.open()
    assert await again.send(request, "c") is DELIVERED
    await again.close()
    await connectors.close()
    # All three over one connection.
    assert len({each.connection for each in server.seen}) == 1
