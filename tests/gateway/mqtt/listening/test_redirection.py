"""Clients that are redirected to another server (MQTT 5.0, section 4.13)."""

from __future__ import annotations

import asyncio

from gateway.mqtt.settings import Settings
from tests.gateway.mqtt.in_memory import PahoClient, Platform, eventually

OTHER = "other.example:1883 third.example"


async def refused(port: int, version: int = 5) -> tuple[int, str | None]:
    """Return reason code and Server Reference for a client that is refused."""
    client = PahoClient(port, "late", version=version)
    client.client.reconnect_delay_set(60, 60)
    code, _ = await client.connect("ada")
    reference = getattr(client.connack_properties, "ServerReference", None)
    await client.close()
    return int(code.value), reference


async def test_who_finds_no_room_is_told_where_there_is_some() -> None:
    settings = Settings(connections_max=1, other_server=OTHER)
    async with Platform().listening(settings) as platform:
        first = PahoClient(platform.server.endpoint.port, "first", version=5)
        await first.connect("ada")
        assert await refused(platform.server.endpoint.port) == (0x9C, OTHER)
        assert (await refused(platform.server.endpoint.port, version=4))[0] == 0x88
        await first.close()
        await eventually(lambda: platform.server.gauges()["connections"] == 0)
        again = PahoClient(platform.server.endpoint.port, "first", version=5)
        assert (await again.connect("ada"))[0].value == 0
        await again.close()


async def test_a_server_that_has_moved_says_where_to_and_serves_nobody() -> None:
    async with Platform().listening(Settings(moved_to=OTHER)) as platform:
        assert await refused(platform.server.endpoint.port) == (0x9D, OTHER)


async def test_a_server_that_stops_names_the_one_that_takes_over() -> None:
    async with Platform().listening(Settings(other_server=OTHER)) as platform:
        client = PahoClient(platform.server.endpoint.port, "phone", version=5)
        client.client.reconnect_delay_set(60, 60)
        references: list[object] = []

        def on_disconnect(_c: object, _d: object, _f: object, code: object, more: object) -> None:
            references.append((getattr(code, "value", None), getattr(more, "ServerReference", 0)))

        client.client.on_disconnect = on_disconnect
        await client.connect("ada")
    await eventually(lambda: bool(references))
    assert references[0] == (0x9C, OTHER)
    await asyncio.to_thread(client.client.loop_stop)
