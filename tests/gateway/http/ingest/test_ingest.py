"""Sending over HTTP, format by format, with the response that each app expects."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
from typing import Any

import aiohttp
import pytest

from gateway.http.ingest.ingest import named_device
from gateway.users.auth import Identity
from tests.gateway.records import address
from tests.gateway.running import Gateway, Login, answered, json_of
from waylog.messages import Fix, decode_event, decode_fix, decode_rejected
from waylog.observability.telemetry import now_ms

NOW_S = now_ms() // 1000


def stored(gateway: Gateway, user: Login) -> list[Fix]:
    fixes = [decode_fix(value) for _, value in gateway.records("location")]
    return [fix for fix in fixes if fix.user == user.name]


async def test_positions_are_stored_before_they_are_acknowledged(
    gateway: Gateway, user: Login
) -> None:
    batch = [
        {"device": "phone", "lat": 47.1, "lon": 9.5, "time": NOW_S * 1000, "id": "mine-1"},
        {"lat": 95, "lon": 0},
        {"device": "bike", "lat": 47.2, "lon": 9.6, "time": NOW_S * 1000},
    ]
    async with gateway.client(user) as client:
        answer = await json_of(await client.post("/v1/positions", json=batch))
        again = await json_of(await client.post("/v1/positions", json=batch))
    assert (answer["accepted"], answer["acked"]) == (2, ["mine-1"])
    assert [each["index"] for each in answer["rejected"]] == [1]
    assert answer["rejected"][0]["reason"] == "lat is outside -90..90"
    assert again["ids"] == answer["ids"]
    fixes = stored(gateway, user)
    assert sorted(fix.id for fix in fixes) == sorted(answer["ids"])
    assert {fix.device for fix in fixes} == {f"{user.name}/phone", f"{user.name}/bike"}


async def test_ndjson_and_gzip_are_read(gateway: Gateway, user: Login) -> None:
    lines = b"\n".join(json.dumps({"lat": n, "lon": n}).encode() for n in range(3))
    async with gateway.client(user) as client:
        answer = await client.post(
            "/v1/positions", data=gzip.compress(lines), headers={"Content-Encoding": "gzip"}
        )
        assert (await json_of(answer))["accepted"] == 3


async def test_owntracks_gets_an_array_and_in_it_a_card_with_the_address(
    gateway: Gateway, user: Login
) -> None:
    device = f"{user.name}/phone"
    message = {"_type": "location", "tid": "ph", "lat": 47.14, "lon": 9.52, "tst": NOW_S}
    headers = {"X-Limit-U": "somebody", "X-Limit-D": "phone"}
    async with gateway.client(user) as client:
        first = await json_of(await client.post("/owntracks", json=message, headers=headers))
        assert first == []
        gateway.publish(address(device, NOW_S * 1000, display_name="Städtle 1, Vaduz"))
        later = message | {"tst": NOW_S + 1}

        async def send() -> Any:
            return await json_of(await client.post(f"/pub?u={user.name}&d=phone", json=later))

        assert await answered(send) == [
            {"_type": "card", "tid": "ph", "name": "phone - Städtle 1, Vaduz"}
        ]
        assert await json_of(await client.post("/owntracks", data=b"", headers=headers)) == []
    assert {fix.device for fix in stored(gateway, user)} == {device}


async def test_an_answer_carries_the_address_of_its_own_fix_if_that_comes_in_time(
    gateway: Gateway, user: Login
) -> None:
    device = f"{user.name}/phone"
    gateway.publish(address(device, (NOW_S + 5) * 1000, display_name="Marktplatz"))
    async with gateway.client(user) as client:
        await seen(client, device)
        message = {"_type": "location", "lat": 1, "lon": 2, "tst": NOW_S + 5}
        (card,) = await json_of(
            await client.post("/owntracks", json=message, headers={"X-Limit-D": "phone"})
        )
    assert card["name"] == "phone - Marktplatz"
    assert card["tid"] == "ne"


async def seen(client: aiohttp.ClientSession, device: str) -> None:
    """Wait until the gateway's view has an address of a device."""
    path = f"/v1/devices/{device.replace('/', '%2F')}/address"
    await answered(lambda: client.get(path), lambda answer: answer.status == 200)


