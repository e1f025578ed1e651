"""`waylog up` with an index of streets: addresses with house numbers, and an index update."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from geoservice.importer.build import build_index
from tests.consumers.running import await_condition
from tests.end_to_end.running import Platform
from tests.geoservice.small_extract import SOUTH, STEP, WEST, write_extract

HOUSE = (SOUTH + 1.5e-4, WEST + 0.5 * STEP)


def ask(platform: Platform, path: str, body: bytes | None = None) -> Any:
    request = urllib.request.Request(platform.url + path, body)
    request.add_header("Authorization", f"Bearer {platform.demo_token}")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def build(path: Path, town: str) -> None:
    write_extract(path.with_suffix(".osm.pbf"), town=town)
    build_index([path.with_suffix(".osm.pbf")], path)


def test_a_device_is_told_its_house_and_what_a_new_index_says(
    platform_starter: Callable[..., Platform], tmp_path: Path
) -> None:
    index = tmp_path / "small.geo"
    build(index, "Musterstadt")
    platform = platform_starter("--no-history", "--geo", str(index), "--resolver-options=--renew")
    fix = {"device": "phone", "lat": HOUSE[0], "lon": HOUSE[1], "time": 1_780_000_000_000}
    assert ask(platform, "/v1/positions", json.dumps(fix).encode())["accepted"] == 1

    def address() -> dict[str, Any]:
        try:
            found: dict[str, Any] = ask(platform, "/v1/devices/demo%2Fphone/address")
        except urllib.error.HTTPError as error:
            error.close()
            return {"address": {}}
        return found

    await_condition(lambda: "road" in address()["address"], 60, "the address of the fix")
    told = address()
    assert told["display_name"].startswith("1, 0. Querstraße, ")
    assert told["address"]["house_number"] == "1"
    assert told["address"]["town"] == "Musterstadt"
    asked = ask(platform, f"/reverse?lat={HOUSE[0]}&lon={HOUSE[1]}&format=jsonv2")
    assert (asked["address"], asked["index_version"]) == (told["address"], told["index_version"])

    # The town gets another name; the device, which sends nothing, gets the new address.
    build(index, "Neustadt")
    await_condition(lambda: address()["address"].get("town") == "Neustadt", 60, "the new address")
    assert address()["fix_id"] == told["fix_id"]
    assert address()["index_version"] != told["index_version"]
    await_condition(
        lambda: ask(platform, "/status?format=json")["index_version"] != asked["index_version"],
        60,
        "the geocoder's new index",
    )
