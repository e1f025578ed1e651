"""The listener over real sockets, mostly with Eclipse Paho's client."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import uvloop
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties
from paho.mqtt.subscribeoptions import SubscribeOptions

from gateway.limits.refusal_sampler import RefusalSampler
from gateway.mqtt.packets.encoder import encode_puback, encode_publish
from gateway.mqtt.packets.packets import ReasonCode
from gateway.mqtt.settings import Settings
from tests.gateway.mqtt.in_memory import (
    WAIT_S,
    PahoClient,
    Platform,
    User,
    Users,
    address,
    changed,
    eventually,
)
from tests.late_client import TURNS, check_disconnected
from waylog.messages import encode

LOCATION = msgspec.json.encode(
    {"_type": "location", "lat": 50.73, "lon": 7.1, "tst": 1761994805, "tid": "ph"}
)
TOPIC = "owntracks/alice/phone"
CONNECT = b"\x10\x18\x00\x04MQTT\x04\x82\x00\x00\x00\x05phone\x00\x05alice"


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    async with Platform().listening() as platform:
        yield platform


@contextlib.asynccontextmanager
async def client(
    platform: Platform, name: str = "phone", user: str = "alice", **options: Any
) -> AsyncIterator[PahoClient]:
    version = options.get("version", 4)
    paho = PahoClient(platform.server.endpoint.port, name, **options)
    code, _ = await paho.connect(user)
    assert code.value == 0, (version, code)
    try:
        yield paho
    finally:
        await paho.close()


@contextlib.asynccontextmanager
async def raw(
    platform: Platform, first: bytes = b""
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    endpoint = platform.server.endpoint
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    try:
        writer.write(first)
        async with asyncio.timeout(WAIT_S):
            yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_location_is_stored_and_reaches_the_users_other_client(
    platform: Platform, version: int, qos: int
) -> None:
    async with (
        client(platform, version=version) as phone,
        client(platform, "tablet", version=version) as tablet,
    ):
        assert await tablet.subscribe("owntracks/+/+", 2) == [2]
        await phone.publish(TOPIC, LOCATION, qos)
        message = await tablet.message()
        assert (message.topic, message.payload, message.qos) == (TOPIC, LOCATION, qos)
        assert not message.retain
        assert [fix.device for fix in platform.log.fixes] == ["alice/phone"]


async def test_nothing_is_acknowledged_before_the_log_has_it(platform: Platform) -> None:
    platform.log.hold = True
    async with client(platform) as phone, client(platform, "tablet") as tablet:
        await tablet.subscribe("owntracks/+/+")
        phone.client.publish(TOPIC, LOCATION, 1)
        await eventually(lambda: len(platform.log.waiting) == 1)
        # A SUBSCRIBE makes the round trip meanwhile: an acknowledgement would have been seen.
        await tablet.subscribe("owntracks/+/+/event")
        assert phone.published.empty()
        assert tablet.messages.empty()
        platform.log.confirm()
        async with asyncio.timeout(WAIT_S):
            await phone.published.get()
        await tablet.message()


async def test_a_failing_append_closes_the_connection_without_an_acknowledgement(
    platform: Platform,
) -> None:
    platform.log.broken = True
    async with raw(platform, CONNECT + encode_publish(4, TOPIC, LOCATION, 1, False, False, 7)) as (
        reader,
        _,
    ):
        assert await reader.read() == b"\x20\x02\x00\x00"
    platform.log.broken = False
    again = encode_publish(4, TOPIC, LOCATION, 1, False, True, 7)
    async with raw(platform, CONNECT + again) as (reader, _):
        assert await reader.readexactly(8) == b"\x20\x02\x00\x00" + encode_puback(7)
    assert platform.server.counters["appends_failed"] == 1


async def test_a_failing_append_is_explained_to_mqtt_5(platform: Platform) -> None:
    async with client(platform, version=5) as phone:
        platform.log.broken = True
        phone.client.publish(TOPIC, LOCATION, 1)
        async with asyncio.timeout(WAIT_S):
            assert (await phone.disconnected.get()).value == ReasonCode.SERVER_BUSY
        platform.log.broken = False


async def test_what_can_never_be_accepted_is_acknowledged_and_kept(platform: Platform) -> None:
    async with client(platform) as phone:
        await phone.publish(TOPIC, b"rubbish")
        await phone.publish("owntracks/bob/phone", LOCATION)
        await phone.publish(TOPIC, LOCATION)
    assert [item.raw for item in platform.log.rejected] == [b"rubbish", LOCATION]
    assert len(platform.log.fixes) == 1


async def test_mqtt_5_is_told_what_is_not_allowed(platform: Platform) -> None:
    async with client(platform, version=5) as phone:
        assert await phone.publish("owntracks/bob/phone", LOCATION) == ReasonCode.NOT_AUTHORIZED
        assert await phone.subscribe("owntracks/bob/#") == [ReasonCode.NOT_AUTHORIZED]
        assert await phone.subscribe("owntracks/+/+") == [1]


@pytest.mark.parametrize(("version", "refused"), [(3, 134), (4, 134), (5, 134)])
async def test_an_unknown_user_is_refused_and_recorded(version: int, refused: int) -> None:
    users = Users({"alice": ("secret", User("alice"))})
    async with Platform(users=users).listening() as platform:
        stranger = PahoClient(platform.server.endpoint.port, "x", version=version)
        code, _ = await stranger.connect("alice", "guess")
        assert code.value == refused
        await stranger.close()
        known = PahoClient(platform.server.endpoint.port, "x", version=version)
        code, _ = await known.connect("alice", "secret")
        assert code.value == 0
        await known.close()
        assert [item.user for item in platform.log.rejected] == ["alice"]
        assert b"guess" not in encode(platform.log.rejected[0])


async def test_the_socket_of_a_refused_client_is_closed() -> None:
    users = Users({})
    async with Platform(users=users).listening() as platform:
        async with raw(platform, CONNECT) as (reader, _):
            assert await reader.read() == b"\x20\x02\x00\x04"
        await eventually(lambda: platform.server.gauges()["connections"] == 0)


async def test_refusals_are_all_counted_but_not_all_recorded() -> None:
    refusals = RefusalSampler(per_s_each=0.4, clock=lambda: 0.0)
    async with Platform(users=Users({})).listening(refusals=refusals) as platform:
        for _ in range(6):
            async with raw(platform, CONNECT) as (reader, _):
                await reader.read()
        assert platform.server.counters["connects_refused"] == 6
        assert len(platform.log.rejected) == 2


async def test_packets_that_arrive_during_authentication_wait() -> None:
    users = Users()
    users.gate = asyncio.Event()
    async with Platform(users=users).listening() as platform:
        early = encode_publish(4, TOPIC, LOCATION, 1, False, False, 7)
        async with raw(platform, CONNECT + early) as (reader, writer):
            await eventually(lambda: platform.server.counters["connections"] == 1)
            writer.write(b"\xc0\x00")
            assert platform.log.fixes == []
            users.gate.set()
            answers = await reader.readexactly(10)
            assert answers.startswith(b"\x20\x02\x00\x00")
            assert encode_puback(7) in answers
            assert b"\xd0\x00" in answers
            assert len(platform.log.fixes) == 1


async def test_a_retained_location_waits_for_who_comes_later(platform: Platform) -> None:
    async with client(platform) as phone:
        await phone.publish(TOPIC, LOCATION, 1, True)
    async with client(platform, "tablet") as tablet:
        await tablet.subscribe("owntracks/+/+")
        message = await tablet.message()
        assert message.retain
        assert message.payload == LOCATION


async def test_the_address_and_the_card_reach_the_device(platform: Platform) -> None:
    async with client(platform) as phone:
        await phone.subscribe("devices/alice/phone/address")
        await phone.subscribe("owntracks/+/+/info")
        for channel in platform.push.channels:
            changed(channel, address())
        received = {message.topic: message for message in [await phone.message() for _ in range(2)]}
        assert received["devices/alice/phone/address"].payload == encode(address())
        card = msgspec.json.decode(received["owntracks/alice/phone/info"].payload)
        assert card["name"] == "phone - Kaiserplatz 4, Bonn"
    platform.addresses.by_device["alice/phone"] = address()
    async with client(platform) as phone:
        await phone.subscribe("devices/alice/phone/address")
        assert (await phone.message()).retain


async def test_a_will_is_stored_and_passed_on_when_the_client_vanishes(platform: Platform) -> None:
    async with client(platform, "tablet") as tablet:
        await tablet.subscribe("owntracks/+/+")
        phone = PahoClient(platform.server.endpoint.port, "phone")
        phone.client.will_set(TOPIC, b'{"_type":"lwt"}')
        await phone.connect("alice")
        await phone.vanish()
        assert (await tablet.message()).payload == b'{"_type":"lwt"}'
        assert [event.type for event in platform.log.events] == ["lwt"]


@pytest.mark.parametrize("version", [3, 4])
async def test_a_persistent_session_gets_what_came_while_it_was_away(
    platform: Platform, version: int
) -> None:
    tablet = PahoClient(
        platform.server.endpoint.port, "tablet", version=version, clean_session=False
    )
    assert (await tablet.connect("alice"))[1] is False
    await tablet.subscribe("owntracks/+/+", 2)
    await tablet.close()
    async with client(platform, version=version) as phone:
        for number in range(5):
            await phone.publish(TOPIC, LOCATION + b" " * number, 1 + number % 2)
    tablet = PahoClient(
        platform.server.endpoint.port, "tablet", version=version, clean_session=False
    )
    _, present = await tablet.connect("alice")
    assert present is (version == 4)  # CONNACK of MQTT 3.1 can't say it
    received = [await tablet.message() for _ in range(5)]
    # The order is guaranteed for messages of the same QoS (section 4.6).
    for qos, numbers in ((1, (0, 2, 4)), (2, (1, 3))):
        payloads = [message.payload for message in received if message.qos == qos]
        assert payloads == [LOCATION + b" " * number for number in numbers]
    await tablet.close()


async def test_an_mqtt_5_session_lives_as_long_as_it_asked(platform: Platform) -> None:
    properties = PahoProperties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = 100
    first = PahoClient(platform.server.endpoint.port, "tablet", version=5)
    await first.connect("alice", clean_start=True, properties=properties)
    options = SubscribeOptions(qos=1, noLocal=True)
    await first.subscribe("owntracks/+/+", options=options)
    await first.close()
    again = PahoClient(platform.server.endpoint.port, "tablet", version=5)
    assert (await again.connect("alice", clean_start=False, properties=properties))[1] is True
    await again.publish(TOPIC, LOCATION)
    async with client(platform) as phone:
        await phone.publish(TOPIC, LOCATION + b"\n")
    # noLocal: its own message, which was the first, is not delivered.
    assert (await again.message()).payload == LOCATION + b"\n"
    await again.close()


async def test_the_newer_connection_of_a_client_takes_over(platform: Platform) -> None:
    async with raw(platform, CONNECT) as (reader, _):
        assert await reader.readexactly(4) == b"\x20\x02\x00\x00"
        async with raw(platform, CONNECT) as (other, writer):
            assert await other.readexactly(4) == b"\x20\x02\x00\x00"
            assert await reader.read() == b""
            writer.write(b"\xc0\x00")
            assert await other.readexactly(2) == b"\xd0\x00"


async def test_a_silent_client_is_disconnected_and_its_will_published(platform: Platform) -> None:
    connect = b"\x10\x30\x00\x04MQTT\x04\x86\x00\x01\x00\x05phone\x00\x15" + TOPIC.encode()
    connect += b"\x00\x02{}\x00\x05alice"
    connect = b"\x10" + bytes([len(connect) - 2]) + connect[2:]
    async with raw(platform, connect) as (reader, _):
        assert await reader.readexactly(4) == b"\x20\x02\x00\x00"
        started = asyncio.get_running_loop().time()
        assert await reader.read() == b""
        assert 1.5 <= asyncio.get_running_loop().time() - started < 3.0
    await eventually(lambda: platform.server.counters["wills"] == 1)


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x30" + b"\xff" * 100,
        b"\x20\x02\x00\x00",
        b"\x10\xff\xff\xff\x7f",
        CONNECT + b"\x30\x02\x00\x00",
        CONNECT + b"\x20\x02\x00\x00",
        CONNECT + b"\x32\xff\xff\xff\x7f",
    ],
)
async def test_rubbish_ends_its_own_connection_and_no_other(
    platform: Platform, first: bytes
) -> None:
    async with client(platform) as phone:
        async with raw(platform, first.replace(b"phone", b"other")) as (reader, _):
            assert await reader.read() in {b"", b"\x20\x02\x00\x00"}
        await phone.publish(TOPIC, LOCATION)
        assert len(platform.log.fixes) == 1


class BrokenTransport:
    """A transport that cannot be written to any more."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        raise RuntimeError("broken")


