"""Friends, former friends and those who may only look, against MQTT with one and three workers."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.friends.home_blur import Circle
from tests.attacks.workers import Workers, workers
from tests.consumers.running import Broker
from tests.gateway.mqtt.in_memory import PahoClient
from tests.gateway.records import address
from tests.gateway.running import Login, answered
from waylog.observability.telemetry import now_ms

pytestmark = pytest.mark.early

HOME: Final = (47.14, 9.52)
AWAY: Final = (47.5, 9.9)
#: Seconds until a change of rights takes effect, as promised.
REACHES_S: Final = 2.0
WAIT_S: Final = 60.0
#: Seconds between a gateway's checks for new places.
LOOK_S: Final = 10.0
_NOT_AUTHORIZED: Final = 0x87

_numbers = itertools.count()


@pytest.fixture(scope="module", params=[1, 3], ids=["one_worker", "three_workers"])
def platform(
    request: pytest.FixtureRequest,
    gateway_broker: Broker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Workers]:
    """Run workers that know where the users called ada... live."""
    folder = tmp_path_factory.mktemp("friends-mqtt")
    rows = [
        {
            **{"user": f"ada{number}", "device": f"ada{number}/phone", "place_id": "0123456789"},
            **{"lat": HOME[0], "lon": HOME[1], "label": "home", "name": "At ours"},
            **{"visits": 9, "dwell_s": 360_000.0, "address": "Hauptstrasse 5, Vaduz"},
        }
        for number in range(300)
    ]
    (folder / "places").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), folder / "places" / "places.parquet")
    with workers(
        folder, gateway_broker.address, request.param, "--places", str(folder / "places")
    ) as running:
        yield running


@pytest.fixture
def ada(platform: Workers) -> Login:
    return platform.user(f"ada{next(_numbers)}")


@pytest.fixture
def bob(platform: Workers) -> Login:
    return platform.user(f"bob{next(_numbers)}")


@asynccontextmanager
async def client(platform: Workers, user: Login, **options: Any) -> AsyncIterator[PahoClient]:
    """Connect a client."""
    name = options.pop("name", f"c{next(_numbers)}")
    made = PahoClient(platform.mqtt_port, name, **options)
    made.client.reconnect_delay_set(60, 60)
    await made.connect(user.name, user.token)
    try:
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def several(
    platform: Workers, user: Login, topic_filter: str, count: int = 4
) -> AsyncIterator[list[PahoClient]]:
    """Subscribe with `count` clients, which several workers share among them."""
    made = [PahoClient(platform.mqtt_port, f"s{next(_numbers)}") for _ in range(count)]
    for each in made:
        each.client.reconnect_delay_set(60, 60)
        await each.connect(user.name, user.token)
        assert await each.subscribe(topic_filter) == [1]
    try:
        yield made
    finally:
        for each in made:
            await each.close()


def location(at: tuple[float, float] = AWAY, **members: Any) -> str:
    """Return an OwnTracks message with a position."""
    known = {"_type": "location", "lat": at[0], "lon": at[1], "tst": now_ms() // 1000, "acc": 5}
    return json.dumps(known | members)


async def until_known(subscribers: list[PahoClient], publish: Any) -> None:
    """Publish until all subscribers receive it: other workers learn of subscriptions later."""
    deadline = time.monotonic() + WAIT_S
    while any(each.messages.empty() for each in subscribers):
        assert time.monotonic() < deadline
        await publish()
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.2)
    for each in subscribers:
        while not each.messages.empty():
            each.messages.get_nowait()


async def until_told_nothing(
    subscribers: list[PahoClient], publish: Any, publish_last: Any, last: str
) -> None:
    """Publish until subscribers get the last message, and nothing that was published before it.

    A worker looks at the rights twice a second, and later if the machine stands still.
    """
    async with asyncio.timeout(WAIT_S):
        told = True
        while told:
            told = False
            await publish()
            await publish_last()
            for each in subscribers:
                while (await each.message()).topic != last:
                    told = True


async def test_who_is_no_friend_any_more_is_told_nothing_and_a_new_friend_is(
    platform: Workers, ada: Login, bob: Login
) -> None:
    rights = platform.users.rights
    topic = f"owntracks/{ada.name}/phone"
    async with (
        client(platform, ada) as phone,
        client(platform, bob) as own,
        several(platform, bob, "owntracks/+/+") as friends,
    ):

        async def publish(lat: float = 48.0) -> None:
            await phone.publish(topic, location((lat, 9.9)), retain=True)

        rights.befriend(ada.name, bob.name, since=now_ms() - 10_000)
        await until_known(friends, publish)
        # One more friend is away, and its messages wait.
        async with client(platform, bob, name="away", clean_session=False) as away:
            await away.subscribe(topic)
            await away.message()
        await publish(48.1)
        for each in friends:
            assert json.loads((await each.message()).payload)["lat"] == 48.1

        rights.unfriend(ada.name, bob.name)
        await asyncio.sleep(REACHES_S)
        await until_told_nothing(
            friends,
            lambda: publish(48.2),
            lambda: own.publish(f"owntracks/{bob.name}/phone", location((1.0, 2.0))),
            f"owntracks/{bob.name}/phone",
        )
        async with client(platform, bob, name="away", clean_session=False) as away:
            await own.publish(f"owntracks/{bob.name}/x", location())
            assert await away.subscribe(f"owntracks/{bob.name}/x") == [1]
            await own.publish(f"owntracks/{bob.name}/x", location((3.0, 2.0)))
            assert (await away.message()).topic == f"owntracks/{bob.name}/x"

        # The retained message is from before the friendship that begins now.
        rights.befriend(ada.name, bob.name, since=now_ms() + 2_000)
        await asyncio.sleep(REACHES_S)
        for each in friends:
            while not each.messages.empty():
                assert each.messages.get_nowait().topic.startswith(f"owntracks/{bob.name}/")
        async with asyncio.timeout(WAIT_S):
            while any(each.messages.empty() for each in friends):
                await publish(48.3)
                await asyncio.sleep(0.05)
        for each in friends:
            assert json.loads((await each.message()).payload)["lat"] == 48.3


async def test_who_may_only_look_publishes_nothing_more_on_an_open_connection(
    platform: Workers, ada: Login
) -> None:
    topic = f"devices/{ada.name}/phone/position"
    async with client(platform, ada, version=5) as phone:
        fix = {"lat": 1.0, "lon": 2.0, "time": now_ms()}
        assert await phone.publish(topic, json.dumps(fix)) in (0, 0x10)
        platform.users.rights.set_sending(ada.name, False)
        await asyncio.sleep(REACHES_S)

        async def code() -> int:
            return await phone.publish(topic, json.dumps(fix | {"time": now_ms()}))

        await answered(code, lambda found: found == _NOT_AUTHORIZED)
        platform.users.rights.set_sending(ada.name, True)
        await asyncio.sleep(REACHES_S)
        await answered(code, lambda found: found in (0, 0x10))


async def test_grants_and_administrators_end_and_begin_on_open_connections(
    platform: Workers, ada: Login, bob: Login
) -> None:
    root = platform.user(f"root{next(_numbers)}", admin=True)
    note, plant = f"devices/{ada.name}/phone/note", f"plant{next(_numbers)}"
    platform.users.rights.grant(bob.name, "subscribe", f"{plant}/#")
    async with (
        client(platform, ada) as phone,
        client(platform, bob) as own,
        several(platform, root, "#") as admins,
        several(platform, bob, f"{plant}/+", 3) as readers,
        client(platform, root) as publisher,
    ):
        await until_known(admins, lambda: phone.publish(note, "x"))
        await until_known(readers, lambda: publisher.publish(f"{plant}/a", "x"))
        for each in admins:
            while not each.messages.empty():
                each.messages.get_nowait()
        platform.users.rights.withdraw(bob.name, "subscribe", f"{plant}/#")
        platform.users.rights.grant(bob.name, "publish", f"{plant}/b")
        await asyncio.sleep(REACHES_S)
        assert await own.publish(f"{plant}/b", "x") == 0
        await publisher.publish(f"{plant}/a", "not for bob")
        platform.users.rights.grant(bob.name, "subscribe", f"{plant}/#")
        await until_known(readers, lambda: publisher.publish(f"{plant}/c", "again"))
        platform.users.set_admin(root.name, False)
        await asyncio.sleep(REACHES_S)
        for each in admins:
            while not each.messages.empty():
                each.messages.get_nowait()
        own_note = f"devices/{root.name}/phone/note"
        await until_told_nothing(
            admins,
            lambda: phone.publish(note, "not for root"),
            lambda: publisher.publish(own_note, "its own"),
            own_note,
        )


async def test_a_friend_that_calls_its_share_alike_takes_no_messages(
    platform: Workers, ada: Login, bob: Login
) -> None:
    platform.users.rights.befriend(ada.name, bob.name, since=now_ms() - 10_000)
    await asyncio.sleep(REACHES_S)
    share = f"$share/workers/owntracks/{ada.name}/+"
    async with (
        client(platform, ada) as phone,
        several(platform, ada, share, 2) as own,
        several(platform, bob, share, 2) as friends,
    ):
        topic = f"owntracks/{ada.name}/phone"
        deadline = time.monotonic() + WAIT_S
        while all(each.messages.empty() for each in own) or all(
            each.messages.empty() for each in friends
        ):
            assert time.monotonic() < deadline
            await phone.publish(topic, location())
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
        for each in (*own, *friends):
            while not each.messages.empty():
                each.messages.get_nowait()
        for number in range(20):
            await phone.publish(topic, location((40.0 + number, 9.0)))
        for group in (own, friends):
            async with asyncio.timeout(WAIT_S):
                while sum(each.messages.qsize() for each in group) < 20:
                    await asyncio.sleep(0.02)
            lats = [
                json.loads(each.messages.get_nowait().payload)["lat"]
                for each in group
                for _ in range(each.messages.qsize())
            ]
            assert sorted(lats) == [40.0 + number for number in range(20)]


async def test_a_friend_is_not_told_where_the_home_is(
    platform: Workers, ada: Login, bob: Login
) -> None:
    platform.users.rights.befriend(ada.name, bob.name, since=now_ms() - 10_000)
    await asyncio.sleep(REACHES_S)
    owner, phone_of_ada = ada.name, f"{ada.name}/phone"
    async with (
        client(platform, ada) as phone,
        several(platform, bob, "#", 2) as friends,
    ):
        topic = f"owntracks/{phone_of_ada}"
        await until_known(friends, lambda: phone.publish(topic, location()))
        secret = {"SSID": "At ours", "inregions": ["At ours"], "alt": 455, "vel": 3}
        await phone.publish(topic, location(HOME, **secret), retain=True)
        told = [json.loads((await each.message()).payload) for each in friends]
        assert told[0] == told[1]
        circle = Circle(told[0]["lat"], told[0]["lon"])
        assert circle.has(*HOME)
        assert (circle.lat, circle.lon) != HOME
        assert set(told[0]) == {"_type", "tid", "lat", "lon", "tst", "acc"}
        assert told[0]["tst"] % 900 == 0
        # Nor is it told when ada comes to the door, or by other messages of apps.
        region = {"_type": "transition", "event": "enter", "desc": "At ours", "acc": 5}
        for tail, members in (("", {}), ("/event", region), ("/waypoint", {"_type": "waypoint"})):
            await phone.publish(topic + tail, location(HOME, **members))
        platform.publish(address(phone_of_ada, now_ms(), lat=HOME[0], lon=HOME[1]))
        for each in friends:
            card_or_address = [await each.message(), await each.message()]
            topics = {message.topic for message in card_or_address}
            assert topics == {f"devices/{phone_of_ada}/address", f"owntracks/{phone_of_ada}/info"}
            for message in card_or_address:
                assert b"Aeulestrasse" not in message.payload
                if message.topic.endswith("/address"):
                    found = json.loads(message.payload)
                    assert (found["lat"], found["lon"]) == circle
        # Retained messages do not tell it, either.
        late = PahoClient(platform.mqtt_port, f"late{next(_numbers)}")
        await late.connect(bob.name, bob.token)
        await late.subscribe(f"owntracks/{owner}/#")
        retained = json.loads((await late.message()).payload)
        assert retained == told[0] or retained["_type"] == "card"
        await late.close()


async def test_the_retained_card_of_somebody_at_home_tells_no_friend_the_street(
    platform: Workers, ada: Login, bob: Login
) -> None:
    platform.users.rights.befriend(ada.name, bob.name, since=now_ms() - 10_000)
    await asyncio.sleep(REACHES_S)
    parts = {"road": "Aeulestrasse", "city": "Vaduz"}
    at_home = {"lat": HOME[0], "lon": HOME[1], "address": parts}
    async with client(platform, ada) as own:
        # The first device has been nowhere since the friendship began.
        for name, time_ms in (("before", now_ms() - 60_000), ("phone", now_ms())):
            platform.publish(address(f"{ada.name}/{name}", time_ms, **at_home))
            topic = f"owntracks/{ada.name}/{name}/info"
            await own.subscribe(topic)
            while (card := await own.message()).topic != topic:
                pass
            assert b"Aeulestrasse" in card.payload
    async with several(platform, bob, f"owntracks/{ada.name}/+/info", 6) as friends:
        messages = [await each.message() for each in friends]
    assert {each.topic for each in messages} == {topic}
    (told,) = {each.payload for each in messages}
    assert json.loads(told) == {"_type": "card", "tid": "ne", "name": "phone - Vaduz"}


async def test_the_news_of_somebody_at_home_tell_no_shared_subscription_the_street(
    platform: Workers, ada: Login, bob: Login
) -> None:
    platform.users.rights.befriend(ada.name, bob.name, since=now_ms() - 10_000)
    await asyncio.sleep(REACHES_S)
    share = f"$share/cards/owntracks/{ada.name}/+/info"
    cards: list[dict[str, Any]] = []
    published: list[str] = []
    async with several(platform, bob, share, 6) as members:
        deadline = time.monotonic() + WAIT_S
        # Each member is chosen in its turn, at whichever worker it is.
        while len({each["tid"] for each in cards}) < 12:
            assert time.monotonic() < deadline, cards
            parts = {"road": f"Aeulestrasse {len(cards)}", "city": "Vaduz"}
            at_home = {"lat": HOME[0], "lon": HOME[1], "address": parts}
            # A device is told of once in a quarter of an hour.
            device = f"{ada.name}/d{len(published):02}"
            published.append(device)
            platform.publish(address(device, now_ms(), **at_home))
            await asyncio.sleep(0.1)
            for each in members:
                while not each.messages.empty():
                    cards.append(json.loads(each.messages.get_nowait().payload))
    assert {each["name"].partition(" - ")[2] for each in cards} == {"Vaduz"}


async def test_a_home_that_is_found_while_the_workers_run_is_told_no_friend_of_any(
    platform: Workers, bob: Login
) -> None:
    zoe = platform.user(f"zoe{next(_numbers)}")
    platform.users.rights.befriend(zoe.name, bob.name, since=now_ms() - 10_000)
    topic = f"owntracks/{zoe.name}/phone"
    async with client(platform, zoe) as phone, several(platform, bob, topic) as friends:
        newest: dict[PahoClient, float] = {}

        async def told() -> set[float]:
            await phone.publish(topic, location(HOME))
            await asyncio.sleep(0.2)
            for each in friends:
                while not each.messages.empty():
                    newest[each] = json.loads(each.messages.get_nowait().payload)["lat"]
            return set(newest.values())

        async with asyncio.timeout(WAIT_S):
            while await told() != {HOME[0]} or len(newest) < len(friends):
                pass
        path = platform.folder / "places" / "places.parquet"
        rows = pq.read_table(path).to_pylist()
        rows.append(rows[0] | {"user": zoe.name, "device": f"{zoe.name}/phone"})
        pq.write_table(pa.Table.from_pylist(rows), platform.folder / "found.parquet")
        (platform.folder / "found.parquet").replace(path)
        async with asyncio.timeout(LOOK_S + WAIT_S):
            while HOME[0] in await told():
                pass


async def test_friends_at_any_worker_get_what_they_could_not_be_told_before_homes_were_known(
    gateway_broker: Broker, tmp_path: Path
) -> None:
    (tmp_path / "places").mkdir()
    path = tmp_path / "places" / "places.parquet"
    path.write_bytes(b"damaged")
    with workers(
        tmp_path, gateway_broker.address, 2, "--places", str(tmp_path / "places")
    ) as platform:
        ada, bob = platform.user("ada"), platform.user("bob")
        platform.users.rights.befriend("ada", "bob", since=now_ms() - 10_000)
        await asyncio.sleep(REACHES_S)
        async with (
            client(platform, ada) as phone,
            several(platform, ada, "owntracks/ada/phone") as own,
            several(platform, bob, "owntracks/ada/phone", 8) as friends,
        ):
            await phone.publish("owntracks/ada/phone", location(HOME), retain=True)
            for each in own:
                await each.message()
            assert all(each.messages.empty() for each in friends)
            row = {
                **{"user": "ada", "device": "ada/phone", "place_id": "0123456789"},
                **{"lat": HOME[0], "lon": HOME[1], "label": "home"},
            }
            pq.write_table(pa.Table.from_pylist([row]), tmp_path / "found.parquet")
            (tmp_path / "found.parquet").replace(path)
            told = set()
            async with asyncio.timeout(LOOK_S + WAIT_S):
                for each in friends:
                    told.add((await each.messages.get()).payload)
            (circle,) = map(json.loads, told)
            assert (circle["lat"], circle["lon"]) != HOME
            assert Circle(circle["lat"], circle["lon"]).has(*HOME)


async def test_a_revoked_device_token_ends_its_connections(platform: Workers, ada: Login) -> None:
    token = platform.users.add_token(ada.name, "phone")
    made = [PahoClient(platform.mqtt_port, f"d{number}", version=5) for number in range(4)]
    for each in made:
        each.client.reconnect_delay_set(60, 60)
        await each.connect(ada.name, token)
    platform.users.revoke_device(ada.name, "phone")
    async with asyncio.timeout(REACHES_S + WAIT_S):
        for each in made:
            assert (await each.disconnected.get()).value == _NOT_AUTHORIZED
    for each in made:
        await each.close()