async def test_overland_gets_result_ok_and_the_name_of_the_place(
    gateway: Gateway, user: Login
) -> None:
    gateway.publish(address(f"{user.name}/watch", 1000, display_name="Bahnhofstrasse 2"))
    feature = {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [9.5, 47.1]},
        "properties": {"timestamp": "2025-11-01T12:00:05Z", "device_id": "watch"},
    }
    visit = feature | {"properties": {"action": "visit", "device_id": "watch"}}
    async with gateway.client(user) as client:
        await seen(client, f"{user.name}/watch")
        answer = await json_of(
            await client.post("/overland", json={"locations": [feature, visit, {}]})
        )
    assert answer == {"result": "ok", "geocode": {"full_name": "Bahnhofstrasse 2"}}
    events = [decode_event(value) for _, value in gateway.records("event")]
    assert [event.type for event in events if event.user == user.name] == ["visit"]


@pytest.mark.parametrize(
    ("method", "path", "body", "answered"),
    [
        ("GET", "/osmand?id=x&lat=1&lon=2", None, ""),
        ("GET", "/?id=x&lat=1&lon=2", None, ""),
        ("POST", "/osmand", "id=x&lat=1&lon=2", ""),
        ("POST", "/traccar", '{"device_id":"x","location":{"latitude":1,"longitude":2}}', None),
        ("POST", "/", '{"device_id":"x","location":{"latitude":1,"longitude":2}}', None),
        ("POST", "/", "id=x&lat=1&lon=2", None),
        ("GET", "/gpslogger?device=x&lat=1&lon=2", None, ""),
        ("POST", "/colota", '{"id":"x","lat":1,"lon":2}', None),
    ],
)
async def test_the_other_formats_are_answered_with_200(
    gateway: Gateway, user: Login, method: str, path: str, body: str | None, answered: str
) -> None:
    async with gateway.client(user) as client:
        answer = await client.request(method, path, data=body)
        text = await answer.text()
    assert answer.status == 200, text
    assert answered is None or text == answered
    (fix,) = stored(gateway, user)
    assert (fix.device, fix.lat, fix.lon) == (f"{user.name}/x", 1, 2)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/owntracks", []),
        ("/overland", {"result": "ok"}),
        ("/traccar", {"status": "success"}),
        ("/colota", {}),
    ],
)
async def test_what_can_never_be_accepted_is_answered_with_success_and_kept(
    gateway: Gateway, user: Login, path: str, expected: Any
) -> None:
    async with gateway.client(user) as client:
        assert await json_of(await client.post(path, data=b"{broken")) == expected
    errors = [decode_rejected(value) for _, value in gateway.records("error")]
    (rejected,) = [each for each in errors if each.user == user.name]
    assert rejected.raw == b"{broken"
    assert rejected.source == path[1:]
    assert "not JSON" in rejected.reason


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/osmand?id=x&lat=1&lon=2", "id=x&lat=3&lon=4"),
        ("/?id=x&lat=1&lon=2", "id=x&lat=3&lon=4"),
        ("/traccar?id=x&lat=1&lon=2", "id=x&lat=3&lon=4"),
        ("/traccar?id=x&lat=1&lon=2", '{"device_id":"x","location":{"latitude":3,"longitude":4}}'),
        ("/osmand?id=x&lat=1&lon=2", '{"device_id":"x","location":{"latitude":3,"longitude":4}}'),
        ("/gpslogger?device=x&lat=1&lon=2", "lat=3&lon=4"),
        ("/gpslogger?device=x&lat=1&lon=2", '{"lat":3,"lon":4}'),
        ("/colota?device=x&lat=1&lon=2", '{"lat":3,"lon":4}'),
        ("/owntracks?d=x&lat=1&lon=2", '{"_type":"location","lat":3,"lon":4}'),
        ("/overland?d=x&lat=1&lon=2", '{"locations":[{"geometry":{"coordinates":[4,3]},'
         '"properties":{}}]}'),
        ("/ulogger/TOKEN/client/index.php?action=addpos&lat=1&lon=2&time=5",
         "action=addpos&lat=3&lon=4&time=6"),
    ],
)  # fmt: skip
async def test_a_fix_in_the_url_and_one_in_the_body_are_both_stored(
    gateway: Gateway, user: Login, path: str, body: str
) -> None:
    async with gateway.client(user) as client:
        answer = await client.post(path.replace("TOKEN", user.token), data=body)
        assert answer.status == 200, await answer.text()
    assert sorted(fix.lat for fix in stored(gateway, user)) == [1, 3]
    assert len({fix.device for fix in stored(gateway, user)}) == 1


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/osmand", 400),
        ("GET", "/osmand/TOKEN", 400),
        ("GET", "/osmand?speed_unit=ms", 400),
        ("GET", "/gpslogger?lat=%25LAT&lon=%25LON", 400),
        ("GET", "/opengts", 400),
        ("POST", "/", 400),
        *(("POST", path, 400) for path in ("/traccar", "/colota", "/overland", "/gpslogger")),
        ("GET", "/apps/phonetrack/logGet/TOKEN/phone", 400),
        ("POST", "/api/webhook/TOKEN", 400),
        ("POST", "/v1/positions", 400),
        ("POST", "/ulogger/TOKEN/client/index.php", 400),
        ("POST", "/owntracks", 200),  # the app deletes a contact with an empty message
    ],
)
async def test_a_request_with_nothing_in_it_is_refused_with_a_message(
    gateway: Gateway, user: Login, method: str, path: str, status: int
) -> None:
    async with gateway.client(user) as client:
        answer = await client.request(method, path.replace("TOKEN", user.token))
        assert answer.status == status
        if status == 400:
            said = await answer.json()
            assert "send" in (said.get("message") or said["error"])