async def test_what_fails_for_one_client_keeps_nothing_from_the_others(
    platform: Platform, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        client(platform, "broken") as broken,
        client(platform, "reader") as reader,
        client(platform, "sender") as sender,
    ):
        await broken.subscribe(TOPIC)
        await reader.subscribe(TOPIC)
        session = platform.server.router.live(("alice", "broken"))
        assert session is not None
        session.connection.owner.transport = BrokenTransport(session.connection.owner.transport)
        published = 0
        while broken.disconnected.empty() or published < 20:
            await sender.publish(TOPIC, LOCATION)
            published += 1
        for _ in range(published):
            await reader.message()
    assert "is disconnected" in caplog.text


async def test_too_many_connections_are_refused() -> None:
    async with Platform().listening(Settings(connections_max=2)) as platform:
        async with raw(platform, CONNECT) as (one, _), raw(platform) as (_, second):
            await one.readexactly(4)
            await eventually(lambda: platform.server.gauges()["connections"] == 2)
            async with raw(platform) as (third, _):
                with contextlib.suppress(ConnectionError):
                    assert await third.read() == b""
            second.close()
            await eventually(lambda: platform.server.gauges()["connections"] == 1)
        assert platform.server.counters["connections_refused"] == 1


async def test_who_sends_nothing_is_disconnected() -> None:
    settings = Settings(connect_timeout_s=0.2)
    async with Platform().listening(settings) as platform, raw(platform) as (reader, _):
        assert await reader.read() == b""


