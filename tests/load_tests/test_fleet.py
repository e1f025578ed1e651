from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable

import msgspec
import pytest

from gateway.formats import Context, positions
from load_tests.fleet import Fleet
from tests.load_tests.mqtt_acceptor import MqttAcceptor, mqtt_acceptor
from tests.tcp_server import tcp_server

RUN = "testrun1"


def drive(fleet: Fleet, until: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline, "the fleet does not get there"
        fleet.step(5)


def connected(fleet: Fleet) -> Callable[[], bool]:
    return lambda: fleet.ready == fleet.devices


async def play(fleet: Fleet, seconds: float) -> None:
    """Connect, send for a while, and wait until everything is acknowledged."""

    def run() -> None:
        drive(fleet, connected(fleet))
        fleet.begin()
        end = time.monotonic() + seconds
        drive(fleet, lambda: time.monotonic() >= end)
        fleet.end()
        drive(fleet, lambda: fleet.settled)

    await asyncio.to_thread(run)


def fleet_for(acceptor: MqttAcceptor, devices: int, rate: float, **options: object) -> Fleet:
    return Fleet(
        "127.0.0.1",
        acceptor.port,
        devices=devices,
        rate=rate,
        run=RUN,
        **options,  # type: ignore[arg-type]
    )


def address(_: str, payload: bytes) -> bytes:
    fix = msgspec.json.decode(payload)
    return msgspec.json.encode({"device": "x", "fix_id": fix["id"], "time": fix["time"], "lat": 1})


async def test_every_fix_is_sent_once_acknowledged_and_answered_with_its_address() -> None:
    async with mqtt_acceptor() as acceptor:
        acceptor.push = address
        fleet = fleet_for(acceptor, 20, 400.0)
        await play(fleet, 0.55)
        await asyncio.to_thread(drive, fleet, lambda: fleet.pushes == fleet.sent)
        ids = Counter(msgspec.json.decode(each.payload)["id"] for each in acceptor.received)
        assert fleet.sent == fleet.due == fleet.acknowledged == len(ids) >= 200
        assert set(ids.values()) == {1}
        assert fleet.resent == fleet.protocol_errors == fleet.disconnects == 0
        accounts = list(fleet.accounts())
        assert [number for number, _, _ in accounts] == list(range(20))
        assert sum(sent for _, sent, _ in accounts) == fleet.sent
        for number, sent, bits in accounts:
            assert int.from_bytes(bits, "little") == 2**sent - 1
            assert all(f"{RUN}-{number:08d}-{n:08d}" in ids for n in range(sent))
        latencies = fleet.take_acknowledgement_latencies()
        assert sum(count for _, count in latencies) == fleet.acknowledged
        assert fleet.take_acknowledgement_latencies() == []
        assert sum(count for _, count in fleet.take_push_latencies()) == fleet.pushes
        fleet.close()


async def test_the_gateway_keeps_the_ids_and_reads_every_member() -> None:
    async with mqtt_acceptor() as acceptor:
        fleet = fleet_for(acceptor, 3, 100.0, user="anna", first_device=41)
        await play(fleet, 0.2)
        for each in acceptor.received:
            _, user, device, kind = each.topic.split("/")
            assert (user, kind) == ("anna", "position")
            context = Context(user=user, device=device, received=int(time.time() * 1000))
            (fix,) = positions.parse(each.payload, context).fixes
            assert fix.id.startswith(f"{RUN}-{device.removeprefix('d')}-")
            assert 46 <= fix.lat <= 55
            assert 6 <= fix.lon <= 16
            assert abs(fix.time - context.received) < 60_000
            assert fix.accuracy is not None
            assert fix.battery is not None
        assert fleet.device_name(0) == "d00000041"


async def test_what_was_not_acknowledged_is_sent_again_on_the_next_connection() -> None:
    async with mqtt_acceptor() as acceptor:
        acceptor.acknowledge = lambda number: None if number in (7, 30, 55) else True
        fleet = fleet_for(acceptor, 4, 200.0)
        await play(fleet, 0.6)
        acknowledged = {msgspec.json.decode(payload)["id"] for payload in acceptor.payloads}
        assert len(acknowledged) == fleet.sent == fleet.acknowledged
        assert fleet.resent > 0
        assert fleet.disconnects == 3
        # Messages after the hang-up on the same connection were never received.
        again = [each for each in acceptor.received if each.dup]
        assert 0 < len(again) <= fleet.resent
        distinct = {each.payload for each in acceptor.received}
        assert len(distinct) == fleet.sent, "a repeated fix must not change"
        fleet.close()


async def test_a_missing_acknowledgement_is_noticed_while_later_ones_come() -> None:
    async with mqtt_acceptor() as acceptor:
        acceptor.acknowledge = lambda number: number != 5
        fleet = fleet_for(acceptor, 1, 50.0, ack_timeout_s=0.5, window=100)
        await play(fleet, 1.2)
        assert fleet.disconnects >= 1
        assert fleet.acknowledged == fleet.sent >= 30
        fleet.close()


async def test_latency_counts_from_the_moment_a_fix_was_due() -> None:
    async with mqtt_acceptor() as acceptor:
        fleet = fleet_for(acceptor, 10, 100.0, window=1, ack_timeout_s=30.0)
        began: list[float] = []

        def acknowledge(_: int) -> bool | None:
            """Hang up on everything in the first half second."""
            began.append(time.monotonic())
            return None if began[-1] - began[0] < 0.5 else True

        acceptor.acknowledge = acknowledge
        await play(fleet, 0.3)
        latencies = fleet.take_acknowledgement_latencies()
        waited = sum(count for value, count in latencies if value > 100_000)
        assert waited > 0.8 * fleet.acknowledged
        fleet.close()


async def test_a_refused_password_is_not_tried_again() -> None:
    async with mqtt_acceptor() as acceptor:
        acceptor.connect_answer = 5
        fleet = fleet_for(acceptor, 5, 5.0, user="u", password="wrong")
        await asyncio.to_thread(drive, fleet, lambda: fleet.refused == 5)
        await asyncio.to_thread(drive, fleet, lambda: True)
        assert acceptor.connections == 5
        assert set(acceptor.users) == {"u"}
        assert set(acceptor.passwords) == {"wrong"}


async def test_a_gateway_that_is_not_there_yet_is_found_later() -> None:
    async with mqtt_acceptor() as acceptor:
        port = acceptor.port
    fleet = Fleet("127.0.0.1", port, devices=3, rate=30.0, run=RUN)
    await asyncio.to_thread(drive, fleet, lambda: fleet.connect_failures >= 3)
    async with tcp_server(MqttAcceptor().serve, port):
        await play(fleet, 0.2)
        assert fleet.acknowledged == fleet.sent > 0
        fleet.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"\x40\x02\x00\x01",  # PUBACK before CONNACK
        b"\x20\x01\x00",  # CONNACK that is too short
        b"\xff\xff\xff\xff\xff\xff",  # a length that never ends
        b"\x20\x02\x00\x00\x90\x03\xff\xff\x01\x30\x02\x00\x09",  # a topic beyond its packet
        b"\x20\x02\x00\x00\x90\x03\xff\xff\x01\x32\x04\x00\x01ab",  # QoS 1 without identifier
        b"\x20\x02\x00\x00\x90\x03\xff\xff\x01\x40\x01\x00",  # PUBACK that is too short
        b"\x20\x02\x00\x00" + b"\x30\xff\xff\x7f" + bytes(60_000),  # larger than any address
    ],
)
async def test_an_answer_that_breaks_the_protocol_costs_the_connection(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(answer)
        await reader.read()

    async with tcp_server(serve) as port:
        fleet = Fleet("127.0.0.1", port, devices=1, rate=1.0, run=RUN)
        await asyncio.to_thread(drive, fleet, lambda: fleet.protocol_errors > 0)
        fleet.close()


async def test_answers_may_arrive_byte_by_byte() -> None:
    topic = b"\x00\x25devices/load/d00000000/address0000000"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        for packet in (b"\x20\x02\x00\x00", b"\x90\x03\xff\xff\x00"):
            for byte in packet:
                writer.write(bytes((byte,)))
                await asyncio.sleep(0.002)
        await reader.readuntil(b"/position")
        packet_id = await reader.readexactly(2)
        push = topic + b'{"time":1}'
        answer = b"\x30" + bytes((len(push),)) + push + b"\x40\x02" + packet_id
        for byte in answer:
            writer.write(bytes((byte,)))
            await asyncio.sleep(0.001)
        await reader.read()

    async with tcp_server(serve) as port:
        fleet = Fleet("127.0.0.1", port, devices=1, rate=0.2, run=RUN)
        await play(fleet, 0.1)
        assert (fleet.sent, fleet.acknowledged, fleet.protocol_errors) == (1, 1, 0)
        assert (fleet.push_messages, fleet.pushes) == (1, 0), "an address of somebody else's fix"
        fleet.close()


def test_wrong_settings_are_refused() -> None:
    for wrong in (
        {"devices": 0},
        {"rate": 0.0},
        {"run": "x"},
        {"run": "with-dash"},
        {"window": 0},
        {"first_device": -1},
        {"user": "u" * 400},
    ):
        with pytest.raises(ValueError, match=r"."):
            Fleet(
                "127.0.0.1",
                1,
                **({"devices": 1, "rate": 1.0, "run": RUN} | wrong),  # type: ignore[arg-type]
            )