async def test_an_old_time_is_answered_in_the_format_of_its_path(
    gateway: Gateway, user: Login
) -> None:
    message = {"_type": "location", "lat": 1, "lon": 2, "tst": 86400}
    async with gateway.client(user) as client:
        assert await json_of(await client.post("/owntracks", json=message)) == []
    (fix,) = stored(gateway, user)
    assert (fix.time, fix.attributes) == (86_400_000, {"time_suspect": "past"})


async def test_settings_come_into_the_log_without_their_passwords(
    gateway: Gateway, user: Login
) -> None:
    message = {"_type": "configuration", "host": "h", "password": "hush", "encryptionKey": "hush"}
    message["waypoints"] = "kept"
    async with gateway.client(user) as client:
        assert await json_of(await client.post("/owntracks", json=message)) == []
    events = [decode_event(value) for _, value in gateway.records("event")]
    (event,) = [each for each in events if each.user == user.name]
    assert event.attributes == {"host": "h", "encryptionKey": "[secret]", "waypoints": "kept"}
    everything = [v for topic in ("event", "error", "log") for _, v in gateway.records(topic)]
    assert b"hush" not in b"".join(everything)


async def test_an_unknown_user_gets_401_and_the_request_is_kept_without_credentials(
    gateway: Gateway,
) -> None:
    body = b'{"lat":1,"lon":2,"device":"of-a-stranger"}'
    stranger = Login("stranger", "wl_" + "s" * 43)
    async with gateway.client(stranger) as client:
        answer = await client.post("/v1/positions?token=wl_" + "q" * 43, data=body)
        assert "error" in await json_of(answer, 401)
        assert "WWW-Authenticate" in answer.headers
    async with gateway.client() as client:
        await json_of(await client.post("/v1/positions?d=watch&key=qqqq", data=body), 401)

    async def errors() -> list[bytes]:
        return [value for _, value in await asyncio.to_thread(gateway.records, "error")]

    kept = await answered(
        errors, lambda kept: sum(decode_rejected(value).raw == body for value in kept) == 2
    )
    found = [decode_rejected(value) for value in kept if decode_rejected(value).raw == body]
    assert [each.reason[:4] for each in found] == ["401:", "401:"]
    assert [(each.headers or {}).get("query", "")[:7] for each in found] == ["", "d=watch"]
    assert not any(b"ssss" in value or b"qqqq" in value for value in kept)
    # Nobody is erased, and nobody's bound used up, by what others say about themselves.
    keys = [key for key, value in gateway.records("error") if decode_rejected(value).raw == body]
    assert keys == [None, None]


def test_what_a_phone_calls_itself_beside_its_devices_token_is_kept() -> None:
    query = {"id": "other", "deviceid": "watch", "lat": "1"}
    assert named_device(Identity("ada", "watch"), query, {}) == "watch"
    assert query == {"id": "other", "lat": "1"}


