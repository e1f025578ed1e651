"""Each app's own request and the response it expects, for all device formats."""

from __future__ import annotations

import base64
import json
from itertools import count
from typing import Any

import aiohttp
import pytest

from gateway.formats.secretbox import decrypt, encrypt
from tests.gateway.records import address
from tests.gateway.running import Gateway, Login, answered, json_of
from tests.http_session import http_session
from waylog.messages import Fix, decode_event, decode_fix
from waylog.observability.telemetry import now_ms

NOW_S = now_ms() // 1000


def stored(gateway: Gateway, user: Login) -> list[Fix]:
    fixes = [decode_fix(value) for _, value in gateway.records("location")]
    return [fix for fix in fixes if fix.user == user.name]


ROOT = "/index.php/apps/phonetrack"
POINT = "lat=1&lon=2&timestamp=1761994805"
FEATURE = {
    "type": "Feature",
    "geometry": {"type": "Point", "coordinates": [2, 1]},
    "properties": {"timestamp": "2025-11-01T12:00:05+0100", "speed": -1, "battery_level": 0.5},
}
TRACCAR = {
    "location": {"timestamp": "2025-11-01T11:00:05Z", "coords": {"latitude": 1, "longitude": 2}},
    "device_id": "x",
}
SENTENCE = "$GPRMC,110005,A,0100.0000,N,00200.0000,E,1.0,141.0,011125,,*18"

#: Method, path with the device's token, body, and the exact response body (None: any).
APPS: list[tuple[str, str, object, str | None]] = [
    ("POST", "/owntracks/{token}",
     {"_type": "location", "lat": 1, "lon": 2, "tst": 1761994805}, "[]"),
    ("POST", "/api/v1/owntracks/points?api_key={token}",
     {"_type": "location", "lat": 1, "lon": 2, "tst": 1761994805}, "[]"),
    # Overland's OwnTracks mode counts from 2001 and wants an object.
    ("POST", "/owntracks/{token}",
     {"_type": "location", "lat": 1, "lon": 2, "tst": NOW_S - 978307200}, '{"result":"ok"}'),
    ("POST", "/overland/{token}", {"locations": [FEATURE]}, '{"result":"ok"}'),
    ("POST", "/api/v1/overland/batches?api_key={token}", {"locations": [FEATURE]},
     '{"result":"ok"}'),
    ("POST", "/overland/{token}", {"locations": [], "current": FEATURE}, '{"result":"ok"}'),
    ("GET", "/osmand/{token}?" + POINT, None, ""),
    ("GET", "/?id={token}&" + POINT, None, ""),
    ("POST", "/traccar/{token}", TRACCAR, '{"status":"success"}'),
    ("GET", "/gpslogger/{token}?lat=1&lon=2&timestamp=1761994805&acc=0.0&dir=%25DIR", None, ""),
    ("POST", "/colota/{token}", {"lat": 1, "lon": 2, "tst": 1761994805, "vel": 6.4}, "{}"),
    ("POST", "/api/webhook/{token}", {"type": "update_location", "data": {"gps": [1, 2]}}, "{}"),
    ("GET", "/opengts/{token}?gprmc=" + SENTENCE, None, "true"),
    ("GET", ROOT + "/logGet/{token}/x?" + POINT, None, None),
    ("POST", ROOT + "/logPost/{token}/x", POINT, None),
    ("POST", ROOT + "/logPostMultiple/{token}/x", {"points": [[1, 2, 1761994805]]},
     '{"done":1,"friends":[]}'),
    ("GET", "/apps/phonetrack/log/osmand/{token}/x?" + POINT, None, "[]"),
    ("GET", "/phonetrack/log/gpslogger/{token}/x?" + POINT, None, "[]"),
    ("POST", "/phonetrack/log/locusmap/{token}/x", "lat=1&lon=2&time=1761994805", "[]"),
    ("POST", ROOT + "/log/owntracks/{token}/x",
     {"_type": "location", "lat": 1, "lon": 2, "tst": 1761994805}, "[]"),
    ("POST", ROOT + "/log/overland/{token}/x", {"locations": [FEATURE]}, '{"result":"ok"}'),
    ("POST", ROOT + "/log/traccar/{token}/x", TRACCAR, '{"status":"success"}'),
    ("GET", ROOT + "/log/opengts/{token}/x?gprmc=" + SENTENCE, None, "true"),
    ("POST", ROOT + "/log/ulogger/{token}/x/client/index.php",
     "action=addpos&lat=1&lon=2&time=1761994805&trackid=1", '{"error":false}'),
    ("POST", "/ulogger/{token}/client/index.php",
     "action=addpos&lat=1&lon=2&time=1761994805&trackid=1", '{"error":false}'),
]  # fmt: skip


