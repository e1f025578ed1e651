"""A friend who is shown squares, on every way out of a gateway: no position, time or street behind.

What the friend gets is searched as bytes; somebody who is shown exact positions gets the same with
them, so that a way that tells nobody anything proves nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import aiohttp
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.shares.share import TOWN_M
from gateway.tracks.track_formats import FORMATS
from tests.attacks.test_friends_over_http import metres, watching
from tests.attacks.test_friends_over_mqtt import client, location, several, until_known
from tests.attacks.workers import Workers, workers
from tests.consumers.running import Broker
from tests.gateway.http.routes.test_area_frames import watching as watching_map
from tests.gateway.records import address
from tests.gateway.running import Login, answered, json_of
from waylog.observability.telemetry import now_ms

HOME: Final = (47.14, 9.52)
#: Nothing else has these digits.
AT: Final = (47.512345, 9.912345)
STREET: Final = "Seeweg"
WORLD: Final = {"type": "view", "bbox": [-180, -85, 180, 85], "zoom": 1}

_numbers = itertools.count()


@pytest.fixture(scope="module")
def platform(gateway_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """Run three workers that know where the users called coa... live, and where they have been."""
    folder = tmp_path_factory.mktemp("coarse")
    rows = [
        {
            **{"user": f"coa{number}", "device": f"coa{number}/phone", "place_id": place},
            **{"lat": at[0], "lon": at[1], "label": label, "name": STREET},
            **{"visits": 9, "dwell_s": 360_000.0, "address": f"{STREET} 5, Lindau"},
        }
        for number in range(20)
        for place, at, label in (("0123456789", HOME, "home"), ("9876543210", AT, "work"))
    ]
    visits = [
        {
            **{"user": row["user"], "device": row["device"], "place_id": row["place_id"]},
            **{"lat": row["lat"], "lon": row["lon"], "dwell_s": 7_200.0, "silent_s": 0.0},
            **{"arrival": now_ms() - 9_000_000, "departure": now_ms() - 1_800_000, "fixes": 50},
        }
        for row in rows
    ]
    trips = [
        {
            **{"user": row["user"], "device": row["device"], "distance_m": 12_345.0},
            **{"start": now_ms() - 9_900_000, "end": now_ms() - 9_000_000},
            **{"origin": "0123456789", "destination": "9876543210"},
        }
        for row in rows[1::2]
    ]
    for name, table in (("places", rows), ("visits", visits), ("trips", trips)):
        path = folder / "places" / (f"{name}.parquet" if name == "places" else name)
        if name != "places":
            path.mkdir(parents=True)
            path /= "part-0.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist(table), path)
    with workers(folder, gateway_broker.address, 3, "--places", str(folder / "places")) as running:
        yield running


class People:
    """Somebody, a friend who is shown the town, and one who is shown exact positions."""

    def __init__(self, platform: Workers) -> None:
        number = next(_numbers)
        self.platform = platform
        self.ada = platform.user(f"coa{number}")
        self.town = platform.user(f"town{number}")
        self.exact = platform.user(f"exact{number}")
        rights = platform.users.rights
        since = now_ms() - 86_400_000
        rights.befriend(self.ada.name, self.town.name, since, precision="town")
        rights.befriend(self.ada.name, self.exact.name, since)
        self.device = f"{self.ada.name}/phone"
        self.times: list[int] = []

    async def go(self, count: int = 6) -> None:
        """Send positions that are some metres from each other, all within a square."""
        fixes: list[dict[str, Any]] = []
        for number in range(count):
            self.times.append(max(now_ms(), *self.times[-1:], 0) + 1)
            at = {"lat": AT[0] + number * 1e-8, "lon": AT[1], "time": self.times[-1]}
            fixes.append(
                {"device": "phone", **at, "speed": 2.1328125, "battery": 43, "altitude": 611.0625}
            )
        async with self.platform.client(self.ada) as own:
            await json_of(await own.post("/v1/positions", json=fixes))

    async def second_is_over(self) -> None:
        """Wait until what others send has other times than the positions, which are hidden."""

        async def is_over() -> bool:
            return now_ms() // 1000 > self.times[-1] // 1000

        await answered(is_over)

    def resolved(self) -> None:
        """Publish the address of the last position."""
        parts = {"road": STREET, "house_number": "3", "town": "Lindau", "country": "Germany"}
        self.platform.publish(
            address(
                self.device,
                self.times[-1],
                **{"lat": AT[0], "lon": AT[1], "address": parts},
                display_name=f"{STREET} 3, Lindau, Germany",
            )
        )

    def secrets(self) -> list[str]:
        """Return what nobody who sees squares may find in anything."""
        found = ["47.51234", "47.51235", "9.91234", "9.91235", STREET, "611.06", "2.1328", "2.133"]
        for time in self.times:
            if time // 1000 % 900:  # else it is the time that may be told
                moment = datetime.fromtimestamp(time / 1000, UTC)
                found += [str(time), str(time // 1000), moment.strftime("%H:%M:%S")]
        return found

    def require_hidden(self, content: bytes | bytearray, where: str) -> None:
        text = content.decode("utf-8", "replace")
        assert [each for each in self.secrets() if each in text] == [], f"{where}: {text[:2000]}"


@pytest.fixture
def people(platform: Workers) -> People:
    return People(platform)


def routes(device: str) -> dict[str, bool]:
    """Return the paths of a device that a friend may ask, and whether there is something to see."""
    path = f"/v1/devices/{device.replace('/', '%2F')}"
    span = f"from={now_ms() - 86_400_000}&to={now_ms() + 60_000}"
    tracks = [f"{path}/track?format={name}&{span}" for name in FORMATS]
    totals = [f"{path}/statistics?by={span_name}&{span}" for span_name in ("day", "month")]
    return {
        **dict.fromkeys(("/v1/devices", "/v1/devices?q=phone", path, f"{path}/address"), True),
        **dict.fromkeys((*tracks, f"{path}/track"), True),
        **dict.fromkeys((f"{path}/timeline?{span}",), True),
        **dict.fromkeys((f"{path}/places", f"{path}/visits"), True),
        f"{path}/trips": False,
        **dict.fromkeys((*totals, f"{path}/days?{span}"), False),
        **dict.fromkeys((f"{path}/battery?{span}", f"{path}/receipts", f"{path}/notices"), False),
    }


async def test_no_answer_tells_what_is_behind_a_square(people: People) -> None:
    await people.go()
    people.resolved()
    platform = people.platform
    path = f"/v1/devices/{people.device.replace('/', '%2F')}"
    async with platform.client(people.exact) as exact, platform.client(people.town) as town:
        for each in (exact, town):

            async def row(each: aiohttp.ClientSession = each) -> Any:
                answer = await each.get(path)
                return await answer.json() if answer.status == 200 else None

            await answered(row, lambda found: found and found["address"] and found["fix"])
        found = await json_of(await town.get(path))
        for record in (found, found["fix"], found["address"]):
            assert 0 < metres((record["lat"], record["lon"]), AT) <= TOWN_M * 0.75
            assert record["time"] % 900_000 == 0
        assert found["address"]["display_name"] == "Lindau, Germany"
        for route, is_telling in routes(people.device).items():
            told = await (await exact.get(route)).read()
            if is_telling:
                assert any(each in told.decode() for each in people.secrets()), route
            answer = await town.get(route)
            assert answer.status in (200, 403), route
            people.require_hidden(await answer.read(), route)
        for kind in ("places", "visits", "trips"):
            assert await json_of(await exact.get(f"{path}/{kind}")), kind
            assert await json_of(await town.get(f"{path}/{kind}")) == [], kind
        # Apps get friends in the answers to their own positions.
        await people.second_is_over()
        own = {"_type": "location", "lat": 1, "lon": 2, "tst": now_ms() // 1000}
        for each, is_told in ((exact, True), (town, False)):
            content = await (await each.post("/owntracks?d=phone", json=own)).read()
            assert b'"location"' in content and b'"card"' in content
            assert (STREET.encode() in content) is is_told
            if not is_told:
                people.require_hidden(content, "owntracks")
    # The token of a phone is no way around.
    phone = Login(people.town.name, platform.users.add_token(people.town.name, "phone"))
    async with platform.client(phone) as device:
        for route in ("/v1/devices", path, f"{path}/address"):
            people.require_hidden(await (await device.get(route)).read(), route)


async def test_no_stream_tells_what_is_behind_a_square(people: People) -> None:
    platform = people.platform
    async with (
        watching(platform, people.town, "sse") as stream,
        watching(platform, people.town, "ws") as socket,
        watching(platform, people.exact, "sse") as control,
    ):
        await people.go()
        people.resolved()
        shown: list[Any] = []
        while not any("display_name" in each for each in shown):
            shown.append(await control.fix())
        assert any(each["lat"] == round(AT[0], 5) for each in shown)
        await people.second_is_over()
        async with platform.client(people.town) as own:
            fix = {"device": "phone", "lat": 1.0, "lon": 2.0, "time": now_ms()}
            await json_of(await own.post("/v1/positions", json=fix))
        for watch in (stream, socket):
            told = [await watch.fix()]
            while told[-1]["user" if "user" in told[-1] else "device"] != people.town.name:
                told.append(await watch.fix())
            of_ada = told[:-1]
            # Six positions, one square: it is told once, and its address once.
            assert [("display_name" in each) for each in of_ada].count(False) == 1
            people.require_hidden(json.dumps(of_ada).encode(), "stream")
    for channel in ("sse", "ws"):
        async with watching(platform, people.town, channel, "?since=l0-0") as again:
            told = [await again.fix()]
            while told[-1].get("user") != people.town.name:
                told.append(await again.fix())
            people.require_hidden(json.dumps(told[:-1]).encode(), f"since, {channel}")
    edge = 0.0001
    box = f"{AT[1] - edge},{AT[0] - edge},{AT[1] + edge},{AT[0] + edge}"
    async with watching(platform, people.town, "sse", f"?bbox={box}&since=l0-0") as boxed:
        await people.go()
        await asyncio.sleep(1)
        assert boxed.shown == []


async def test_the_map_tells_the_square_alone(people: People) -> None:
    await people.go(1)
    async with (
        watching_map(people.platform, people.town) as town,
        watching_map(people.platform, people.exact) as exact,
    ):
        for watcher, nearest_m, farthest_m in ((exact, 0.0, 2.0), (town, 2.0, TOWN_M * 0.75)):
            await watcher.ask(**WORLD, devices=[people.device])
            await watcher.until({people.device})
            while not watcher.client.chosen:
                await watcher.receive()
            assert watcher.client.points is not None
            for point in (watcher.client.points[people.device], *watcher.client.chosen.values()):
                assert nearest_m <= metres((point.lat, point.lon), AT) <= farthest_m
        assert town.client.points is not None
        told = town.client.points[people.device]
        assert (told.speed, told.accuracy) == (None, TOWN_M / 2)
        frames = len(town.client.kinds)
        await people.go(5)
        # The other one sees that something has come.
        before = len(exact.client.kinds)
        async with asyncio.timeout(60):
            while len(exact.client.kinds) == before:
                await exact.receive()
        await town.ask(type="ping")
        assert len(town.client.kinds) == frames
        # Nor does anybody find it by looking at ever smaller parts of the map.
        edge = 0.0005
        box = [AT[1] - edge, AT[0] - edge, AT[1] + edge, AT[0] + edge]
        await town.ask(type="view", bbox=box, zoom=18)
        await town.until(set())


async def test_mqtt_tells_the_square_alone(people: People) -> None:
    platform, topic = people.platform, f"owntracks/{people.device}"
    group = f"$share/cards{next(_numbers)}/owntracks/{people.ada.name}/+/info"
    async with (
        client(platform, people.ada) as phone,
        several(platform, people.exact, "#", 2) as control,
        several(platform, people.town, "#", 3) as friends,
        several(platform, people.town, group, 3) as members,
    ):
        # Of another device: one square is told of each in a step of time.
        other, far = f"owntracks/{people.ada.name}/car", location((45.0, 8.0))
        await until_known([*control, *friends], lambda: phone.publish(other, far))
        people.times.append(now_ms())
        secret = {"vel": 7, "alt": 611.0625, "batt": 43, "SSID": STREET}
        for at in (AT, (AT[0] + 1e-6, AT[1])):
            await phone.publish(topic, location(at, **secret), retain=True)
        region = {"_type": "transition", "event": "enter", "desc": STREET, "acc": 5}
        await phone.publish(f"{topic}/event", location(AT, **region))
        await phone.publish(topic, json.dumps({"_type": "encrypted", "data": STREET}))
        sent = json.dumps({"lat": AT[0], "lon": AT[1], "time": people.times[-1]})
        await phone.publish(f"devices/{people.device}/position", sent, retain=True)
        people.resolved()
        for each in control:
            found: list[Any] = []
            while not {f"devices/{people.device}/address", f"{topic}/info"} <= {
                message.topic for message in found
            }:
                found.append(await each.message())
            assert sum(message.topic == topic for message in found) >= 3
        async with client(platform, people.town) as own:
            # Behind all that was sent before.
            for number in range(3):
                await own.publish(f"owntracks/{people.town.name}/x{number}", location((1.0, 2.0)))
        for each in friends:
            told: list[Any] = []
            while not any(f"/{people.town.name}/x2" in message.topic for message in told):
                told.append(await each.message())
            of_ada = [each for each in told if f"/{people.ada.name}/" in each.topic]
            assert not [each for each in of_ada if each.topic.endswith("/event")]
            assert len([each for each in of_ada if each.topic == topic]) == 1
            for message in of_ada:
                people.require_hidden(message.payload, message.topic)
        await asyncio.sleep(0.5)
        for each in members:
            while not each.messages.empty():
                people.require_hidden(each.messages.get_nowait().payload, "a shared subscription")
        for topic_filter in ("#", "owntracks/+/+", f"devices/{people.ada.name}/+/+"):
            async with client(platform, people.town) as late:
                assert await late.subscribe(topic_filter) == [1]
                message = await late.message()
                while True:
                    if f"/{people.ada.name}/" in message.topic:
                        people.require_hidden(message.payload, f"retained {message.topic}")
                    try:
                        async with asyncio.timeout(1):
                            message = await late.message()
                    except TimeoutError:
                        break


async def test_terms_change_and_end_on_open_streams(people: People) -> None:
    rights, platform = people.platform.users.rights, people.platform
    rights.befriend(people.ada.name, people.town.name, precision="exact")
    await asyncio.sleep(2.0)
    async with (
        watching(platform, people.town, "sse") as stream,
        client(platform, people.ada) as phone,
        several(platform, people.town, f"owntracks/{people.device}", 3) as friends,
    ):
        await until_known(
            friends, lambda: phone.publish(f"owntracks/{people.device}", location(AT))
        )
        assert (await stream.fix())["lat"] == pytest.approx(AT[0], abs=1e-5)
        stream.shown.clear()
        rights.befriend(people.ada.name, people.town.name, precision="town")
        await asyncio.sleep(2.0)
        people.times.append(now_ms())
        await phone.publish(f"owntracks/{people.device}", location(AT))
        while (told := await stream.fix())["lat"] == 45.0:
            pass  # from when the friend was told everything
        people.require_hidden(json.dumps(told).encode(), "stream")
        assert 0 < metres((told["lat"], told["lon"]), AT) <= TOWN_M * 0.75
        for each in friends:
            people.require_hidden((await each.message()).payload, "mqtt")
        until = now_ms() + 2_000
        rights.befriend(people.ada.name, people.town.name, precision="town", until=until)
        while now_ms() <= until:
            await asyncio.sleep(0.05)
        stream.shown.clear()
        await phone.publish(f"owntracks/{people.device}", location((44.0, 7.0)))
        async with client(platform, people.town) as own:
            await own.publish(f"owntracks/{people.town.name}/x", location((1.0, 2.0)))
        # The next is the friend's own: what came at the end of the friendship is not told.
        assert (await stream.fix())["user"] == people.town.name
        assert all(each.messages.empty() for each in friends)
