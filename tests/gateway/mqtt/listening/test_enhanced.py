"""Enhanced authentication (MQTT 5.0, section 4.12) with SCRAM-SHA-256, over sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple, cast

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from scramp import ScramClient

from gateway.mqtt.listening.listener import start_mqtt
from gateway.mqtt.listening.scram import mechanisms_over
from gateway.mqtt.settings import Settings
from gateway.users.auth import Authenticator
from gateway.users.database import UserStore
from tests.gateway.mqtt.in_memory import Addresses, Locations, MemoryLog, Push, split_packets
from waylog.config import Endpoint

SCRAM = "SCRAM-SHA-256"
CONNACK, SUBACK, DISCONNECT, AUTH = 0x20, 0x90, 0xE0, 0xF0


class Answer(NamedTuple):
    """A packet of the server."""

    packet_type: int
    code: int
    data: bytes  # Authentication Data
    method: str | None


def properties_of(kind: int, **given: object) -> bytes:
    properties = Properties(kind)  # type: ignore[no-untyped-call]
    for name, value in given.items():
        setattr(properties, name, value)
    return cast(bytes, properties.pack())  # type: ignore[no-untyped-call]


def text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode()


def packet(first: int, body: bytes) -> bytes:
    size = len(body)
    length = bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])
    return bytes([first]) + length + body


class Client:
    """A client on a socket that handles single packets."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def answer(self) -> Answer:
        """Return the next packet, which must have a code."""
        async with asyncio.timeout(60):
            head = await self._reader.readexactly(2)
            size, more = head[1], b""
            if size >= 128:
                more = await self._reader.readexactly(1)
                size = (size & 0x7F) | more[0] << 7
            body = await self._reader.readexactly(size)
        ((_, body),) = split_packets(head + more + body)
        kind = head[0]
        if kind == SUBACK:
            return Answer(kind, body[-1], b"", None)
        at = 2 if kind == CONNACK else 1
        found = Properties(kind >> 4)  # type: ignore[no-untyped-call]
        if body[at:]:
            found.unpack(body[at:])  # type: ignore[no-untyped-call]
        data, method = (getattr(found, name, None) for name in _PROOF)
        return Answer(kind, body[at - 1], data or b"", method)

    async def ask(self, data: bytes) -> Answer:
        self._writer.write(data)
        return await self.answer()

    async def connect(self, data: bytes, method: str = SCRAM) -> Answer:
        properties = properties_of(
            PacketTypes.CONNECT, AuthenticationMethod=method, AuthenticationData=data
        )
        return await self.ask(packet(0x10, text("MQTT") + b"\5\2\0\0" + properties + text("phone")))

    async def auth(self, code: int, data: bytes, method: str = SCRAM) -> Answer:
        properties = properties_of(
            PacketTypes.AUTH, AuthenticationMethod=method, AuthenticationData=data
        )
        return await self.ask(packet(AUTH, bytes([code]) + properties))

    async def prove(self, name: str, token: str) -> Answer:
        """Connect with SCRAM; return the last answer."""
        scram = ScramClient([SCRAM], name, token)
        first = await self.connect(scram.get_client_first().encode())
        assert (first.packet_type, first.code, first.method) == (AUTH, 0x18, SCRAM)
        scram.set_server_first(first.data.decode())
        last = await self.auth(0x18, scram.get_client_final().encode())
        if last.code == 0:
            scram.set_server_final(last.data.decode())
        return last

    async def subscribed(self, topic_filter: str) -> int:
        answer = await self.ask(packet(0x82, b"\0\1\0" + text(topic_filter) + b"\1"))
        assert answer.packet_type == SUBACK
        return answer.code


_PROOF = ("AuthenticationData", "AuthenticationMethod")


@pytest.fixture
def users(tmp_path: Path) -> Iterator[UserStore]:
    store = UserStore(tmp_path / "users.db")
    yield store
    store.close()