async def test_a_flood_is_held_back_while_the_log_is_slow() -> None:
    settings = Settings(publishes_in_flight_max=10)
    async with Platform().listening(settings) as platform:
        platform.log.hold = True
        flood = b"".join(
            encode_publish(4, TOPIC, LOCATION, 1, False, False, number) for number in range(1, 5001)
        )
        async with raw(platform, CONNECT) as (reader, writer):
            await reader.readexactly(4)
            writer.write(flood)
            await eventually(lambda: len(platform.log.waiting) == 10)
            acknowledged = 0
            while acknowledged < 5000:
                assert len(platform.log.waiting) <= 10
                await eventually(lambda: bool(platform.log.waiting))
                confirmed = len(platform.log.waiting)
                platform.log.confirm()
                assert await reader.readexactly(4 * confirmed) == b"".join(
                    encode_puback(acknowledged + number + 1) for number in range(confirmed)
                )
                acknowledged += confirmed
        assert len(platform.log.fixes) == 5000


async def test_all_connections_wait_when_too_much_is_in_flight_over_all() -> None:
    settings = Settings(all_publishes_in_flight_max=5)
    async with Platform().listening(settings) as platform:
        platform.log.hold = True
        names = [f"phone{number}" for number in range(4)]
        publishes = b"".join(
            encode_publish(4, TOPIC, LOCATION, 1, False, False, number) for number in range(1, 6)
        )
        async with contextlib.AsyncExitStack() as stack:
            readers, writers = [], []
            for name in names:
                connect = CONNECT.replace(b"\x05phone", b"\x06" + name.encode())
                connect = b"\x10" + bytes([len(connect) - 2]) + connect[2:]
                reader, writer = await stack.enter_async_context(raw(platform, connect))
                assert await reader.readexactly(4) == b"\x20\x02\x00\x00"
                readers.append(reader)
                writers.append(writer)
            for writer in writers:
                writer.write(publishes)
            await eventually(lambda: len(platform.log.waiting) == 5)
            assert platform.server.publishes.is_full
            while len(platform.log.fixes) < 20 or platform.log.waiting:
                assert len(platform.log.waiting) <= 5
                platform.log.confirm()
                await asyncio.sleep(0)
            for reader in readers:
                expected = b"".join(encode_puback(number) for number in range(1, 6))
                assert await reader.readexactly(20) == expected


