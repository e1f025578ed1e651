"""Zones, channels, events and edits of places of a running gateway, on a real log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import ClientSession, encode_basic_auth, web
from paho.mqtt.enums import CallbackAPIVersion

from spark.places.topics import read_edits
from tests.consumers.running import Broker, await_condition
from tests.gateway.running import Gateway, Login, answered, json_of, places_of
from waylog.geofences.definition import decode_geofence
from waylog.kafka.clients import producer_config
from waylog.kafka.librdkafka_producer import LibrdkafkaProducer
from waylog.kafka.topics import EVENT, GEOFENCE
from waylog.messages import Event, encode
from waylog.observability.telemetry import now_ms

ZONES = "/v1/geofences"
CIRCLE: dict[str, Any] = {
    "name": "School",
    "geometry": {"type": "Point", "coordinates": [9.52, 47.14]},
    "radius": 150,
}


def polygon(*ring: tuple[float, float]) -> dict[str, Any]:
    return {
        "name": "p",
        "geometry": {"type": "Polygon", "coordinates": [[[*each] for each in (*ring, ring[0])]]},
    }


def line(*positions: tuple[float, float], width: float = 60) -> dict[str, Any]:
    geometry = {"type": "LineString", "coordinates": [[*each] for each in positions]}
    return {"name": "l", "geometry": geometry, "width": width}


#: Shapes and settings that are refused, with a part of the reason.
REFUSED: list[tuple[dict[str, Any], str]] = [
    (polygon((9, 47), (9.1, 47.1), (9.1, 47), (9, 47.1)), "must not cross themselves"),
    (polygon((9, 47), (9.1, 47), (9.2, 47)), "polygon: "),
    (polygon((0, 86), (120, 86), (240 - 360, 86)), "hold a pole"),
    (CIRCLE | {"geometry": {"type": "Point", "coordinates": [0, 90]}}, "hold a pole"),
    (polygon((0, 0), (20, 0), (20, 20), (0, 20)), "too large"),
    (line((0, 0), (20, 0)), "too large"),
    (line((0, 0)), "at least 2 positions"),
    (line((0, 0), (0.1, 0), width=9), "width is 10 to"),
    (line(*[(0.0001 * each, 0.0) for each in range(501)]), "more than 500 positions"),
    (polygon((181, 0), (181, 1), (182, 1)), "longitude is -180 to 180"),
    (CIRCLE | {"radius": 5}, "radius is 10 to"),
    (CIRCLE | {"radius": 1e9}, "<= 5000000.0"),
    ({each: CIRCLE[each] for each in ("name", "geometry")}, "metres are expected"),
    (CIRCLE | {"geometry": {"type": "Feature"}}, "is expected"),
    (CIRCLE | {"geometry": {"type": "Point", "coordinates": ["a", "b"]}}, "Expected `float`"),
    (CIRCLE | {"name": "  "}, "name has"),
    (CIRCLE | {"name": "a\u202eb"}, "name has"),
    (CIRCLE | {"alerts": ["explode"]}, "alerts are"),
    (CIRCLE | {"alerts": ["dwell"], "dwell": 5}, "dwell is 60"),
    (CIRCLE | {"devices": ["other/phone"]}, "devices are names of your devices"),
    (CIRCLE | {"devices": []}, "length"),
    (CIRCLE | {"owner": "somebody"}, "unknown field"),
]


@pytest.fixture(scope="module")
def own_gateway(
    gateway_broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """Yield a gateway whose users may have servers on this machine told of events."""
    folder = tmp_path_factory.mktemp("zones")
    options = ("--alert-networks", "127.0.0.0/8", "--places", str(folder / "places"))
    running = Gateway(folder, gateway_broker.address, "--mqtt", "127.0.0.1:0", *options)
    yield running
    running.close()


@asynccontextmanager
async def signed_in(gateway: Gateway, name: str) -> AsyncIterator[tuple[Login, ClientSession]]:
    login = gateway.user(name)
    async with gateway.client(login) as client:
        yield login, client


async def refusal(answer: Any, status: int) -> str:
    body = await json_of(answer, status)
    return str(body["error"])


async def test_a_zone_is_made_changed_and_deleted(own_gateway: Gateway) -> None:
    async with signed_in(own_gateway, "zo-ann") as (ann, client):
        assert await json_of(await client.get(ZONES)) == []
        made = await json_of(await client.post(ZONES, json=CIRCLE), 201)
        assert made == CIRCLE | {"id": made["id"], "alerts": ["enter", "leave"]}
        assert await json_of(await client.get(ZONES)) == [made]
        [(key, value)] = [
            each
            for each in own_gateway.records(GEOFENCE)
            if (each[0] or b"").startswith(b"zo-ann/")
        ]
        assert key == f"zo-ann/{made['id']}".encode()
        assert decode_geofence(value).title == "School"

        changed = line((9.5, 47.1), (9.6, 47.1)) | {"name": "Way", "always": True}
        changed |= {"devices": ["phone"], "alerts": ["dwell"], "dwell": 900, "channels": []}
        path = f"{ZONES}/{made['id']}"
        assert await json_of(await client.put(path, json=changed)) == changed | {"id": made["id"]}
        assert "name" in await refusal(
            await client.post(ZONES, json=changed | {"name": "way"}), 409
        )
        # Nobody else's.
        async with signed_in(own_gateway, "zo-bob") as (_, other):
            assert await json_of(await other.get(ZONES)) == []
            for method in ("GET", "PUT", "DELETE"):
                answer = await other.request(method, path, json=CIRCLE)
                assert "no such zone" in await refusal(answer, 404)
            others = f"{ZONES}/..%2Fzo-ann%2F{made['id']}"
            assert "no such zone" in await refusal(await other.delete(others), 404)
        assert (await client.delete(path)).status == 204
        assert await json_of(await client.get(ZONES)) == []

        def newest() -> tuple[bytes | None, bytes]:
            stored = own_gateway.records(GEOFENCE)
            return [each for each in stored if (each[0] or b"").startswith(b"zo-ann/")][-1]

        assert newest() == (key, b"")

        # A revoked user's zones end: the name may be somebody else's tomorrow.
        await json_of(await client.post(ZONES, json=CIRCLE), 201)
        own_gateway.users.revoke(ann.name)

        await asyncio.to_thread(
            await_condition, lambda: newest()[1] == b"", 60, "the end of the zone"
        )


async def test_what_is_no_zone_is_refused_with_the_reason(own_gateway: Gateway) -> None:
    async with signed_in(own_gateway, "zo-cara") as (_, client):
        for body, reason in REFUSED:
            assert reason in await refusal(await client.post(ZONES, json=body), 400), body
        for raw in (b"", b"[]", b"{", b'{"name":1}', b"[" * 20_000):
            await refusal(await client.post(ZONES, data=raw), 400)
        assert await json_of(await client.get(ZONES)) == []
        # Across the antimeridian is no mistake: people live there.
        fiji = polygon((179.5, -17), (-179.5, -17), (-179.5, -16), (179.5, -16))
        made = await json_of(await client.post(ZONES, json=fiji), 201)
        assert made["geometry"] == fiji["geometry"]


async def test_a_user_has_a_hundred_zones(own_gateway: Gateway) -> None:
    async with signed_in(own_gateway, "zo-dan") as (_, client):
        producer = LibrdkafkaProducer(producer_config(own_gateway.bootstrap_servers, "test"))
        value = json.dumps({"circle": {"lat": 1, "lon": 2, "radius": 30}}).encode()
        for number in range(100):
            producer.produce(GEOFENCE, value, f"zo-dan/{number}".encode())
        assert producer.flush(60) == 0

        async def listed() -> list[Any]:
            found: list[Any] = await json_of(await client.get(ZONES))
            return found

        zones = await answered(listed, lambda found: len(found) == 100)
        # Those of the command line are shown by their names.
        assert {each["name"] for each in zones} == {str(number) for number in range(100)}
        assert "100 zones" in await refusal(await client.post(ZONES, json=CIRCLE), 409)
        assert (await client.delete(f"{ZONES}/7")).status == 204
        await json_of(await client.post(ZONES, json=CIRCLE), 201)


class Servers:
    """Servers of a user: what they are sent, and how they answer."""

    def __init__(self) -> None:
        self.received: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: list[int] = []
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        self.received.append((request.path, dict(request.headers), await request.read()))
        status = self.answers.pop(0) if self.answers else 200
        headers = {"Location": "/elsewhere"} if status == 302 else {}
        return web.Response(status=status, headers=headers)


@asynccontextmanager
async def servers() -> AsyncIterator[Servers]:
    found = Servers()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", found.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield found
    finally:
        await runner.cleanup()


def happen(gateway: Gateway, user: str, kind: str, zone: dict[str, Any], number: int = 0) -> str:
    """Write an event of a zone, as the topology does."""
    time = now_ms()
    members = {"transition": kind, "fence": zone["name"], "owner": user, "fence_id": zone["id"]}
    event = Event(
        id=f"{user}-{zone['id']}-{kind}-{number}",
        device=f"{user}/phone",
        user=user,
        type="geofence",
        time=time,
        received=time,
        source="streams",
        attributes=members | {"since": time, "lat": 47.14, "lon": 9.52},
    )
    producer = LibrdkafkaProducer(producer_config(gateway.bootstrap_servers, "test"))
    producer.produce(EVENT, encode(event), event.device.encode())
    assert producer.flush(60) == 0
    return event.id


def hours_around_now(*, covers: bool) -> dict[str, str]:
    """Return quiet hours in UTC that cover the present, or the other half of the day."""
    from datetime import UTC, datetime, timedelta

    now = datetime.now(UTC)
    begin, end = now - timedelta(hours=6), now + timedelta(hours=6)
    if not covers:
        begin, end = end, begin
    return {"from": f"{begin:%H:%M}", "until": f"{end:%H:%M}", "time_zone": "UTC"}


async def test_events_are_told_by_the_channels_of_the_zone(own_gateway: Gateway) -> None:
    async with signed_in(own_gateway, "zo-eve") as (eve, client), servers() as found:
        found.answers = [503, 200]
        channels = {}
        for kind, more in (
            ("webhook", {"token": "bearer-secret"}),
            ("apprise", {}),
            ("ntfy", {}),
        ):
            body = {"name": kind, "kind": kind, "url": f"{found.url}/{kind}?k=path-secret", **more}
            made = await json_of(await client.post("/v1/alert-channels", json=body), 201)
            assert "secret" not in json.dumps(made).replace("has_signing_secret", "")
            channels[kind] = made["id"]
        settings = {"language": "de", "quiet": hours_around_now(covers=False)}
        await json_of(await client.put("/v1/alert-settings", json=settings))
        quiet = await json_of(
            await client.post(ZONES, json=CIRCLE | {"alerts": ["enter"], "name": "A"}), 201
        )
        loud = await json_of(
            await client.post(ZONES, json=CIRCLE | {"name": "B", "always": True}), 201
        )
        none = await json_of(
            await client.post(ZONES, json=CIRCLE | {"name": "C", "channels": []}), 201
        )
        told: list[dict[str, Any]] = []
        mqtt = paho.Client(CallbackAPIVersion.VERSION2)
        mqtt.username_pw_set(*eve)
        mqtt.on_message = lambda _c, _d, message: told.append(json.loads(message.payload))
        subscribed: list[object] = []
        mqtt.on_subscribe = lambda *_: subscribed.append(True)
        host, _, port = own_gateway.process.output.partition("mqtt=")[2].split()[0].rpartition(":")
        mqtt.connect(host, int(port))
        mqtt.loop_start()
        mqtt.subscribe("devices/zo-eve/phone/notice", 1)
        await asyncio.to_thread(await_condition, lambda: subscribed, 60, "the subscription")

        async def events(after: str, wait: int) -> dict[str, Any]:
            query = {"after": after, "wait": str(wait)}
            found: dict[str, Any] = await json_of(await client.get("/v1/events", params=query))
            return found

        before = await events("", 0)
        waiting = asyncio.create_task(events(before["cursor"], 20))
        first = await asyncio.to_thread(happen, own_gateway, "zo-eve", "enter", quiet)
        [event] = (await waiting)["events"]
        assert (event["id"], event["zone"], event["alert"]) == (first, quiet["id"], True)

        # All three, in German, and again where the server was away.
        async def paths() -> list[str]:
            return sorted(path for path, _, _ in found.received)

        assert await answered(paths, lambda found: len(found) == 4)
        by_path = {path: (headers, body) for path, headers, body in found.received}
        text = "phone ist in A angekommen"
        assert json.loads(by_path["/apprise"][1]) == {
            **{"title": "Waylog", "body": text, "type": "info", "format": "text"}
        }
        assert by_path["/ntfy"][1].decode() == text
        headers, sent = by_path["/webhook"]
        assert headers["Authorization"] == "Bearer bearer-secret"
        assert json.loads(sent)["fence"] == "A"

        # In quiet hours programs are told, people of the zone that is always told; not of what
        # nobody has asked for, nor by channels that were not chosen.
        settings["quiet"] = hours_around_now(covers=True)
        await json_of(await client.put("/v1/alert-settings", json=settings))
        found.received.clear()
        for kind, zone in (("enter", none), ("leave", quiet), ("enter", quiet), ("leave", loud)):
            await asyncio.to_thread(happen, own_gateway, "zo-eve", kind, zone, 1)
        wanted = ["/apprise", "/ntfy", "/webhook", "/webhook"]
        assert await answered(paths, lambda each: len(each) >= 4) == wanted
        await asyncio.to_thread(await_condition, lambda: len(told) >= 3, 60, "the notices")
        assert [(each["fence"], each["transition"]) for each in told] == [
            *(("A", "enter"), ("A", "enter"), ("B", "leave")),
        ]
        late = (await answered(lambda: events("", 0), lambda each: len(each["events"]) >= 5))[
            "events"
        ]
        # Of the first event: it would not be told now.
        assert [(each["name"], each["alert"]) for each in late] == [
            *(("A", False), ("C", False), ("A", False), ("A", False), ("B", True)),
        ]
        mqtt.disconnect()
        mqtt.loop_stop()

        # A redirect is not followed, an answer that is no success is told, a test is one request.
        found.received.clear()
        found.answers = [302]
        tested = await json_of(
            await client.post(f"/v1/alert-channels/{channels['ntfy']}/test"), 200
        )
        assert tested["error"] == "it answered 302"
        tested = await json_of(await client.post(f"/v1/alert-channels/{channels['ntfy']}/test"))
        assert "error" not in tested and tested["told"] > 0
        assert [path for path, _, _ in found.received] == ["/ntfy", "/ntfy"]
        # Nobody else sees or ends it.
        async with signed_in(own_gateway, "zo-fay") as (_, other):
            assert await json_of(await other.get("/v1/alert-channels")) == []
            assert (await other.delete(f"/v1/alert-channels/{channels['ntfy']}")).status == 404
            assert (await events("", 0))["events"] != (
                await json_of(await other.get("/v1/events"))
            )["events"]
        assert (await client.delete(f"/v1/alert-channels/{channels['ntfy']}")).status == 204
        stored = b"".join(each.read_bytes() for each in own_gateway.folder.glob("users.db.alerts*"))
        assert b"secret" not in stored
        assert "secret" not in own_gateway.process.output.replace("signing_secret", "")


async def test_alerts_go_only_where_it_is_allowed(
    gateway_broker: Broker, own_gateway: Gateway, tmp_path: Path
) -> None:
    strict = Gateway(tmp_path, gateway_broker.address)
    try:
        async with servers() as found:
            port = found.url.rpartition(":")[2]
            own_port = own_gateway.http.rpartition(":")[2]
            for gateway, urls in (
                (strict, (f"{found.url}/x", f"http://localhost:{port}/", f"http://[::1]:{port}/")),
                # Nor to the platform itself, where this machine is allowed.
                (
                    own_gateway,
                    (f"http://127.0.0.1:{own_port}/", f"http://{gateway_broker.address}"),
                ),
            ):
                async with signed_in(gateway, f"zo-gus-{gateway.http[-4:]}") as (_, client):
                    for url in urls:
                        body = {"name": "in", "kind": "webhook", "url": url}
                        made = await json_of(
                            await client.post("/v1/alert-channels", json=body), 201
                        )
                        path = f"/v1/alert-channels/{made['id']}/test"
                        tested = await json_of(await client.post(path))
                        assert "alerts may not go to its address" in tested["error"], url
            assert found.received == []
    finally:
        strict.close()


async def test_what_is_no_channel_is_refused(own_gateway: Gateway) -> None:
    channel = {"name": "x", "kind": "webhook", "url": "https://example.org"}
    async with signed_in(own_gateway, "zo-hal") as (_, client):
        for change, reason in (
            ({"url": "ftp://example.org"}, "http://HOST"),
            ({"url": "http://u:path-secret@example.org"}, "token"),
            ({"url": "http://example.org/\u00e4"}, "percent-encoded"),
            ({"kind": "fax"}, "kind is one of"),
            ({"signing_secret": "short"}, "24 bytes"),
            ({"token": "a\nb"}, "token"),
            ({"name": "a\u202eb"}, "name"),
            ({"more": 1}, "unknown field"),
        ):
            answer = await client.post("/v1/alert-channels", json=channel | change)
            said = await refusal(answer, 400)
            assert reason in said and "path-secret" not in said
        for quiet, reason in (
            ({"from": "25:00", "until": "07:00", "time_zone": "UTC"}, "22:30"),
            ({"from": "07:00", "until": "07:00", "time_zone": "UTC"}, "same time"),
            ({"from": "22:00", "until": "07:00", "time_zone": "../etc"}, "time zone"),
        ):
            answer = await client.put("/v1/alert-settings", json={"quiet": quiet})
            assert reason in await refusal(answer, 400)
        for number in range(10):
            body = channel | {"name": str(number)}
            await json_of(await client.post("/v1/alert-channels", json=body), 201)
        assert "10 channels" in await refusal(
            await client.post("/v1/alert-channels", json=channel), 409
        )


def write_places(gateway: Gateway, user: str) -> None:
    """Write what the job would write."""
    rows = [
        {
            **{"user": user, "device": f"{user}/phone", "place_id": each, "lat": lat, "lon": 9.5},
            **{"label": label, "name": f"Haidian {each}", "visits": 3, "dwell_s": 100},
            **{"address": "Haidian", "radius_m": 30.0, "first": 10, "last": 20 + index},
            **{"named_by": None},
        }
        for index, (each, lat, label) in enumerate(
            (("a", 47.0, "home"), ("b", 47.001, None), ("c", 47.002, None), ("d", 48.0, None))
        )
    ]
    folder = gateway.folder / "places"
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "new")
    (folder / "new").replace(folder / "places.parquet")


async def test_places_are_edited_at_once_and_for_the_job(own_gateway: Gateway) -> None:
    async with signed_in(own_gateway, "zo-ida") as (_, client):
        write_places(own_gateway, "zo-ida")
        base = "/v1/devices/zo-ida%2Fphone"

        async def places() -> dict[str, dict[str, Any]]:
            rows = await places_of(client, "zo-ida/phone")
            return {row["place_id"]: row for row in rows}

        assert set(await answered(places)) == {"a", "b", "c", "d"}
        await json_of(await client.patch(f"{base}/places/b", json={"name": "Lake"}))
        await json_of(await client.patch(f"{base}/places/c", json={"merged_into": "b"}))
        found = await places()
        assert set(found) == {"a", "b", "d"}
        lake = found["b"]
        assert (lake["name"], lake["named_by"]) == ("Lake", "user")
        assert (lake["visits"], lake["dwell_s"], lake["last"]) == (6, 200, 22)
        assert (await client.delete(f"{base}/places/d")).status == 204
        assert set(await places()) == {"a", "b"}
        # A home protects what friends are told; it can be said to be none.
        assert "blurred" in await refusal(await client.delete(f"{base}/places/a"), 409)
        far = await client.patch(f"{base}/places/d", json={"merged_into": "b"})
        assert "2 km apart" in await refusal(far, 409)
        for path, change, status in (
            ("x", {"name": "X"}, 404),
            ("b", {"merged_into": "b"}, 404),
            ("b", {"name": " "}, 400),
            ("b", {"label": "castle"}, 400),
            ("b", {"lat": 1}, 400),
        ):
            await refusal(await client.patch(f"{base}/places/{path}", json=change), status)
        # Undone, and as the job will read it.
        await json_of(await client.patch(f"{base}/places/c", json={"merged_into": None}))
        await json_of(await client.patch(f"{base}/places/d", json={"deleted": False}))
        assert set(await places()) == {"a", "b", "c", "d"}
        edits = await json_of(await client.get(f"{base}/place-edits"))
        assert {each["place_id"]: each["known_as"] for each in edits} == {
            **{"b": "Haidian b", "c": "Haidian c", "d": "Haidian d"}
        }
        stored = {
            each.place_id: each
            for each in await asyncio.to_thread(read_edits, own_gateway.bootstrap_servers)
            if each.device == "zo-ida/phone"
        }
        assert stored["b"].name == "Lake" and not stored["d"].deleted
        assert stored["c"].merged_into is None
        # Of a friend's places nothing can be said.
        friend = own_gateway.user("zo-joe")
        own_gateway.users.rights.befriend("zo-ida", "zo-joe")
        headers = {"Authorization": encode_basic_auth(*friend)}
        async with own_gateway.client() as other:
            answer = await other.patch(f"{base}/places/b", json={"name": "Mine"}, headers=headers)
            assert answer.status == 403


async def test_a_page_of_another_site_changes_nothing(own_gateway: Gateway) -> None:
    login = own_gateway.user("zo-kim")
    async with own_gateway.client() as client:
        answer = await client.post(
            "/v1/session", json={"user": login.name, "token": login.token},
            headers={"Origin": own_gateway.url},
        )  # fmt: skip
        assert answer.status in (200, 201)
        cookie = {"Cookie": answer.headers["Set-Cookie"].partition(";")[0]}
        for method, path in (
            *(("POST", ZONES), ("PUT", f"{ZONES}/x"), ("DELETE", f"{ZONES}/x")),
            *(("POST", "/v1/alert-channels"), ("PUT", "/v1/alert-settings")),
            ("PATCH", "/v1/devices/zo-kim%2Fphone/places/x"),
        ):
            for headers in (
                {"Origin": "https://evil.example"},
                {"Origin": own_gateway.url, "Sec-Fetch-Site": "cross-site"},
                {},
            ):
                answer = await client.request(method, path, json=CIRCLE, headers=cookie | headers)
                assert answer.status == 403, (method, path, headers)
        assert await json_of(await client.get(ZONES, headers=cookie)) == []
