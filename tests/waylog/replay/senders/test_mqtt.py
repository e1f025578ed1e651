from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from tests.load_tests.mqtt_acceptor import mqtt_acceptor
from waylog.cli import CommandError
from waylog.config import Endpoint
from waylog.replay.readers.recorded import RecordedFix
from waylog.replay.senders.mqtt import MqttSender
from waylog.replay.senders.tally import Tally
from waylog.replay.senders.wire import Outgoing, outgoing


async def fixes(count: int, devices: int, wire_format: str) -> AsyncIterator[Outgoing]:
    for index in range(count):
        if index % 50 == 0:
            await asyncio.sleep(0)
        recorded = RecordedFix(time=1748772000000 + 1000 * index, lat=47.0, lon=9.0)
        yield outgoing(recorded, "mika", f"d{index % devices}", wire_format)


async def test_each_device_has_a_connection_and_its_order() -> None:
    tally = Tally()
    async with mqtt_acceptor() as acceptor:
        sender = MqttSender(
            Endpoint("127.0.0.1", acceptor.port), "mika", "secret", "owntracks", tally
        )
        await sender.run(fixes(500, 5, "owntracks"))
    assert tally.acknowledged == 500
    assert acceptor.connections == 5
    assert set(acceptor.users) == {"mika"}
    assert set(acceptor.passwords) == {"secret"}
    for device in range(5):
        topic = f"owntracks/mika/d{device}"
        times = [
            msgspec.json.decode(each.payload)["tst"]
            for each in acceptor.received
            if each.topic == topic
        ]
        assert len(times) == 100
        assert times == sorted(times)


async def test_more_devices_than_connections_share_them() -> None:
    tally = Tally()
    async with mqtt_acceptor() as acceptor:
        sender = MqttSender(Endpoint("127.0.0.1", acceptor.port), "m", None, "positions", tally)
        await sender.run(fixes(240, 120, "positions"))
    assert tally.acknowledged == 240
    assert acceptor.connections == 50
    assert {each.topic for each in acceptor.received} == {
        f"devices/mika/d{device}/position" for device in range(120)
    }


async def test_nothing_is_lost_when_connections_break_before_the_acknowledgement() -> None:
    tally = Tally()
    async with mqtt_acceptor() as acceptor:
        acceptor.acknowledge = lambda number: None if number % 40 == 17 else True
        sender = MqttSender(Endpoint("127.0.0.1", acceptor.port), "m", None, "positions", tally)
        await sender.run(fixes(200, 2, "positions"))
        sent = set(range(200))
        got = {
            (msgspec.json.decode(payload)["time"] - 1748772000000) // 1000
            for payload in acceptor.payloads
        }
    assert got == sent
    assert tally.acknowledged == 200
    assert tally.retries > 0


async def test_a_refused_connection_is_a_users_mistake() -> None:
    async with mqtt_acceptor() as acceptor:
        acceptor.connect_answer = 5
        sender = MqttSender(Endpoint("127.0.0.1", acceptor.port), "m", "x", "owntracks", Tally())
        with pytest.raises(ExceptionGroup) as caught:
            await sender.run(fixes(1000, 1, "owntracks"))
    assert caught.group_contains(CommandError, match="refuses the connection")
