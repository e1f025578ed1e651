"""TLS, client certificates, and MQTT over WebSocket, with Eclipse Paho's client."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import trustme
from aiohttp import web

from gateway.limits.turn_clock import PartyTurns
from gateway.mqtt.listening.tls import server_context
from gateway.mqtt.listening.websocket import serve_mqtt_websocket
from gateway.mqtt.settings import Settings
from tests.gateway.mqtt.in_memory import PahoClient, Platform, User, Users, eventually
from tests.http_session import http_session
from waylog.config import Endpoint

TOPIC = "devices/alice/phone/position"
POSITION = b'{"lat":50.73,"lon":7.1,"time":1761994805000}'


@contextlib.asynccontextmanager
async def with_tls(
    folder: Path, authority: trustme.CA, platform: Platform
) -> AsyncIterator[Platform]:
    certificate, key, root = folder / "cert.pem", folder / "key.pem", folder / "ca.pem"
    issued = authority.issue_cert("127.0.0.1", "localhost")
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    authority.cert_pem.write_to_path(root)
    async with platform.listening():
        await platform.server.start_tls(
            Endpoint("127.0.0.1", 0), server_context(certificate, key, root)
        )
        yield platform


def tls_client(platform: Platform, authority: trustme.CA, name: str | None = None) -> PahoClient:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if name is not None:
        issued = authority.issue_cert("client.invalid", common_name=name)
        issued.configure_cert(context)
    client = PahoClient(platform.server.tls_endpoint.port, "phone")
    client.client.tls_set_context(context)
    client.client.tls_insecure_set(True)
    return client


async def test_a_password_over_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    users = Users({"alice": ("secret", User("alice"))})
    async with with_tls(tmp_path, authority, Platform(users=users)) as platform:
        client = tls_client(platform, authority)
        assert (await client.connect("alice", "secret"))[0].value == 0
        assert await client.publish(TOPIC, POSITION) == 0
        assert [fix.device for fix in platform.log.fixes] == ["alice/phone"]
        await client.close()
        wrong = tls_client(platform, authority)
        assert (await wrong.connect("alice", "guess"))[0].is_failure
        await wrong.close()


@pytest.mark.parametrize(
    ("name", "known"), [("alice", True), ("alice/phone", True), ("mallory", False)]
)
async def test_a_client_certificate_takes_the_place_of_a_password(
    tmp_path: Path, name: str, known: bool
) -> None:
    authority = trustme.CA()
    users = Users({"alice": ("secret", User("alice"))})
    async with with_tls(tmp_path, authority, Platform(users=users)) as platform:
        client = tls_client(platform, authority, name)
        code, _ = await client.connect()
        assert code.is_failure != known
        if known:
            assert await client.publish(TOPIC, POSITION) == 0
            assert [fix.device for fix in platform.log.fixes] == ["alice/phone"]
        await client.close()


async def test_a_certificate_of_another_authority_is_not_believed(tmp_path: Path) -> None:
    authority, other = trustme.CA(), trustme.CA()
    async with with_tls(tmp_path, authority, Platform()) as platform:
        context = ssl.create_default_context()
        authority.configure_trust(context)
        other.issue_cert("client.invalid", common_name="alice").configure_cert(context)
        client = PahoClient(platform.server.tls_endpoint.port, "phone")
        client.client.tls_set_context(context)
        client.client.tls_insecure_set(True)
        with pytest.raises((OSError, TimeoutError)):
            async with asyncio.timeout(2):
                await client.connect()
        await client.close()


@contextlib.asynccontextmanager
async def over_http(platform: Platform, settings: Settings | None = None) -> AsyncIterator[int]:
    async with platform.listening(settings):
        application = web.Application()

        async def serve(request: web.Request) -> web.WebSocketResponse:
            return await serve_mqtt_websocket(
                platform.server, request, request.remote or "", PartyTurns(), "", counted=True
            )

        application.router.add_get("/mqtt", serve)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()


async def test_mqtt_over_websocket_in_both_directions() -> None:
    platform = Platform()
    async with over_http(platform) as port:
        client = PahoClient(port, "phone", transport="websockets")
        client.client.ws_set_options(path="/mqtt")
        assert (await client.connect("alice"))[0].value == 0
        assert await client.subscribe("devices/alice/+/position") == [1]
        assert await client.publish(TOPIC, POSITION) == 0
        assert [fix.device for fix in platform.log.fixes] == ["alice/phone"]
        assert (await client.message()).payload == POSITION
        await client.close()
        await eventually(lambda: platform.server.gauges()["connections"] == 0)


async def test_a_large_retained_message_crosses_a_websocket_whole() -> None:
    platform = Platform()
    payload = bytes(range(256)) * 600
    async with over_http(platform) as port:
        client = PahoClient(port, "phone", transport="websockets")
        client.client.ws_set_options(path="/mqtt")
        await client.connect("alice")
        assert await client.publish("devices/alice/phone/photo", payload, retain=True) == 0
        await client.subscribe("devices/alice/phone/photo")
        assert (await client.message()).payload == payload
        await client.close()


async def test_packets_may_be_cut_anywhere_between_messages() -> None:
    platform = Platform()
    connect = b"\x10\x18\x00\x04MQTT\x04\x82\x00\x00\x00\x05phone\x00\x05alice"
    async with (
        over_http(platform) as port,
        http_session() as http,
        http.ws_connect(f"http://127.0.0.1:{port}/mqtt", protocols=("mqtt",)) as socket,
    ):
        assert socket.protocol == "mqtt"
        for byte in connect:
            await socket.send_bytes(bytes([byte]))
        assert await socket.receive_bytes() == b"\x20\x02\0\0"
        await socket.send_bytes(b"\xc0\0\xc0\0")
        assert await socket.receive_bytes() == b"\xd0\0\xd0\0"


async def test_text_over_a_websocket_ends_it() -> None:
    platform = Platform()
    async with over_http(platform) as port, http_session() as http:
        async with http.ws_connect(f"http://127.0.0.1:{port}/mqtt") as socket:
            await socket.send_str("hello")
            assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
        await eventually(lambda: platform.server.gauges()["connections"] == 0)


async def test_who_never_connects_over_a_websocket_is_cut() -> None:
    platform = Platform()
    settings = Settings(connect_timeout_s=0.3)
    async with (
        over_http(platform, settings) as port,
        http_session() as http,
        http.ws_connect(f"http://127.0.0.1:{port}/mqtt") as socket,
    ):
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