async def test_a_device_token_in_the_url_decides_over_user_and_device(
    gateway: Gateway, user: Login
) -> None:
    token = gateway.users.add_token(user.name, "watch")
    async with gateway.client() as client:
        for path in (
            f"/osmand/{token}?id=other&lat=1&lon=2",
            f"/in/osmand/{token}?id={user.name}/third&lat=3&lon=4",
            f"/osmand?token={token}&lat=5&lon=6",
            f"/?id={token}&lat=7&lon=8",
        ):
            answer = await client.get(path)
            assert answer.status == 200, await answer.text()
        bearer = {"Authorization": f"Bearer {token}"}
        answer = await client.post("/v1/positions", json={"lat": 9, "lon": 9}, headers=bearer)
        await json_of(answer)
    fixes = stored(gateway, user)
    assert sorted(fix.lat for fix in fixes) == [1, 3, 5, 7, 9]
    assert {fix.device for fix in fixes} == {f"{user.name}/watch"}
    topics = ("location", "error", "parameter", "log")
    records = [each for topic in topics for each in gateway.records(topic)]
    everything = b"".join(value for _, value in records)
    assert token.encode() not in everything


async def test_nobody_sends_for_another_user_but_an_admin(gateway: Gateway, user: Login) -> None:
    admin = gateway.user(f"{user.name}-admin", admin=True)
    theft = {"device": f"{admin.name}/phone", "lat": 1, "lon": 2}
    gift = {"device": f"{user.name}/phone", "lat": 1, "lon": 2}
    async with gateway.client(user) as client:
        answer = await json_of(await client.post("/v1/positions", json=theft))
        assert answer["accepted"] == 0
        assert "another user" in answer["rejected"][0]["reason"]
    async with gateway.client(admin) as client:
        assert (await json_of(await client.post("/v1/positions", json=gift)))["accepted"] == 1


async def test_home_assistants_webhook_id_is_a_token(gateway: Gateway, user: Login) -> None:
    token = gateway.users.add_token(user.name, "tablet")
    update = {"type": "update_location", "data": {"gps": [1, 2], "gps_accuracy": 5}}
    async with gateway.client() as client:
        assert await json_of(await client.post(f"/api/webhook/{token}", json=update)) == {}
        await json_of(await client.post("/api/webhook/unknown", json=update), 410)
    (fix,) = stored(gateway, user)
    assert fix.device == f"{user.name}/tablet"


async def test_a_trace_goes_on_in_the_log(gateway: Gateway, user: Login) -> None:
    from confluent_kafka import Consumer, TopicPartition

    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    body = {"lat": 1, "lon": 2, "id": "traced"}
    async with gateway.client(user) as client:
        await client.post("/v1/positions", json=body, headers={"traceparent": trace})
    consumer = Consumer({"bootstrap.servers": gateway.bootstrap_servers, "group.id": "trace"})
    consumer.assign([TopicPartition("location", number, 0) for number in range(4)])
    traces: list[Any] = []
    for _ in range(20):
        for message in consumer.consume(1000, 0.2):
            traces += [value for name, value in list(message.headers() or ())]
        if trace.encode() in traces:
            break
    consumer.close()
    assert trace.encode() in traces


# --- limits -------------------------------------------------------------------------------------


async def test_each_limit_is_explained(gateway: Gateway, user: Login) -> None:
    async with gateway.client(user) as client:
        large = await client.post("/v1/positions", data=io.BytesIO(b"x" * (9 * 1024 * 1024)))
        assert "are allowed" in (await json_of(large, 413))["error"]
        many = await client.post("/v1/positions", data=b"[" + b"{}," * 10_000 + b"{}]")
        assert "10000 are allowed" in (await json_of(many, 413))["error"]
        bomb = gzip.compress(b"[" + b" " * (64 * 1024 * 1024))
        answer = await client.post("/v1/positions", data=bomb, headers={"Content-Encoding": "gzip"})
        assert "error" in await json_of(answer, 413)
        deep = await client.post("/v1/positions", data=b"[" * 1_000_000)
        assert "not a JSON array" in (await json_of(deep, 400))["error"]
        answer = await client.get("/nothing")
        assert "error" in await json_of(answer, 404)
        answer = await client.put("/v1/positions")
        assert "error" in await json_of(answer, 405)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 20_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(1000)) + b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"POST /v1/positions HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/positions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
    ],
)
async def test_malformed_requests_are_refused_and_closed(
    gateway: Gateway, request_bytes: bytes
) -> None:
    reader, writer = await asyncio.open_connection(*gateway.address)
    writer.write(request_bytes)
    answer = await asyncio.wait_for(reader.read(), 60)
    assert answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4"))
    writer.close()
    async with gateway.client() as client:
        assert (await client.get("/healthz")).status == 200
