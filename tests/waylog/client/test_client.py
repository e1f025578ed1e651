"""The client against a gateway with its log."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.consumers.running import Broker, await_condition
from tests.gateway.running import Gateway, Login
from tests.ports import reserved_ports
from waylog.client import (
    Address,
    ApiError,
    AsyncClient,
    Client,
    Fix,
    Gap,
    Position,
    Stay,
    Trip,
    Unreachable,
)
from waylog.kafka.clients import ensure_topics

BEGAN = datetime(2026, 5, 30, 8, 0, tzinfo=UTC)
BEGAN_MS = round(BEGAN.timestamp() * 1000)
MINUTE_MS = 60_000
_numbers = itertools.count()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    broker = Broker(tmp_path_factory.mktemp("broker"))
    ensure_topics(broker.address)
    running = Gateway(tmp_path_factory.mktemp("gateway"), broker.address)
    yield running
    running.close()
    broker.process.stop()


@pytest.fixture
def user(gateway: Gateway) -> Login:
    return gateway.user(f"user{next(_numbers)}")


@pytest.fixture
def waylog(gateway: Gateway, user: Login) -> Iterator[Client]:
    with Client(gateway.url, user=user.name, token=user.token) as client:
        yield client


def drive(device: str, minutes: int, *, north: float = 0.005) -> list[Position]:
    """Return positions of a drive to the north and of a rest, one a minute."""
    return [
        Position(
            device=device,
            lat=47.0 + north * min(minute, minutes // 2),
            lon=9.5,
            time=BEGAN_MS + minute * MINUTE_MS,
            accuracy=5,
            speed=9 if minute <= minutes // 2 else 0,
        )
        for minute in range(minutes)
    ]


def test_what_is_sent_is_read_back(waylog: Client, user: Login) -> None:
    positions = drive("car", 60)
    sent = waylog.send(positions)
    assert len(sent.ids) == len(set(sent.ids)) == 60
    assert sent.rejected == []
    name = f"{user.name}/car"
    # A view reads what the log has acknowledged a moment later.
    await_condition(lambda: len(waylog.track(name)) == 60, 60, "all fixes")
    device = waylog.device(name)
    assert (device.device, device.user, device.name) == (name, user.name, "car")
    assert device.fix is not None
    assert (device.fix.lat, device.fix.time) == (positions[-1].lat, positions[-1].time)

    points = waylog.track(name, BEGAN, BEGAN + timedelta(hours=2))
    assert [each.time for each in points] == [each.time for each in positions]
    assert [each.lat for each in points] == pytest.approx([each.lat for each in positions])
    assert {each.lon for each in points} == {9.5}
    assert [each.speed for each in points] == [each.speed for each in positions]
    assert all(each.accuracy == 5 and each.altitude is None for each in points)
    assert b"<gpx" in waylog.track_file(name, "gpx", BEGAN_MS)

    items = waylog.timeline(name, BEGAN, BEGAN + timedelta(days=1))
    trip = next(each for each in items if isinstance(each, Trip))
    assert trip.distance_m == pytest.approx(30 * 0.005 * 111_195, rel=0.02)
    assert any(isinstance(each, Stay) for each in items)
    assert not any(isinstance(each, Gap) for each in items)
    assert waylog.days(name, BEGAN, BEGAN + timedelta(days=1)) == {"2026-05-30": 60}
    (total,) = waylog.statistics(name, BEGAN, BEGAN + timedelta(hours=2), by="month")
    assert (total.date, total.fixes, total.trips) == ("2026-05-01", 60, 1)
    assert not (waylog.places(name) or waylog.visits(name) or waylog.trips(name))


def test_one_point_is_a_track(waylog: Client, user: Login) -> None:
    waylog.send(Position(device="dog", lat=47, lon=9, altitude=455, time=BEGAN_MS, course=90))
    await_condition(lambda: waylog.track(f"{user.name}/dog"), 60, "the fix")
    (point,) = waylog.track(f"{user.name}/dog", BEGAN)
    assert (point.lat, point.altitude, point.course, point.speed) == (47, 455, 90, None)
    assert waylog.track(f"{user.name}/dog", BEGAN + timedelta(hours=1)) == []


def test_large_tracks_go_in_several_requests(waylog: Client, user: Login) -> None:
    positions = [
        Position(device="ship", lat=each / 1000, lon=1, time=BEGAN_MS + 1000 * each)
        for each in range(2_500)
    ]
    positions[1_700].lat = 91
    sent = waylog.send(iter(positions))
    assert len(sent.ids) == 2_499
    assert [each.index for each in sent.rejected] == [1_700]
    assert "lat" in sent.rejected[0].reason
    await_condition(lambda: len(waylog.track(f"{user.name}/ship")) == 2_499, 60, "all fixes")


def test_all_devices_are_listed_whatever_the_page(waylog: Client, user: Login) -> None:
    waylog.send(Position(device=f"d{number:02}", lat=1, lon=2) for number in range(30))
    await_condition(lambda: len(list(waylog.devices())) == 30, 60, "all devices")
    expected = [f"d{number:02}" for number in range(30)]
    assert [each.name for each in waylog.devices()] == expected
    assert [each.name for each in waylog.devices(page=7)] == expected


def test_names_that_have_to_be_encoded_are_found(waylog: Client, user: Login) -> None:
    waylog.send(Position(device="ä ö&%2F?", lat=1, lon=2))
    await_condition(lambda: list(waylog.devices()), 60, "the device")
    (device,) = waylog.devices()
    assert device.name == "ä_ö&%2F?"
    assert waylog.device(device.device) == device
    assert len(waylog.track(device.device)) == 1


def test_sending_again_stores_nothing_twice(gateway: Gateway, waylog: Client, user: Login) -> None:
    # Without a time the gateway's clock would make two fixes of it.
    position = Position(device="phone", lat=1, lon=2)
    assert waylog.send(position).ids == waylog.send(position).ids
    assert waylog.send(Position(device="phone", lat=1, lon=2)).ids != waylog.send(position).ids


def test_refusals_have_status_and_reason(gateway: Gateway, waylog: Client) -> None:
    with pytest.raises(ApiError) as caught:
        waylog.device("nobody/phone")
    assert caught.value.status in (403, 404)
    assert caught.value.reason
    with pytest.raises(ApiError) as caught:
        waylog.statistics("a/b", 0, 1, by="fortnight")  # type: ignore[arg-type]
    with (
        Client(gateway.url, user="ann", token="Ms2xw0Qq") as stranger,
        pytest.raises(ApiError) as caught,
    ):
        stranger.send(Position(lat=1, lon=2))
    assert caught.value.status == 401
    assert "Ms2xw0Qq" not in str(caught.value)
    with pytest.raises(ValueError, match="time zone"):
        waylog.track("a/b", datetime(2026, 1, 1))


def test_a_gateway_that_is_away_is_waited_for(
    gateway: Gateway, user: Login, tmp_path: Path
) -> None:
    other = Gateway(tmp_path, gateway.bootstrap_servers)
    login = other.user("ann")
    other.kill()
    with Client(other.url, user=login.name, token=login.token, patience_s=60) as client:
        result: list[list[str]] = []
        sending = threading.Thread(
            target=lambda: result.append(client.send(Position(lat=1, lon=2)).ids)
        )
        sending.start()
        other.start()
        sending.join(60)
        assert len(result[0]) == 1
    other.close()


def test_patience_has_an_end() -> None:
    (port,) = reserved_ports(1)
    url = f"http://127.0.0.1:{port}"
    with Client(url, token="t", patience_s=0) as client, pytest.raises(Unreachable):
        client.send(Position(lat=1, lon=2))
    with Client(url, token="t", patience_s=0) as client, pytest.raises(Unreachable):
        next(client.live())


def test_events_come_live_and_after_a_restart(
    gateway: Gateway, user: Login, tmp_path: Path
) -> None:
    other = Gateway(tmp_path, gateway.bootstrap_servers)
    login = other.user("ann")

    async def follow() -> None:
        async with AsyncClient(other.url, user=login.name, token=login.token) as client:
            await client.send(Position(device="boat", lat=1, lon=2))
            events = client.live(devices=["ann/boat"])
            first = await anext(events)
            assert isinstance(first, Fix)
            assert (first.device, first.lat) == ("ann/boat", 1)
            await client.send(Position(device="car", lat=5, lon=5))
            await client.send(Position(device="boat", lat=3, lon=2))
            second = await anext(events)
            if second == first:  # it came while the newest ones were read
                second = await anext(events)
            assert isinstance(second, Fix)
            assert second.lat == 3
            await asyncio.to_thread(other.kill)
            await asyncio.to_thread(other.start)
            await client.send(Position(device="boat", lat=4, lon=2))
            while (third := await anext(events)) == second:
                pass  # the newest one may come again
            assert isinstance(third, Fix)
            assert third.lat == 4
            other.publish(
                Address(
                    device="ann/boat",
                    fix_id=third.id,
                    time=third.time,
                    lat=4,
                    lon=2,
                    display_name="Atlantic",
                    address={},
                    resolved=third.time,
                )
            )
            fourth = await anext(events)
            assert isinstance(fourth, Address)
            assert fourth.display_name == "Atlantic"
            assert await client.address("ann/boat") == fourth
            await events.aclose()  # type: ignore[attr-defined]

    try:
        asyncio.run(asyncio.wait_for(follow(), 120))
    finally:
        other.close()


def test_tokens_of_devices_are_made_and_revoked(
    gateway: Gateway, waylog: Client, user: Login
) -> None:
    made = waylog.create_device_token("watch", "owntracks_http")
    assert made.device == f"{user.name}/watch"
    assert made.setup.link is not None
    assert made.setup.link.startswith("owntracks:")
    assert made.token not in f"{made} {made.setup}"
    assert [each.device for each in waylog.device_tokens()] == [made.device]
    with Client(gateway.url, user=user.name, token=made.token) as watch:
        watch.send(Position(lat=1, lon=2))
        await_condition(lambda: list(watch.devices()), 60, "the device")
        assert [each.device for each in watch.devices()] == [made.device]
        waylog.revoke_device_tokens("watch")
        with pytest.raises(ApiError) as caught:
            for _ in range(600):
                watch.device(made.device)
                threading.Event().wait(0.05)
        assert caught.value.status == 401


def test_a_day_has_a_receipt(waylog: Client, user: Login) -> None:
    waylog.send(Position(device="phone", lat=1, lon=2))
    name = f"{user.name}/phone"
    await_condition(lambda: waylog.receipt(name).acknowledged == 1, 60, "the receipt")
    receipt = waylog.receipt(name)
    assert "unknown" in receipt.pushed


def test_a_closed_client_says_so(gateway: Gateway) -> None:
    client = Client(gateway.url, token="t")
    client.close()
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.device_tokens()