async def test_each_app_reads_what_it_expects_and_its_fix_is_stored_once(
    gateway: Gateway, user: Login
) -> None:
    tokens = [gateway.users.add_token(user.name, f"phone{index}") for index in range(len(APPS))]
    async with gateway.client() as client:
        for token, (method, path, body, expected) in zip(tokens, APPS, strict=True):
            form = isinstance(body, str)
            data = body if isinstance(body, str | None) else json.dumps(body)
            kind = "application/x-www-form-urlencoded" if form else "application/json"
            # Sent twice, as by a phone that has not received the response. Home Assistant's app
            # sends no time, so its repeat is another fix.
            for _ in range(1 if "webhook" in path else 2):
                answer = await client.request(
                    method, path.format(token=token), data=data, headers={"Content-Type": kind}
                )
                text = await answer.text()
                assert answer.status == 200, (path, text)
                assert expected is None or text == expected, path
    found = stored(gateway, user)
    fixes = {fix.device: fix for fix in found}
    assert len(found) == len(fixes) == len(APPS)
    for index, (_, path, body, _) in enumerate(APPS):
        fix = fixes[f"{user.name}/phone{index}"]
        assert (fix.lat, fix.lon) == (1, 2), path
        from_2001 = isinstance(body, dict) and body.get("tst") == NOW_S - 978307200
        time = NOW_S * 1000 if from_2001 else 1_761_994_805_000
        assert "webhook" in path or fix.time == time, path
        assert tokens[index] not in json.dumps(fix.attributes)


async def test_phonetracks_app_gets_numbers_and_friends(gateway: Gateway, user: Login) -> None:
    token = gateway.users.add_token(user.name)
    path = f"{ROOT}/logGet/{token}/my%20bike?{POINT}"
    async with gateway.client() as client:
        first = await json_of(await client.get(path))
        again = await json_of(await client.get(path))
    assert first == again
    assert first["done"] == 1
    assert first["friends"] == []
    assert isinstance(first["pointId"], int)
    assert isinstance(first["deviceId"], int)
    assert stored(gateway, user)[0].device == f"{user.name}/my_bike"


async def test_ulogger_signs_in_begins_a_track_and_sends(gateway: Gateway, user: Login) -> None:
    path = "/ulogger/client/index.php"
    position = {"action": "addpos", "lat": "1", "lon": "2", "time": str(NOW_S)}
    async with http_session(gateway.url, cookie_jar=aiohttp.CookieJar(unsafe=True)) as client:
        refused = await json_of(await client.post(path, data=position), 401)
        assert refused["error"] is True
        wrong = {"action": "auth", "user": user.name, "pass": "wrong"}
        assert (await json_of(await client.post(path, data=wrong), 401))["error"] is True
        right = {"action": "auth", "user": user.name, "pass": user.token}
        answer = await client.post(path, data=right)
        assert await json_of(answer) == {"error": False}
        assert user.token not in answer.headers["Set-Cookie"]
        track = await json_of(await client.post(path, data={"action": "addtrack", "track": "Home"}))
        assert track["error"] is False
        position["trackid"] = str(track["trackid"])
        assert await json_of(await client.post(path, data=position)) == {"error": False}
        # A fix that can never be accepted is kept, so that the app continues with the next one.
        poison = position | {"lat": "north"}
        assert await json_of(await client.post(path, data=poison)) == {"error": False}
    (fix,) = stored(gateway, user)
    assert fix.device == f"{user.name}/ulogger"
    events = [decode_event(value) for _, value in gateway.records("event")]
    assert [event.type for event in events if event.user == user.name] == ["track"]


