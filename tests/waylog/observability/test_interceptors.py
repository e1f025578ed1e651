from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from waylog.messages import Fix
from waylog.observability.interceptors import parameter_logged, performance_logged, without_secrets


class Records:
    """Collects the records of interceptors."""

    def __init__(self) -> None:
        self.records: list[tuple[str, dict[str, Any]]] = []

    def record(self, topic: str, value: bytes) -> None:
        self.records.append((topic, msgspec.json.decode(value)))


class Service:
    def __init__(self) -> None:
        self.telemetry = Records()

    @performance_logged
    @parameter_logged
    def submit(self, name: str, *, token: str = "") -> str:
        if name == "bad":
            raise ValueError(name)
        return name + token

    @performance_logged
    def later(self) -> asyncio.Future[int]:
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.02, future.set_result, 7)
        return future

    @performance_logged
    async def slow(self) -> int:
        await asyncio.sleep(0.02)
        return 8


def test_a_call_is_recorded_with_its_duration_and_its_arguments() -> None:
    service = Service()
    assert service.submit("a") == "a"
    (topic_1, parameters), (topic_2, performance) = service.telemetry.records
    assert (topic_1, topic_2) == ("parameter", "performance")
    assert parameters["method"] == performance["method"] == "Service.submit"
    assert parameters["arguments"] == {"name": "a"}
    assert performance["calls"] == 1
    assert performance["duration_ms"] >= 0


def test_secrets_are_not_recorded() -> None:
    service = Service()
    service.submit("a", token="hunter2")
    assert "hunter2" not in str(service.telemetry.records)


def test_a_failure_is_counted_and_still_raised() -> None:
    service = Service()
    with pytest.raises(ValueError, match="bad"):
        service.submit("bad")
    assert service.telemetry.records[-1][1]["failures"] == 1


def test_many_calls_share_a_record_and_none_goes_uncounted() -> None:
    service = Service()
    for _ in range(1000):
        service.submit("a")
    records = [each for topic, each in service.telemetry.records if topic == "performance"]
    assert len(records) < 100
    assert sum(each["calls"] for each in records) <= 1000


async def test_a_future_is_measured_until_it_is_done() -> None:
    service = Service()
    assert await service.later() == 7
    await asyncio.sleep(0)
    assert service.telemetry.records[-1][1]["duration_ms"] >= 15


async def test_of_many_futures_some_are_measured_and_all_are_counted() -> None:
    service = Service()
    futures = [service.later() for _ in range(100)]
    await asyncio.wait(futures)
    await asyncio.sleep(0.05)
    await service.later()
    await asyncio.sleep(0)
    records = [each for topic, each in service.telemetry.records if topic == "performance"]
    assert sum(each["calls"] for each in records) == 101
    assert 2 <= sum(each["measured"] for each in records) <= 10
    assert all(each["mean_ms"] >= 15 for each in records)


async def test_a_coroutine_is_measured_until_its_end() -> None:
    service = Service()
    assert await service.slow() == 8
    assert service.telemetry.records[-1][1]["duration_ms"] >= 15


def test_secrets_are_found_at_any_depth() -> None:
    hidden = without_secrets({"a": [{"password": "p"}], "raw": b"abc", "n": 1})
    assert hidden == {"a": [{"password": "[secret]"}], "raw": "[3 bytes]", "n": 1}


def test_of_a_message_is_told_how_it_came_and_not_where_somebody_was() -> None:
    fix = Fix(
        id="0123456789abcdef",
        device="anna/phone",
        user="anna",
        lat=47.123456,
        lon=9.654321,
        time=1_700_000_000_000,
        received=1_700_000_001_000,
        altitude=455.5,
        source="owntracks",
        attributes={"inregions": ["Grandmother's house"]},
    )
    told = without_secrets({"fix": fix})
    assert told == {
        "fix": {
            "id": "[str of 16]",
            "device": "anna/phone",
            "user": "anna",
            "lat": "[float]",
            "lon": "[float]",
            "time": "[int]",
            "received": 1_700_000_001_000,
            "altitude": "[float]",
            "source": "owntracks",
            "attributes": "[dict of 1]",
        }
    }
