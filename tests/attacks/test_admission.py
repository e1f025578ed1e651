"""A user sends more than its quota: all protocols are counted together, over all workers."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Iterator
from contextlib import closing

import aiohttp
import pytest

from gateway.users.admission import BYTES_A_FIX
from gateway.users.database import UserStore
from tests.attacks.workers import Workers, workers
from tests.consumers.running import Broker
from tests.gateway.mqtt.in_memory import PahoClient
from tests.gateway.running import Login, json_of
from waylog.messages import Rejected, decode_fix, decode_rejected
from waylog.observability.telemetry import now_ms

QUOTA_EXCEEDED = 0x97
#: Fixes a minute: so slow that hardly any are given back in the seconds of a test.
QUOTA = 12
#: Bytes a minute in topic `error`; sixteen times as many may come at once.
ERROR_BYTES = 20_000
JUNK = b"junk " * 10_000


@pytest.fixture(scope="module", params=[1, 3], ids=["one_worker", "three_workers"])
def gateway(
    request: pytest.FixtureRequest,
    gateway_broker: Broker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Workers]:
    folder = tmp_path_factory.mktemp("admission")
    options = (
        *("--devices-per-user", "20", "--error-bytes-per-user", str(ERROR_BYTES)),
        *("--mqtt-map", "devices/+/+/note=notes:{2}/{3}"),
    )
    with workers(folder, gateway_broker.address, request.param, *options) as running:
        yield running


_numbers = iter(range(10_000))


@pytest.fixture
def user(gateway: Workers) -> Login:
    return gateway.user(f"sender{next(_numbers)}-{gateway.mqtt_port}")


def position(number: int, device: str | None = None) -> dict[str, object]:
    named = {} if device is None else {"device": device}
    return {"lat": 1, "lon": 2, "time": now_ms() - 1_000_000 + number * 1000, **named}


def fixes_of(gateway: Workers, user: Login) -> list[str]:
    fixes = [decode_fix(value) for _, value in gateway.records("location")]
    return [fix.device for fix in fixes if fix.user == user.name]


async def mqtt(gateway: Workers, user: Login, name: str, version: int = 5) -> PahoClient:
    client = PahoClient(gateway.mqtt_port, f"{user.name}-{name}", version=version)
    client.client.reconnect_delay_set(60, 60)
    await client.connect(*user)
    return client


async def test_a_quota_holds_over_all_ways_together(gateway: Workers, user: Login) -> None:
    """All protocols share one quota."""
    gateway.users.rights.set_quota(user.name, QUOTA, None)
    device = f"devices/{user.name}/phone/position"
    clients = [await mqtt(gateway, user, str(number)) for number in range(6)]
    began, accepted = time.monotonic(), 0
    async with gateway.client(user) as http:
        for number in range(3):
            answer = await http.post("/v1/positions", json=position(number))
            accepted += answer.status == 200
        async with http.ws_connect("/v1/ws") as socket:
            for number in range(10, 13):
                accepted += await _sent(socket, number) == "ack"
            for number, client in enumerate(clients * 4):
                code = await client.publish(device, json.dumps(position(20 + number)))
                assert code in (0, QUOTA_EXCEEDED)
                accepted += not code
            # On a slow machine the bucket has got some back, which are taken first.
            late = itertools.count(100)
            while await _sent(socket, next(late)) == "ack":
                accepted += 1
        while (answer := await http.post("/v1/positions", json=position(next(late)))).ok:
            accepted += 1
        assert answer.status == 429
        assert int(answer.headers["Retry-After"]) >= 1
        while (answer := await http.post("/owntracks", json=owntracks(next(late)))).ok:
            accepted += 1
        assert answer.status == 503
        given_back = (time.monotonic() - began) * QUOTA / 60
    for client in clients:
        await client.close()
    stored = fixes_of(gateway, user)
    assert len(stored) == accepted
    assert QUOTA <= accepted <= QUOTA + given_back


async def _sent(socket: aiohttp.ClientWebSocketResponse, number: int) -> str:
    await socket.send_json({"type": "fix", "id": f"w{number}", **position(number)})
    return await _verdict(socket)


async def _verdict(socket: aiohttp.ClientWebSocketResponse) -> str:
    async with asyncio.timeout(60):
        while True:
            message = await socket.receive_json()
            if message["type"] in ("ack", "error", "rejected"):
                return str(message["type"])


def owntracks(number: int) -> dict[str, object]:
    seconds = now_ms() // 1000 - 1000 + number
    return {"_type": "location", "lat": 1, "lon": 2, "tst": seconds, "tid": "ab"}


async def mqtt_3_near_the_quota(gateway: Workers, user: Login) -> PahoClient:
    """Connect a client of a user with a quota of 120 fixes a minute that has sent 118."""
    gateway.users.rights.set_quota(user.name, 120, None)
    async with gateway.client(user) as http:
        batch = [position(number) for number in range(118)]
        await json_of(await http.post("/v1/positions", json=batch))
    return await mqtt(gateway, user, "phone", version=4)


async def test_what_mqtt_3_cannot_be_told_waits_and_is_stored(
    gateway: Workers, user: Login
) -> None:
    """A phone with MQTT 3.1.1 deletes acknowledged fixes: beyond the quota it waits instead."""
    client = await mqtt_3_near_the_quota(gateway, user)
    device = f"devices/{user.name}/phone/position"
    for number in range(200, 206):
        client.client.publish(device, json.dumps(position(number)), 1)
    async with asyncio.timeout(60):
        for _ in range(6):
            _, code = await client.published.get()
            assert code.value == 0
    await client.close()
    assert len(fixes_of(gateway, user)) == 118 + 6


def notes_of(gateway: Workers, user: Login) -> list[bytes]:
    key = f"{user.name}/phone".encode()
    return [value for name, value in gateway.records("notes") if name == key]


async def test_mapped_messages_and_fixes_share_one_quota(gateway: Workers, user: Login) -> None:
    gateway.users.rights.set_quota(user.name, QUOTA, None)
    clients = [await mqtt(gateway, user, str(number)) for number in range(3)]
    note = f"devices/{user.name}/phone/note"
    began = time.monotonic()
    codes = [
        await clients[number % 3].publish(note, b"note %d" % number) for number in range(3 * QUOTA)
    ]
    given_back = (time.monotonic() - began) * QUOTA / 60
    assert set(codes) == {0, QUOTA_EXCEEDED}
    accepted = [number for number, code in enumerate(codes) if not code]
    assert QUOTA <= len(accepted) <= QUOTA + given_back
    # All that was acknowledged is there, and nothing else.
    stored = notes_of(gateway, user)
    assert sorted(stored) == sorted(b"note %d" % number for number in accepted)
    position_topic = f"devices/{user.name}/phone/position"
    while not await clients[0].publish(position_topic, json.dumps(position(len(stored)))):
        stored.append(b"what was given back meanwhile")
    assert len(stored) <= QUOTA + (time.monotonic() - began) * QUOTA / 60
    for client in clients:
        await client.close()


async def test_a_large_mapped_message_costs_what_it_takes_in_the_log(
    gateway: Workers, user: Login
) -> None:
    gateway.users.rights.set_quota(user.name, QUOTA, None)
    client = await mqtt(gateway, user, "phone")
    large = bytes(QUOTA * BYTES_A_FIX)
    note = f"devices/{user.name}/phone/note"
    # With its key and headers it is more than a minute's worth, and counts for the next one.
    assert await client.publish(note, large) == 0
    for payload in (large, b"small"):
        assert await client.publish(note, payload) == QUOTA_EXCEEDED
    await client.close()
    assert notes_of(gateway, user) == [large]


async def test_retained_messages_count_in_the_quota(gateway: Workers, user: Login) -> None:
    gateway.users.rights.set_quota(user.name, QUOTA, None)
    client = await mqtt(gateway, user, "phone")
    sign = f"devices/{user.name}/phone/sign"
    # What is only passed on is not stored, and costs nothing.
    for _ in range(QUOTA):
        assert await client.publish(sign, b"now") == 0
    large = bytes(QUOTA * BYTES_A_FIX - len(sign))
    assert await client.publish(sign, large, retain=True) == 0
    assert await client.publish(sign, b"", retain=True) == QUOTA_EXCEEDED
    await client.subscribe(sign)
    assert (await client.message()).payload == large
    await client.close()


async def test_a_mapped_message_that_mqtt_3_cannot_be_told_of_waits(
    gateway: Workers, user: Login
) -> None:
    client = await mqtt_3_near_the_quota(gateway, user)
    notes = [b"note %d" % number for number in range(6)]
    for each in notes:
        client.client.publish(f"devices/{user.name}/phone/note", each, 1)
    async with asyncio.timeout(60):
        for _ in notes:
            _, code = await client.published.get()
            assert code.value == 0
    await client.close()
    assert sorted(notes_of(gateway, user)) == notes


async def test_a_held_message_of_qos_2_comes_again_on_the_next_connection(
    gateway: Workers, user: Login
) -> None:
    gateway.users.rights.set_quota(user.name, 60, None)
    async with gateway.client(user) as http:
        batch = [position(number) for number in range(62)]
        await json_of(await http.post("/v1/positions", json=batch))
    topic, body = f"devices/{user.name}/phone/position", json.dumps(position(500))
    client = await mqtt(gateway, user, "phone", version=4)
    client.client.publish(topic, body, 2)
    await client.vanish()
    again = PahoClient(gateway.mqtt_port, f"{user.name}-phone", version=4, clean_session=False)
    await again.connect(*user)
    assert await again.publish(topic, body, 2) == 0
    await again.close()
    assert len(fixes_of(gateway, user)) == 63


async def test_more_than_a_minute_at_once_is_owed(gateway: Workers, user: Login) -> None:
    gateway.users.rights.set_quota(user.name, QUOTA, None)
    async with gateway.client(user) as http:
        batch = [position(number) for number in range(3 * QUOTA)]
        began = time.monotonic()
        await json_of(await http.post("/v1/positions", json=batch))
        answer = await http.post("/v1/positions", json=position(1000))
        assert answer.status == 429
        passed = time.monotonic() - began
        # 36 were taken from 12: the next one comes when 25 have been given back.
        assert 124 - passed <= int(answer.headers["Retry-After"]) <= 125


async def test_invented_devices_are_refused_and_kept(gateway: Workers, user: Login) -> None:
    """Devices beyond the bound of an ordinary user are refused in all protocols."""
    client = await mqtt(gateway, user, "inventor")
    old = await mqtt(gateway, user, "old", version=4)
    async with gateway.client(user) as http:
        for number in range(8):
            answer = await http.post("/v1/positions", json=position(number, f"h{number}"))
            assert (await json_of(answer))["accepted"] == 1
        for number in range(8):
            topic = f"devices/{user.name}/m{number}/position"
            assert await client.publish(topic, json.dumps(position(number))) == 0
        async with http.ws_connect("/v1/ws") as socket:
            for number in range(8):
                await socket.send_json({"id": f"w{number}", **position(number, f"w{number}")})
                assert await _verdict(socket) == ("ack" if number < 4 else "rejected")
        topic = f"devices/{user.name}/x/position"
        assert await client.publish(topic, json.dumps(position(1))) == QUOTA_EXCEEDED
        topic = f"owntracks/{user.name}/y"
        assert await old.publish(topic, json.dumps(owntracks(1))) == 0
        answer = await http.post("/v1/positions", json=position(1, "z"))
        told = await json_of(answer)
        assert told["accepted"] == 0
        assert told["rejected"] == [{"index": 0, "reason": "this user may have 20 devices"}]
        # Known devices are still accepted.
        answer = await http.post("/v1/positions", json=position(50, "m3"))
        assert (await json_of(answer))["accepted"] == 1
        assert (
            await client.publish(f"devices/{user.name}/h2/position", json.dumps(position(51))) == 0
        )
    await client.close()
    await old.close()
    assert len(set(fixes_of(gateway, user))) == 20
    kept = [decode_rejected(value) for _, value in gateway.records("error")]
    refused = {each.device for each in kept if each.user == user.name}
    assert {f"{user.name}/{name}" for name in ("w4", "w7", "x", "y", "z")} <= refused


def kept_of(gateway: Workers, user: Login) -> list[Rejected]:
    kept = [decode_rejected(value) for _, value in gateway.records("error")]
    return [each for each in kept if each.user == user.name]


async def test_junk_costs_as_much_as_fixes_on_every_way(gateway: Workers, user: Login) -> None:
    gateway.users.rights.set_quota(user.name, QUOTA, None)
    began, taken, refused = time.monotonic(), 0, 0
    clients = [await mqtt(gateway, user, str(number)) for number in range(3)]
    old = await mqtt(gateway, user, "old", version=4)
    async with gateway.client(user) as http:
        answer = await http.post("/owntracks?d=phone", data=b"junk")
        taken += answer.status == 200
        batch = [position(1), {"lat": "x", "lon": 1}]
        answer = await http.post("/v1/positions", json=batch)
        taken += 2 * (answer.status == 200)
        async with http.ws_connect("/v1/ws") as socket:
            await socket.send_json({"type": "fix", "id": "w", "lat": "x", "lon": 1})
            taken += await _verdict(socket) == "rejected"
        for client in clients * QUOTA:
            for topic in (f"owntracks/{user.name}/phone", "owntracks/somebody/phone"):
                code = await client.publish(topic, b"junk")
                refused += code == QUOTA_EXCEEDED
                taken += code != QUOTA_EXCEEDED
        answer = await http.post("/owntracks?d=phone", data=b"junk")
        while answer.status == 200:
            taken += 1
            answer = await http.post("/owntracks?d=phone", data=b"junk")
        assert answer.status == 503
        assert int(answer.headers["Retry-After"]) >= 1
    # MQTT 3 knows no answer for it: what cannot be kept yet is not acknowledged yet.
    old.client.publish(f"owntracks/{user.name}/phone", b"junk", 1)
    given_back = (time.monotonic() - began) * QUOTA / 60
    for client in (*clients, old):
        await client.close()
    assert taken >= QUOTA
    assert refused > QUOTA
    assert len(kept_of(gateway, user)) + len(fixes_of(gateway, user)) <= QUOTA + given_back + 1


async def test_of_junk_without_end_the_beginnings_are_kept(gateway: Workers, user: Login) -> None:
    began = time.monotonic()
    clients = [await mqtt(gateway, user, str(number)) for number in range(3)]
    async with gateway.client(user) as http:
        for number in range(10):
            for client in clients:
                await client.publish(f"owntracks/{user.name}/d{number}", JUNK)
            answer = await http.post("/owntracks?d=phone", data=JUNK)
            assert answer.status == 200
            batch = [{"lat": "x", "lon": 1, "note": "n" * 5_000}] * 10
            assert (await http.post("/v1/positions", json=batch)).status == 200
    for client in clients:
        await client.close()
    kept = [value for _, value in gateway.records("error") if user.name.encode() in value]
    assert len(kept) == 10 * (3 + 1 + 10)
    whole = sum(len(value) for value in kept if b'"cut"' not in value)
    assert whole <= (17 + (time.monotonic() - began) / 60) * ERROR_BYTES
    assert max(len(value) for value in kept if b'"cut"' in value) < 2_000
    assert all(decode_rejected(value).reason for value in kept)


async def test_junk_takes_no_places_of_devices(gateway: Workers, user: Login) -> None:
    gateway.users.rights.set_quota(user.name, None, 2)
    client = await mqtt(gateway, user, "junk")
    async with gateway.client(user) as http:
        for number in range(6):
            for topic in (
                f"owntracks/{user.name}/o{number}",
                f"devices/{user.name}/p{number}/position",
            ):
                assert await client.publish(topic, b"junk") in (0, 16)
            body = b'[{"lat":1,"lon":2,"device":"h%d"},junk' % number
            assert (await http.post("/v1/positions", data=body)).status == 400
            item = {"lat": 91, "lon": 2, "device": f"i{number}"}
            await json_of(await http.post("/v1/positions", json=item))
        for name in ("first", "second", "third"):
            answer = await http.post("/v1/positions", json=position(1, name))
            assert (await json_of(answer))["accepted"] == (name != "third")
        topic = f"devices/{user.name}/first/position"
        for number in range(2, 5):
            assert await client.publish(topic, json.dumps(position(number))) == 0
    await client.close()
    assert len(set(fixes_of(gateway, user))) == 2


async def test_an_administrator_may_have_any_number_of_devices(gateway: Workers) -> None:
    admin = gateway.user(f"admin{next(_numbers)}-{gateway.mqtt_port}", admin=True)
    async with gateway.client(admin) as http:
        batch = [position(number, f"d{number}") for number in range(50)]
        told = await json_of(await http.post("/v1/positions", json=batch))
        assert told["accepted"] == 50


async def test_devices_stay_counted_over_a_restart(
    gateway_broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("counted")
    with closing(UserStore(folder / "users.db")) as store:
        login = Login("ada", store.add("ada") or "")
    for number in range(2):
        with workers(folder, gateway_broker.address, 1, "--devices-per-user", "2") as gateway:
            async with gateway.client(login) as http:
                for name in ("a", "b", f"more{number}"):
                    answer = await http.post("/v1/positions", json=position(number, name))
                    told = await json_of(answer)
                    assert told["accepted"] == (name in ("a", "b"))