async def test_a_cookie_that_was_tampered_with_is_no_login(gateway: Gateway) -> None:
    async with gateway.client() as client:
        for cookie in ("", "x", base64.urlsafe_b64encode(bytes(80)).decode()):
            answer = await client.post(
                "/client/index.php",
                data={"action": "addpos"},
                headers={"Cookie": f"ULOGGER={cookie}"},
            )
            assert (await json_of(answer, 401))["error"] is True


async def test_friends_come_in_owntracks_answers_with_their_tid(
    gateway: Gateway, user: Login
) -> None:
    friend, stranger = gateway.user(f"{user.name}-b"), gateway.user(f"{user.name}-c")
    gateway.users.rights.befriend(friend.name, user.name, since=0)
    gateway.users.rights.set_card(f"{friend.name}/phone", "Bea", "aGVsbG8=")
    message = {"_type": "location", "tid": "bb", "lat": 47.1, "lon": 9.5, "tst": NOW_S, "vel": 36}
    for other in (friend, stranger):
        gateway.publish(address(f"{other.name}/phone", NOW_S * 1000))
        async with gateway.client(other) as client:
            await json_of(await client.post("/owntracks?d=phone", json=message))
    mine = {"_type": "location", "tid": "aa", "lat": 1, "lon": 2}
    seconds = count(NOW_S)
    async with gateway.client(user) as client:

        async def send() -> list[dict[str, Any]]:
            body = mine | {"tst": next(seconds)}
            found: list[dict[str, Any]] = await json_of(
                await client.post("/owntracks?d=mine", json=body)
            )
            return found

        location, card = await answered(send, lambda received: len(received) == 2)
        assert (location["_type"], location["tid"], location["lat"]) == ("location", "bb", 47.1)
        assert location["vel"] == 36
        assert card == {
            "_type": "card",
            "tid": "bb",
            "name": "Bea - Aeulestrasse 5, Vaduz",
            "face": "aGVsbG8=",
        }
        rows = await json_of(await client.get("/v1/devices"))
        assert {row["user"] for row in rows} == {user.name, friend.name}
        await json_of(await client.get(f"/v1/devices/{friend.name}%2Fphone"))
        await json_of(await client.get(f"/v1/devices/{stranger.name}%2Fphone"), 403)
    async with gateway.client(friend) as client:
        # A friendship works in one direction only.
        await json_of(await client.get(f"/v1/devices/{user.name}%2Fmine"), 403)


async def test_who_encrypts_gets_an_encrypted_answer_and_nobody_else(
    gateway: Gateway, user: Login
) -> None:
    key = "my passphrase"
    gateway.users.rights.set_encryption_key(user.name, key)
    gateway.publish(address(f"{user.name}/phone", (NOW_S + 9) * 1000, display_name="Marktplatz"))
    seconds = count(NOW_S)
    plain = {"_type": "location", "lat": 1, "lon": 2, "tid": "ph"}
    async with gateway.client(user) as client:

        async def send() -> Any:
            sent = plain | {"tst": next(seconds)}
            body = {"_type": "encrypted", "data": encrypt(json.dumps(sent).encode(), key)}
            return await json_of(await client.post("/owntracks?d=phone", json=body))

        answer = await answered(send)
        assert answer["_type"] == "encrypted"
        (card,) = json.loads(decrypt(answer["data"], key))
        assert card["name"] == "phone - Marktplatz"
        sent = plain | {"tst": NOW_S}
        open_answer = await json_of(await client.post("/owntracks?d=phone", json=sent))
        assert open_answer == [card]


