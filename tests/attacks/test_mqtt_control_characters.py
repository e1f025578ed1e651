"""Control characters in names: libmosquitto disconnects whenever it receives one."""

from __future__ import annotations

import asyncio
import shutil
import unicodedata

import pytest

from gateway.mqtt.packets.encoder import encode_publish
from gateway.mqtt.packets.packet_fields import string_is_valid
from gateway.mqtt.packets.packets import PacketType, Properties
from tests.attacks.test_mqtt_qos_2 import RawClient
from tests.gateway.mqtt.in_memory import WAIT_S, PahoClient, Platform, changed, eventually
from tests.gateway.mqtt.in_memory import address as address_of
from tests.gateway.mqtt.journal_worker import Log, Record, Worker, publish

BAD = ["\x01", "\n", "\x1f", "\x7f", "\x85", "\x9f", "\ufdd0", "\ufdef", "\ufffe", "\U0001ffff"]
NOTE = "devices/ada/phone/note"


def text(value: str) -> bytes:
    encoded = value.encode()
    return len(encoded).to_bytes(2, "big") + encoded


def packet(first: int, body: bytes) -> bytes:
    assert len(body) < 128
    return bytes([first, len(body)]) + body


def connect(client_id: str, version: int, *, will: str = "", user: str = "ada") -> bytes:
    flags = 0x82 | (4 if will else 0)
    properties = b"\0" if version == 5 else b""
    body = b"\0\4MQTT" + bytes([version, flags]) + b"\0\0" + properties + text(client_id)
    if will:
        body += properties + text(will) + text("gone")
    return packet(0x10, body + text(user))


def test_every_character_that_mqtt_advises_against_is_refused_and_no_other() -> None:
    for number in [*range(0x3000), *range(0xE000, 0x20000, 7), *range(0xFD00, 0x10000), 0x10FFFF]:
        if 0xD800 <= number < 0xE000:
            continue
        character = chr(number)
        control = unicodedata.category(character) == "Cc"
        never = 0xFDD0 <= number <= 0xFDEF or number & 0xFFFE == 0xFFFE
        assert string_is_valid(f"ä{character}€") == (not control and not never), hex(number)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("character", BAD)
async def test_names_with_control_characters_end_the_connection_that_sends_them(
    version: int, character: str
) -> None:
    empty = b"\0" if version == 5 else b""
    topic = f"devices/ada/phone/{character}"
    attempts = [
        encode_publish(version, topic, b"x", 1, True, False, 1),
        packet(0x82, b"\0\1" + empty + text(topic) + b"\1"),
        packet(0x82, b"\0\1" + empty + text(f"$share/{character}/x") + b"\1"),
        packet(0xA2, b"\0\1" + empty + text(topic)),
    ]
    if version == 5:
        several: list[Properties] = [
            {38: [("k", character)]},
            {38: [(character, "v")]},
            {8: character},
        ]
        for properties in several:
            attempts.append(encode_publish(5, NOTE, b"x", 1, True, False, 1, properties))
    async with Platform().listening() as platform:
        port = platform.server.endpoint.port
        for attempt in attempts:
            client = await RawClient.connect(port, version=version)
            client.writer.write(attempt)
            with pytest.raises(ConnectionError):
                await client.read_until(lambda: False)
            goodbye = client.of(PacketType.DISCONNECT)
            assert [each[:1] for each in goodbye] == ([b"\x81"] if version == 5 else [])
            client.writer.close()
        for first in (
            connect(character, version),
            connect("c", version, will=topic),
            connect("c", version, user=character),
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(first)
            assert await reader.read() == b""
            writer.close()
        assert not len(platform.server.router.retained)


def test_what_was_kept_before_there_was_a_rule_is_removed() -> None:
    log = Log()
    first = Worker(log, "a")
    wire, _ = first.client()
    wire.subscribe("devices/alice/phone/#")
    wire.lose()
    bad = "devices/alice/phone/\x01"
    publish(first.router, b"bad", retain=True, topic=bad)
    publish(first.router, b"good", retain=True, topic="devices/alice/phone/sign")
    key = (first.router.sessions.popitem()[0][0], "\x01")
    first.turn()
    first.stop()
    log.records.append(Record(f"session\0{key[0]}\0\x01".encode(), _session(), 0))
    second = Worker(log, "b")
    assert second.router.retained.get(bad) is None
    assert {record.key() for record in log.compacted() if record.value() is None} >= {
        f"retained\0{bad}".encode(),
        f"session\0{key[0]}\0\x01".encode(),
    }
    assert ("alice", "\x01") not in second.router.sessions
    assert second.router.retained.get("devices/alice/phone/sign") is not None


def _session() -> bytes:
    return b'{"worker":"a","at":1761994800000,"expiry_interval_s":604800}'


async def test_a_device_with_such_a_name_does_not_cut_off_its_subscribers() -> None:
    async with Platform().listening() as platform:
        subscriber = PahoClient(platform.server.endpoint.port, "subscriber")
        await subscriber.connect("alice")
        await subscriber.subscribe("devices/alice/+/address")
        for device in ("alice/\x01", "alice/\ufffe", "alice/phone"):
            platform.addresses.by_device[device] = address_of(device)
            changed(platform.server.channel, address_of(device))
        assert (await subscriber.message()).topic == "devices/alice/phone/address"
        await subscriber.subscribe("devices/alice/#")
        assert (await subscriber.message()).topic == "devices/alice/phone/address"
        await subscriber.close()
        assert subscriber.messages.empty()


@pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="mosquitto-clients is missing")
async def test_a_subscriber_on_libmosquitto_stays_whatever_somebody_publishes() -> None:
    async with Platform().listening() as platform:
        port = platform.server.endpoint.port
        for character in BAD:
            attacker = await RawClient.connect(port, "attacker")
            attacker.writer.write(
                encode_publish(4, f"devices/ada/{character}", b"x", 1, True, False, 1)
            )
            with pytest.raises(ConnectionError):
                await attacker.read_until(lambda: False)
            attacker.writer.close()
        subscriber = await asyncio.create_subprocess_exec(
            *("mosquitto_sub", "-p", str(port), "-u", "ada", "-t", "devices/ada/#", "-C", "1"),
            stdout=asyncio.subprocess.PIPE,
        )
        await eventually(lambda: len(platform.server.router.subscriptions) > 0)
        sender = PahoClient(port, "sender")
        await sender.connect("ada")
        await sender.publish(NOTE, "still here")
        async with asyncio.timeout(WAIT_S):
            output, _ = await subscriber.communicate()
        assert output == b"still here\n"
        await sender.close()
        # The subscriber has connected once, and was never disconnected.
        assert platform.server.counters["connections"] == len(BAD) + 2