@contextlib.asynccontextmanager
async def connected(
    users: UserStore, log: MemoryLog | None = None, settings: Settings | None = None
) -> AsyncIterator[Client]:
    """Connect a socket to a server with these users."""
    authenticator = Authenticator(users)
    server = await start_mqtt(
        Endpoint("127.0.0.1", 0),
        submitter=log or MemoryLog(),
        authenticator=authenticator,
        address_view=Addresses(),
        location_view=Locations(),
        pusher=Push(),
        settings=settings,
        mechanisms=mechanisms_over(users, open_mode=False),
    )
    reader, writer = await asyncio.open_connection(server.endpoint.host, server.endpoint.port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        await server.close()
        authenticator.close()


async def test_a_token_is_proven_without_being_sent(users: UserStore) -> None:
    token = users.add("ada")
    assert token is not None
    async with connected(users) as client:
        last = await client.prove("ada", token)
        assert (last.packet_type, last.code, last.method) == (CONNACK, 0, SCRAM)
        assert await client.subscribed("devices/ada/phone/address") == 1
        assert await client.subscribed("devices/bob/phone/address") == 0x87


async def test_a_token_of_one_device_is_good_for_that_device(users: UserStore) -> None:
    users.add("ada")
    token = users.add_token("ada", "phone")
    async with connected(users) as client:
        assert (await client.prove("ada/phone", token)).code == 0
        assert await client.subscribed("devices/ada/phone/address") == 1
        assert await client.subscribed("devices/ada/bike/address") == 0x87


@pytest.mark.parametrize("name", ["ada", "nobody", "ada/phone"])
async def test_whoever_cannot_prove_it_is_refused_alike(users: UserStore, name: str) -> None:
    users.add("ada")
    log = MemoryLog()
    async with connected(users, log) as client:
        last = await client.prove(name, "wl_guess")
        assert (last.packet_type, last.code) == (CONNACK, 0x87)
        assert [each.reason for each in log.rejected] == ["CONNECT: unknown user or wrong token"]


async def test_who_is_revoked_or_has_a_password_only_proves_nothing(users: UserStore) -> None:
    token = users.add("ada")
    assert token is not None
    users.revoke("ada")
    users.add("bob", password="a long phrase")
    for name, secret in (("ada", token), ("bob", "a long phrase")):
        async with connected(users) as client:
            assert (await client.prove(name, secret)).code == 0x87


async def test_an_unknown_mechanism_is_refused(users: UserStore) -> None:
    async with connected(users) as client:
        answer = await client.connect(b"", "GS2-KRB5")
        assert (answer.packet_type, answer.code) == (CONNACK, 0x8C)


@pytest.mark.parametrize(
    "data", [b"", b"n,,", b"n,,n=ada", b"\xff\xfe", b"n,,n=ada,r=" + b"x" * 80]
)
async def test_nonsense_in_place_of_a_proof_is_refused(users: UserStore, data: bytes) -> None:
    users.add("ada")
    async with connected(users) as client:
        answer = await client.connect(data)
        if answer.packet_type == AUTH:
            answer = await client.auth(0x18, b"c=biws,r=wrong,p=AAAA")
        assert (answer.packet_type, answer.code) == (CONNACK, 0x87)


@pytest.mark.parametrize(
    ("code", "method"), [(0x19, SCRAM), (0x18, "OTHER"), (0x00, SCRAM)], ids=str
)
async def test_an_auth_that_does_not_fit_ends_it(users: UserStore, code: int, method: str) -> None:
    users.add("ada")
    async with connected(users) as client:
        scram = ScramClient([SCRAM], "ada", "wl_x")
        assert (await client.connect(scram.get_client_first().encode())).packet_type == AUTH
        answer = await client.auth(code, b"", method)
        assert (answer.packet_type, answer.code) == (CONNACK, 0x82)


async def test_only_auth_may_follow_a_challenge(users: UserStore) -> None:
    users.add("ada")
    async with connected(users) as client:
        scram = ScramClient([SCRAM], "ada", "wl_x")
        assert (await client.connect(scram.get_client_first().encode())).packet_type == AUTH
        answer = await client.ask(packet(0x30, text("devices/ada/x") + b"\0"))
        assert (answer.packet_type, answer.code) == (CONNACK, 0x82)


async def test_who_does_not_go_on_is_cut(users: UserStore) -> None:
    users.add("ada")
    async with connected(users, settings=Settings(connect_timeout_s=0.3)) as client:
        scram = ScramClient([SCRAM], "ada", "wl_x")
        assert (await client.connect(scram.get_client_first().encode())).packet_type == AUTH
        assert (await client.answer()).code == 0x89


async def test_a_connected_client_may_prove_itself_again(users: UserStore) -> None:
    token, other = users.add("ada"), users.add("bob")
    assert token is not None and other is not None
    async with connected(users) as client:
        assert (await client.prove("ada", token)).code == 0
        for name, secret, expected in (
            ("ada", token, (AUTH, 0)),
            ("bob", other, (DISCONNECT, 0x87)),
        ):
            scram = ScramClient([SCRAM], name, secret)
            first = await client.auth(0x19, scram.get_client_first().encode())
            assert (first.packet_type, first.code) == (AUTH, 0x18)
            scram.set_server_first(first.data.decode())
            last = await client.auth(0x18, scram.get_client_final().encode())
            assert (last.packet_type, last.code) == expected


async def test_auth_of_a_client_that_has_named_no_mechanism_ends_it(users: UserStore) -> None:
    token = users.add("ada")
    assert token is not None
    async with connected(users) as client:
        login = text("ada") + text(token)
        answer = await client.ask(
            packet(0x10, text("MQTT") + b"\5\xc2\0\0\0" + text("phone") + login)
        )
        assert (answer.packet_type, answer.code) == (CONNACK, 0)
        answer = await client.auth(0x19, b"")
        assert (answer.packet_type, answer.code) == (DISCONNECT, 0x82)