async def test_home_assistants_app_registers_and_sends_encrypted(
    gateway: Gateway, user: Login
) -> None:
    registration = {"device_name": "Mika's tablet", "supports_encryption": True, "app_id": "x"}
    path = "/api/mobile_app/registrations"
    async with gateway.client() as client:
        await json_of(await client.post(path, json=registration), 401)
    async with gateway.client(user) as client:
        await json_of(await client.post(path, json={}), 400)
        given = await json_of(await client.post(path, json=registration), 201)
    update = {"type": "update_location", "data": {"gps": [1, 2], "gps_accuracy": 5}}
    body = {
        "type": "encrypted",
        "encrypted": True,
        "encrypted_data": encrypt(json.dumps(update).encode(), given["secret"]),
    }
    async with gateway.client() as client:
        path = f"/api/webhook/{given['webhook_id']}"
        assert await json_of(await client.post(path, json=body)) == {}
        assert await json_of(await client.post(path, data=b"{broken")) == {}
        gateway.users.revoke_device(user.name, "Mika's_tablet")
        await answered(lambda: client.post(path, json=body), lambda answer: answer.status == 410)
    (fix,) = {fix.device: fix for fix in stored(gateway, user)}.values()
    assert fix.device == f"{user.name}/Mika's_tablet"


async def test_quotas_and_roles_hold(gateway: Gateway, user: Login) -> None:
    gateway.users.rights.set_quota(user.name, 5, 1)
    async with gateway.client(user) as client:
        batch = [{"device": "a", "lat": 1, "lon": n, "time": NOW_S * 1000} for n in range(4)]
        assert (await json_of(await client.post("/v1/positions", json=batch)))["accepted"] == 4
        answer = await client.post("/v1/positions", json=batch)
        assert "5 fixes a minute" in (await json_of(answer, 429))["error"]
        assert int(answer.headers["Retry-After"]) > 0
        # An app may delete what is answered with 4xx, so it gets 503.
        named = FEATURE["properties"] | {"device_id": "a"}  # type: ignore[operator]
        points = [FEATURE | {"properties": named}] * 4
        answer = await client.post("/overland", json={"locations": points})
        assert "5 fixes a minute" in (await json_of(answer, 503))["error"]
        assert int(answer.headers["Retry-After"]) > 0

        async def devices() -> Any:
            return await json_of(await client.get("/v1/devices"))

        await answered(devices)
        other = await json_of(
            await client.post("/v1/positions", json={"device": "b", "lat": 1, "lon": 2})
        )
        assert other["accepted"] == 0
        assert other["rejected"][0]["reason"] == "this user may have 1 devices"
    gateway.users.rights.set_sending(user.name, False)
    async with gateway.client(user) as client:
        answer = await answered(
            lambda: client.post("/v1/positions", json={"lat": 1, "lon": 2}),
            lambda answer: answer.status == 403,
        )
        assert "may look" in (await json_of(answer, 403))["error"]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
async def test_compressed_bodies_are_read_and_bombs_are_not(
    gateway: Gateway, user: Login, encoding: str
) -> None:
    import gzip
    import zlib

    import zstandard

    def compress(plain: bytes) -> bytes:
        if encoding == "zstd":
            return zstandard.ZstdCompressor().compress(plain)
        return gzip.compress(plain) if encoding == "gzip" else zlib.compress(plain)

    headers = {"Content-Encoding": encoding}
    lines = b"\n".join(json.dumps({"lat": n, "lon": n}).encode() for n in range(3))
    async with gateway.client(user) as client:
        answer = await client.post("/v1/positions", data=compress(lines), headers=headers)
        assert (await json_of(answer))["accepted"] == 3
        bomb = compress(b"[" + b" " * (16 * 1024 * 1024))
        answer = await client.post("/v1/positions", data=bomb, headers=headers)
        assert "error" in await json_of(answer, 413)
        answer = await client.post("/v1/positions", data=b"no such thing", headers=headers)
        assert answer.status == 400
