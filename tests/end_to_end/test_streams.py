"""Topologies of `waylog up --streams`: under the supervisor, and from a fix to a notice."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from tests.consumers.running import await_condition
from tests.end_to_end.running import Platform
from waylog.kafka.ranges.topic_reader import read_topic
from waylog.kafka.topics import EVENT, FRIENDSHIP
from waylog.messages import decode_event
from waylog.observability.telemetry import now_ms

FENCE = (47.0, 9.0)
OUTSIDE = (47.5, 9.5)


class Phone:
    """The phone of the user demo, which sends as OwnTracks' app does over HTTP."""

    def __init__(self, platform: Platform) -> None:
        self._url = f"{platform.url}/owntracks?u=demo&d=phone"
        credentials = base64.b64encode(f"demo:{platform.demo_token}".encode()).decode()
        self._headers = {"Authorization": f"Basic {credentials}"}
        self.told: list[dict[str, Any]] = []

    def send(self, at: tuple[float, float], time_s: float) -> None:
        fix = {"_type": "location", "lat": at[0], "lon": at[1], "tst": int(time_s), "acc": 5}
        request = urllib.request.Request(self._url, json.dumps(fix).encode(), self._headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            self.told += json.loads(answer.read())

    def regions(self) -> list[tuple[str, str]]:
        """Return the ways into regions, and out of them, of which the phone was told."""
        return [
            (each["event"], each["desc"]) for each in self.told if each["_type"] == "transition"
        ]


@pytest.mark.timeout(300)
def test_a_fix_in_a_geofence_is_a_notice_also_after_its_topology_was_killed(
    platform_starter: Callable[..., Platform],
) -> None:
    platform = platform_starter("--no-history", "--streams", "geofences,meetings")
    circle = f"{FENCE[0]},{FENCE[1]},300"
    platform.waylog(
        *("streams", "geofences", "add", "office", "--user", "demo", "--circle", circle),
        *("--bootstrap-servers", platform.kafka),
    )
    state = platform.processes()["streams"]
    assert state["ready"]
    assert state["argv"][-2:] == ["--bootstrap-servers", platform.kafka]
    phone = Phone(platform)
    begin = now_ms() / 1000 - 600
    sent = 0

    def goes(at: tuple[float, float], told: int) -> Callable[[], bool]:
        def is_told() -> bool:
            nonlocal sent
            sent += 1
            phone.send(at, begin + sent)
            return len(phone.regions()) >= told

        return is_told

    await_condition(goes(FENCE, 1), 60, "the way into the fence")
    platform.kill("streams")
    await_condition(goes(OUTSIDE, 2), 60, "the way out of it")
    platform.kill("gateway-1")
    await_condition(goes(FENCE, 3), 60, "the way in again")
    for _ in range(3):
        goes(FENCE, 0)()
    assert phone.regions() == [("enter", "office"), ("leave", "office"), ("enter", "office")]
    events = [decode_event(each.value() or b"") for each in read_topic(platform.kafka, EVENT)]
    assert {each.device for each in events if each.source == "streams"} == {"demo/phone"}
    assert b"streams" in (platform.data / "logs" / "streams.log").read_bytes()
    # The topology that needs friends gets them from the gateway.
    platform.add_user("ann")
    users = ("--users", str(platform.data / "users.db"))
    platform.waylog("user", "friend", "demo", "ann", *users)
    await_condition(
        lambda: [each.key() for each in read_topic(platform.kafka, FRIENDSHIP)] == [b"demo\nann"],
        60, "the friendship",
    )  # fmt: skip
