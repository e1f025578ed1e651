"""What a gateway counts of pushes, and when it tells it."""

from __future__ import annotations

import asyncio

import pytest

from gateway.observability.push_ledger import CARD, MQTT, SSE, PushLedger
from gateway.viewers.live_events import LiveEvent
from gateway.views.view import ViewEvent
from waylog.audit.days import Day
from waylog.audit.pushes import ChannelPushes, PushSums
from waylog.kafka.topics import ADDRESS, LOCATION, PUSH

DAY = Day("1970-01-02", "UTC", 86_400_000, 172_800_000)


class Clock:
    def __init__(self) -> None:
        self.ms = DAY.from_ms + 1_000

    def __call__(self) -> float:
        return self.ms / 1000


class Told:
    """Keeps what is told, as the log does."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.came = asyncio.Event()

    def record(self, topic: str, value: bytes, key: bytes | None = None) -> None:
        assert topic == PUSH and key is not None
        self.values.append(value)
        self.came.set()

    def sums(self, device: str) -> list[ChannelPushes]:
        sums = PushSums(device, DAY)
        for value in self.values:
            sums.take(value)
        return sums.sums()


async def test_pushes_are_told_at_the_end_of_a_stretch_and_at_a_stop() -> None:
    clock, told = Clock(), Told()
    ledger = PushLedger(clock)
    ledger.pushed(MQTT, "ada/phone")
    clock.ms = DAY.from_ms + 14_999
    ledger.pushed(MQTT, "ada/phone")
    ledger.pushed(CARD, "ada/phone")
    assert list(ledger.untold("ada/phone")) == [(MQTT, 2, clock.ms), (CARD, 1, clock.ms)]
    assert ledger.seconds_left() == pytest.approx(0.001)
    running = asyncio.create_task(ledger.run(told))
    await told.came.wait()
    assert list(ledger.untold("ada/phone")) == []
    ledger.pushed(MQTT, "ada/phone")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert told.sums("ada/phone") == [
        *(ChannelPushes("mqtt", 3, clock.ms), ChannelPushes("card", 1, clock.ms)),
    ]


@pytest.mark.parametrize(
    ("devices", "seconds"), [(1, 15), (330, 15), (331, 60), (1_301, 300), (6_501, 900)]
)
def test_with_more_devices_a_stretch_is_longer(devices: int, seconds: int) -> None:
    clock = Clock()
    clock.ms = DAY.from_ms
    ledger = PushLedger(clock)
    for number in range(devices):
        ledger.pushed(MQTT, f"user/{number}")
    assert ledger.seconds_left() == seconds


def test_of_what_viewers_are_sent_addresses_of_own_devices_count() -> None:
    ledger = PushLedger(Clock())
    events = [
        LiveEvent(ViewEvent(topic, 0, number, device, 0.0, 0.0, b"{}"), number, "")
        for number, (topic, device) in enumerate(
            [
                (ADDRESS, "ada/phone"),
                (LOCATION, "ada/phone"),
                (ADDRESS, "ben/phone"),
                (ADDRESS, "ada/phone"),
            ]
        )
    ]
    ledger.shown(SSE, events, "ada")
    assert [each[:2] for each in ledger.untold("ada/phone")] == [(SSE, 2)]
    assert list(ledger.untold("ben/phone")) == []