async def test_a_reader_that_does_not_read_costs_no_unbounded_memory() -> None:
    settings = Settings(outgoing_bytes_max=64 * 1024, queued_messages_max=20)
    lazy_connect = CONNECT.replace(b"phone", b"lazyy")
    async with Platform().listening(settings) as platform, raw(platform, lazy_connect) as lazy:
        reader, writer = lazy
        await reader.readexactly(4)
        writer.write(b"\x82\x14\x00\x01\x00\x0fowntracks/+/+/+\x01")
        assert await reader.readexactly(5) == b"\x90\x03\x00\x01\x01"
        (protocol,) = platform.server._protocols
        transport = protocol.transport
        assert transport is not None
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        big = b"x" * 100_000
        async with client(platform) as phone:
            for _ in range(150):
                await phone.publish("owntracks/alice/phone/cmd", big, 0)
                await phone.publish("owntracks/alice/phone/cmd", big, 1)
                assert transport.get_write_buffer_size() < 1_000_000
        assert platform.server.counters["deliveries_dropped"] > 100


async def test_a_stopping_server_acknowledges_what_the_log_still_confirms() -> None:
    platform = Platform()
    platform.log.hold = True
    async with platform.listening(), raw(platform, CONNECT) as (reader, writer):
        await reader.readexactly(4)
        writer.write(encode_publish(4, TOPIC, LOCATION, 1, False, False, 1))
        await eventually(lambda: len(platform.log.waiting) == 1)
        closing = asyncio.ensure_future(platform.server.close())
        await asyncio.sleep(0)
        platform.log.confirm()
        assert await reader.read() == encode_puback(1)
        await closing
        assert platform.push.channels == []
        platform.push.channels.append(platform.server.channel)  # for the second close


