"""Costs of one packet for the event loop in any state, counted in steps and not in time."""

from __future__ import annotations

from gateway.mqtt.packets.message import Message
from gateway.mqtt.packets.packets import PacketType, ReasonCode, Will
from gateway.mqtt.sessions.retained import MATCHED_AT_ONCE
from gateway.mqtt.sessions.router import WillDue
from gateway.mqtt.settings import Settings
from tests.gateway.mqtt.in_memory import (
    Platform,
    User,
    Wire,
    eventually,
    new_router,
    split_packets,
)

ADMIN = User("root", admin=True)
STEPS = 256  # messages that one client is sent in a turn of the loop
MANY = 20_000


def filled(count: int) -> Wire:
    """Connect an administrator to a router with retained messages of many users."""
    router = new_router(Settings(outgoing_bytes_max=64 * 1024 * 1024))
    for number in range(count):
        message = Message(f"devices/u{number}/phone/sign", b"x", 0, True)
        router.publish(message, None, 0.0, f"u{number}")
    wire = Wire(router)
    wire.connect("root", ADMIN)
    return wire


def test_retained_messages_without_number_are_sent_in_steps() -> None:
    wire = filled(MANY)
    first = split_packets(wire.subscribe("#", 0))
    assert first[0][0] == 0x90 and 1 < len(first) <= STEPS + 1
    count, turns = len(first) - 1, 1
    while wire.connection in wire.router.changed:
        packets = split_packets(wire.received())
        assert len(packets) <= STEPS
        count += len(packets)
        turns += 1
    assert count == MANY and turns <= MANY // STEPS + 3


def test_a_search_that_finds_nothing_pauses() -> None:
    wire = filled(MANY)
    assert len(split_packets(wire.subscribe("devices/+/+/nothing", 0))) == 1
    turns = 0
    while wire.connection in wire.router.changed:
        assert wire.received() == b""
        turns += 1
    # The number of topics that one turn may examine is limited.
    assert turns >= MANY // (MATCHED_AT_ONCE * STEPS // 16) - 1
    assert wire.connection.session is not None and wire.connection.session.backlog is None


def test_a_client_that_says_something_meanwhile_does_not_hasten_it() -> None:
    wire = filled(MANY)
    wire.subscribe("#", 0)
    for _ in range(10):
        wire.send(b"\xc0\x00")
    packets = split_packets(wire.received())
    assert len(packets) <= 10 + STEPS


def test_one_packet_with_thousands_of_filters_is_refused() -> None:
    for first, tail in ((0x82, b"\1"), (0xA2, b"")):
        wire = Wire(new_router())
        wire.connect("eve", User("eve"), version=5)
        body = b"\0\1\0" + (b"\0\1a" + tail) * 20_000
        size, length = len(body), b""
        while True:
            size, digit = size >> 7, size & 0x7F
            length += bytes([digit | (0x80 if size else 0)])
            if not size:
                break
        wire.send(bytes([first]) + length + body)
        (answer,) = split_packets(wire.received())
        assert answer[0] >> 4 == PacketType.DISCONNECT
        assert answer[1][0] == ReasonCode.QUOTA_EXCEEDED


async def test_wills_of_many_that_go_at_once_are_published_in_steps() -> None:
    async with Platform().listening() as platform:
        server = platform.server
        will = Will("devices/ada/phone/gone", b"x")
        server.router.wills += [WillDue(User("ada"), will)] * 1_000
        server.publish_wills(server.time())
        assert server.counters["wills"] == 1
        server.wake()
        await eventually(lambda: server.counters["wills"] == 1_000)
