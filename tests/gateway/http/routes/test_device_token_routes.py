"""Tokens of devices over HTTP: made with what sets up an app, used as the app does, revoked."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest

from gateway.users.app_setups import SETUPS
from tests.consumers.running import Broker
from tests.gateway.running import Gateway, Login, answered, json_of

TOKENS = "/v1/device-tokens"


@pytest.fixture(scope="module")
def gateway(gateway_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("device-tokens")
    started = Gateway(folder, gateway_broker.address, "--mqtt", "127.0.0.1:0")
    yield started
    started.close()


async def made(gateway: Gateway, login: Login, name: str, app: str) -> dict[str, Any]:
    """Return the answer to a POST for a new token."""
    async with (
        gateway.client(login) as client,
        client.post(TOKENS, json={"name": name, "app": app}) as answer,
    ):
        assert answer.headers["Cache-Control"] == "no-store"
        body: dict[str, Any] = await json_of(answer, 201)
        return body


def owntracks_settings(link: str) -> dict[str, Any]:
    """Return the settings of an OwnTracks link."""
    [inline] = parse_qs(urlsplit(link).query)["inline"]
    settings: dict[str, Any] = json.loads(base64.b64decode(inline))
    return settings


def traccar(setup: dict[str, Any]) -> dict[str, Any]:
    """Return the request of Traccar Client that has scanned this."""
    found = urlsplit(setup["link"])
    location = {"timestamp": "2026-06-01T10:00:00Z", "coords": {"latitude": 47.1, "longitude": 9.5}}
    return {
        "url": f"{found.scheme}://{found.netloc}{found.path}",
        "json": {"location": location, "device_id": parse_qs(found.query)["id"][0]},
    }


def overland(setup: dict[str, Any]) -> dict[str, Any]:
    """Return the request of Overland that has opened this."""
    found = {name: value for name, [value] in parse_qs(urlsplit(setup["link"]).query).items()}
    point = {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [9.5, 47.1]},
        "properties": {"timestamp": "2026-06-01T10:00:00Z", "device_id": found["device_id"]},
    }
    return {
        "url": found["url"],
        "headers": {"Authorization": f"Bearer {found['token']}"},
        "json": {"locations": [point]},
    }


def colota(setup: dict[str, Any]) -> dict[str, Any]:
    """Return the request of Colota that has opened this."""
    found = json.loads(base64.b64decode(parse_qs(urlsplit(setup["link"]).query)["config"][0]))
    return {
        "url": found["endpoint"],
        "headers": {"Authorization": f"Bearer {found['auth']['bearerToken']}"},
        "json": {"lat": 47.1, "lon": 9.5, "tst": 1780000000},
    }


def owntracks(setup: dict[str, Any]) -> dict[str, Any]:
    """Return the request of OwnTracks in HTTP mode that has opened this."""
    found = owntracks_settings(setup["link"])
    return {
        "url": found["url"],
        "headers": {
            "Authorization": aiohttp.encode_basic_auth(found["username"], found["password"])
        },
        "json": {"_type": "location", "lat": 47.1, "lon": 9.5, "tst": 1780000000, "tid": "x"},
    }


def gpslogger(setup: dict[str, Any]) -> dict[str, Any]:
    """Return the request of GPSLogger that has this profile."""
    profile = dict(line.split("=", 1) for line in setup["file"].splitlines())
    assert profile["log_customurl_url"] == setup["address"]
    url = setup["address"].replace("%LAT", "47.1").replace("%LON", "9.5")
    url = url.replace("%TIMESTAMP", "1780000000")
    return {"method": profile["log_customurl_method"], "url": url}


def home_assistant(setup: dict[str, Any]) -> dict[str, Any]:
    """Return the request of Home Assistant that has this package."""
    assert f'url: "{setup["address"]}"' in setup["file"]
    gps = {"gps": [47.1, 9.5], "gps_accuracy": 5}
    return {"url": setup["address"], "json": {"type": "update_location", "data": gps}}


@pytest.mark.parametrize(
    ("app", "request_of"),
    [
        *(("owntracks_http", owntracks), ("overland", overland), ("traccar", traccar)),
        *(("gpslogger", gpslogger), ("home_assistant", home_assistant), ("colota", colota)),
    ],
)
async def test_an_app_sends_with_its_setup_until_it_is_revoked(
    gateway: Gateway, app: str, request_of: Any
) -> None:
    login = gateway.user(app)
    given = await made(gateway, login, " my phone ", app)
    device = f"{app}/my_phone"
    assert given["device"] == device
    assert given["setup"]["app"] == app
    assert given["setup"].get("qr_code", "<svg").startswith(("<?xml", "<svg"))
    request = {"method": "POST", **request_of(given["setup"])}

    async def status() -> int:
        async with aiohttp.ClientSession() as phone, phone.request(**request) as answer:
            return answer.status

    assert await status() == 200
    async with gateway.client(login) as client:

        async def known() -> Any:
            async with client.get(f"/v1/devices/{app}%2Fmy_phone") as answer:
                return await answer.json()

        await answered(known, lambda found: found.get("fix", {}).get("lat") == 47.1)
        before = time.time_ns() // 1_000_000
        async with client.get(TOKENS) as answer:
            [row] = await json_of(answer)
        assert (row["device"], row["tokens"]) == (device, 1)
        assert before - 600_000 < row["newest"] <= before
        async with client.delete(f"{TOKENS}/my_phone") as answer:
            assert answer.status == 204
        async with client.get(TOKENS) as answer:
            assert await json_of(answer) == []
        async with client.delete(f"{TOKENS}/my_phone") as answer:
            assert "has no token" in (await json_of(answer, 404))["error"]
    refused = 410 if app == "home_assistant" else 401
    await answered(status, lambda found: found == refused)


async def test_owntracks_over_mqtt_is_led_to_the_listener(gateway: Gateway) -> None:
    login = gateway.user("mia")
    gateway.users.rights.set_encryption_key("mia", "00" * 32)
    given = await made(gateway, login, "phone", "owntracks_mqtt")
    settings = owntracks_settings(given["setup"]["link"])
    ready = re.search(r"gateway ready http=\S+ mqtt=([^:\s]+):(\d+)", gateway.process.output)
    assert ready is not None
    assert (settings["host"], settings["port"]) == (ready[1], int(ready[2]))
    assert settings["tls"] is False
    assert settings["encryptionKey"] == "00" * 32
    credential = gateway.users.credential_of_token(settings["password"])
    assert credential is not None
    assert (credential.user, credential.device) == ("mia", "phone")


async def test_who_may_not(gateway: Gateway) -> None:
    owner = gateway.user("nora")
    given = await made(gateway, owner, "phone", "traccar")
    operator = Login("_operator", gateway.users.add_token(gateway.users.ensure_operator()))
    for login, reason in (
        (Login("nora", given["token"]), "a token of one device"),
        (operator, "devices belong to users"),
    ):
        async with gateway.client(login) as client:
            for method, path in (("GET", TOKENS), ("POST", TOKENS), ("DELETE", f"{TOKENS}/phone")):
                async with client.request(method, path) as answer:
                    assert reason in (await json_of(answer, 403))["error"]
    async with (
        gateway.client(gateway.user("omar")) as client,
        client.delete(f"{TOKENS}/phone") as answer,
    ):
        assert answer.status == 404  # omar's own, which does not exist
    async with gateway.client(owner) as client, client.get(TOKENS) as answer:
        assert len(await json_of(answer)) == 1


async def test_a_page_of_another_site_makes_no_token(gateway: Gateway) -> None:
    login = gateway.user("pia")
    asked = {"name": "phone", "app": "overland"}
    async with gateway.client() as browser:
        signed_in = {"user": login.name, "token": login.token}
        async with browser.post("/v1/session", json=signed_in) as answer:
            cookie = answer.headers["Set-Cookie"].partition(";")[0]
        for origin, status in ((gateway.url, 201), ("http://evil.example", 403), (None, 403)):
            headers = {"Cookie": cookie} | ({"Origin": origin} if origin else {})
            async with browser.post(TOKENS, json=asked, headers=headers) as answer:
                assert answer.status == status


@pytest.mark.parametrize(
    ("user", "asked", "reason"),
    [
        ("blank", {"name": "  ", "app": "traccar"}, "name must have"),
        ("long", {"name": "x" * 129, "app": "traccar"}, "name must have"),
        ("unknown", {"name": "phone", "app": "nokia"}, "app must be one of"),
        ("none", {"name": "phone"}, "not a device with its app"),
    ],
)
async def test_what_is_asked_wrongly(
    gateway: Gateway, user: str, asked: dict[str, str], reason: str
) -> None:
    login = gateway.user(user)
    async with gateway.client(login) as client:
        async with client.post(TOKENS, json=asked) as answer:
            assert reason in (await json_of(answer, 400))["error"]
        async with client.get(TOKENS) as answer:
            assert await json_of(answer) == []


async def test_without_mqtt_there_is_no_setup_for_it(
    gateway_broker: Broker, tmp_path: Path
) -> None:
    gateway = Gateway(tmp_path, gateway_broker.address)
    try:
        login = gateway.user("rosa")
        async with gateway.client(login) as client:
            asked = {"name": "phone", "app": "owntracks_mqtt"}
            async with client.post(TOKENS, json=asked) as answer:
                assert "no MQTT" in (await json_of(answer, 409))["error"]
            async with client.get(TOKENS) as answer:
                assert await json_of(answer) == []
    finally:
        gateway.close()


def test_every_app_has_its_test() -> None:
    tested = {"owntracks_mqtt", "owntracks_http", "overland", "traccar", "gpslogger"}
    assert set(SETUPS) == tested | {"home_assistant", "colota"}