async def test_why_a_connection_ended_is_logged_without_secrets(
    platform: Platform, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    secret = CONNECT.replace(b"\x82", b"\xc2") + b"\x00\x06secret"
    secret = b"\x10" + bytes([len(secret) - 2]) + secret[2:]
    async with raw(platform, secret + b"\x00\x00") as (reader, _):
        await reader.read()
    assert "'phone' (user 'alice')" in caplog.text
    assert "reserved packet type (reason code 0x81)" in caplog.text
    assert "secret" not in caplog.text


def test_it_serves_on_uvloop_too() -> None:
    async def main() -> None:
        async with Platform().listening() as platform, client(platform, version=5) as phone:
            await phone.subscribe("owntracks/+/+", 2)
            for qos in (1, 2):
                assert await phone.publish(TOPIC, LOCATION, qos) == 0
                assert (await phone.message()).payload == LOCATION
            # The client can read the reason of a refusal although more bytes were in flight.
            async with raw(platform, b"\x10\xff\xff\xff\x7f" + b"x" * 100_000) as (reader, _):
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""

    uvloop.run(main())


async def test_garbage_over_and_over_fills_no_log(
    platform: Platform, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def send_garbage() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", platform.server.endpoint.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()

    def lines() -> list[str]:
        return [line for line in caplog.messages if line.startswith("connection of ")]

    async with client(platform):
        pass
    await eventually(lambda: platform.server.gauge("connections") == 0)
    assert not lines()
    await asyncio.gather(*(send_garbage() for _ in range(300)))
    assert platform.server.counters["connections_ended"] == 300
    assert 0 < len(lines()) < 300
    async with asyncio.timeout(WAIT_S):
        while "more were not logged" not in lines()[-1]:
            await send_garbage()
        while "more were not logged" in lines()[-1]:
            # The number of lines that were not logged appears once.
            await send_garbage()
            await asyncio.sleep(0.1)


@TURNS
async def test_a_client_that_connects_while_the_listener_stops_is_disconnected(turns: int) -> None:
    async with contextlib.AsyncExitStack() as stack:
        platform = await stack.enter_async_context(Platform().listening())
        endpoint = platform.server.endpoint
        await check_disconnected((endpoint.host, endpoint.port), stack.aclose, turns)
