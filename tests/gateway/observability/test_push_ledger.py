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
    ledger = PushLedger(clock, clock)
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
async def test_after_many_devices_a_stretch_is_longer(devices: int, seconds: int) -> None:
    clock, told = Clock(), Told()
    clock.ms = DAY.from_ms + 14_999
    ledger = PushLedger(clock, clock)
    for number in range(devices):
        ledger.pushed(MQTT, f"user/{number}")
    running = asyncio.create_task(ledger.run(told))
    await told.came.wait()
    clock.ms = DAY.from_ms + 900_000
    assert ledger.seconds_left() == seconds
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert sum((len(value) - 16) // 32 for value in told.values) == devices


def test_of_what_viewers_are_sent_addresses_of_own_devices_count() -> None:
    ledger = PushLedger(Clock(), Clock())
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


async def test_who_counts_without_a_call_counts_the_same() -> None:
    clock, told = Clock(), Told()
    ledger = PushLedger(clock, clock)
    counts = ledger.counts(MQTT)
    for device, is_owners in (("ada/phone", True), ("ben/phone", False)):
        for _ in range(3):
            count = counts.get(device) or ledger.begin(MQTT, device, is_owners=is_owners)
            count[0] += 1
            count[1] = clock()
    assert list(ledger.untold("ben/phone")) == []
    running = asyncio.create_task(ledger.run(told))
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert counts == {} and counts is ledger.counts(MQTT)
    assert told.sums("ada/phone") == [ChannelPushes("mqtt", 3, clock.ms)]
    assert told.sums("ben/phone") == []
