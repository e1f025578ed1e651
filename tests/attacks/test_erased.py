"""An attacker reads the whole data folder after an erasure, and searches it for the erased user.

All features are on: sealed values, MQTT with retained messages and a session with waiting messages,
OwnTracks' encrypted payloads, events, waypoints, refused messages, a rule that maps MQTT to the
log, history, places and their names.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import threading
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paho.mqtt.client as mqtt
import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient
from paho.mqtt.enums import CallbackAPIVersion
from pyarrow import parquet

from gateway.formats.secretbox import encrypt
from tests.consumers.running import await_condition
from tests.end_to_end.running import WAYLOG, Platform
from waylog.history.row_layout import stored_degrees
from waylog.kafka.ranges.topic_reader import read_topic
from waylog.kafka.topics import MQTT_STATE, VALUE_KEY
from waylog.sealing.sealing import MAGIC
from waylog.sealing.value_encryption import load_master_key
from waylog.sealing.value_keys import KeyRing

HOME, WORK = (47.1410137, 9.5215793), (47.1655319, 9.5104523)
WORDS = {
    "waypoint": "Grandmothers-Hut-7731",
    "region": "Secret-Region-5521",
    "note": "Mapped-Note-8842",
    "refused": "Refused-Payload-3391",
    "attribute": "Private-Attribute-6614",
    "stranger": "Wrong-Password-2217",
    "place": "Hidden-Cabin-9915",
}
DAY_S = 86_400


def traces(ids: list[str]) -> list[bytes]:
    """Return what must not be found: words, ids, and coordinates as text and as numbers."""
    found = [word.encode() for word in WORDS.values()]
    # Base64 of a word at each of the three offsets at which it may begin.
    for word in WORDS.values():
        for shift in range(3):
            found.append(b64encode(b"\0" * shift + word.encode())[4:-4])
    for degrees in (*HOME, *WORK):
        found.append(repr(degrees).encode())
        found += [struct.pack(order + "d", degrees) for order in "<>"]
        units = round(degrees * 1e7)
        found += [struct.pack(order + "i", units) for order in "<>"]
        # As the history has it.
        found.append(stored_degrees(np.array([units], np.int32)).tobytes())
    return found + [each.encode() for each in ids[:3]]


def files_with(folder: Path, wanted: list[bytes], without: tuple[str, ...] = ()) -> list[str]:
    """Return the files below a folder that contain any of these bytes, with the bytes."""
    found = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and name.parts[0] not in without:
            content = path.read_bytes()
            found += [f"{name}: {each!r}" for each in wanted if each in content]
    return found


def open_to_others(folder: Path) -> list[str]:
    return [
        str(path)
        for path in [folder, *folder.rglob("*")]
        if not path.is_symlink() and path.lstat().st_mode & 0o077
    ]


def values_of(servers: str, master: Path, wanted: list[bytes]) -> list[str]:
    """Return the topics with a value that contains any of these bytes, after unsealing."""
    ring = KeyRing(servers, load_master_key(master))
    found = []
    try:
        for topic in AdminClient({"bootstrap.servers": servers}).list_topics(timeout=60).topics:
            if topic.startswith("__"):
                continue
            records: list[Message] = list(read_topic(servers, topic))
            for message in ring.open_messages(records):
                content = (message.key() or b"") + b" " + (message.value() or b"")
                found += [f"{topic}: {each!r}" for each in wanted if each in content]
    finally:
        ring.close()
    return sorted(set(found))


class Anna:
    """A user, and everything that it does here."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.token = platform.add_user("anna").read_text(encoding="utf-8").strip()
        words = ("user", "key", "anna", "--users", str(platform.data / "users.db"))
        self.key = platform.waylog(*words).split()[-1]

    def post(self, path: str, body: Any, token: str | None = None) -> bytes:
        login = b64encode(f"anna:{token or self.token}".encode()).decode()
        request = urllib.request.Request(
            self.platform.url + path,
            json.dumps(body).encode(),
            {"Authorization": f"Basic {login}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            content: bytes = answer.read()
            return content

    def send_positions(self) -> list[str]:
        """Send ten days of positions, with the nights at home; return the ids of the fixes."""
        begin = int(time.time()) // DAY_S * DAY_S - 10 * DAY_S
        fixes = []
        for moment in range(begin, begin + 10 * DAY_S, 900):
            lat, lon = WORK if 8 <= moment % DAY_S // 3600 < 17 else HOME
            fix = {"lat": lat, "lon": lon, "time": moment * 1000, "device": "phone", "accuracy": 5}
            fixes.append(fix | {"attributes": {"said": WORDS["attribute"]}})
        ids: list[str] = json.loads(self.post("/v1/positions", fixes))["ids"]
        return ids

    def be_refused(self) -> None:
        with pytest.raises(urllib.error.HTTPError) as refusal:
            self.post("/v1/positions", {"lat": HOME[0], "name": WORDS["stranger"]}, "wrong")
        refusal.value.close()

    def mqtt(self, name: str) -> mqtt.Client:
        client = mqtt.Client(CallbackAPIVersion.VERSION2, name, clean_session=name != "tablet")
        client.username_pw_set("anna", self.token)
        connected = threading.Event()
        client.on_connect = lambda *_: connected.set()
        host, _, port = self.platform.mqtt.rpartition(":")
        client.connect(host, int(port))
        client.loop_start()
        assert connected.wait(60)
        return client

    def leave_a_session(self) -> None:
        tablet = self.mqtt("tablet")
        subscribed = threading.Event()
        tablet.on_subscribe = lambda *_: subscribed.set()
        tablet.subscribe([("owntracks/anna/#", 1), ("devices/anna/#", 1)])
        assert subscribed.wait(60)
        tablet.disconnect()
        tablet.loop_stop()

    def publish(self) -> None:
        phone = self.mqtt("phone")
        place = {"lat": HOME[0], "lon": HOME[1], "tst": int(time.time()) - 60}
        fix = json.dumps({"_type": "location", "tid": "an", "acc": 5, **place})
        waypoint = {"_type": "waypoint", "desc": WORDS["waypoint"], "rad": 50, **place}
        region = {"_type": "transition", "event": "enter", "desc": WORDS["region"], "acc": 5}
        base = "owntracks/anna/phone"
        for topic, payload in (
            (base, {"_type": "encrypted", "data": encrypt(fix.encode(), self.key)}),
            (base + "/waypoint", waypoint),
            (base + "/waypoints", {"_type": "waypoints", "waypoints": [waypoint]}),
            (base + "/event", region | place | {"wtst": place["tst"]}),
            ("devices/anna/phone/note", {"text": WORDS["note"], **place}),
            (base, {"_type": "location", "lat": WORDS["refused"], "lon": HOME[1]}),
        ):
            phone.publish(topic, json.dumps(payload), qos=1, retain=True).wait_for_publish(60)
        phone.disconnect()
        phone.loop_stop()


def test_nobody_finds_anything_of_who_was_erased(
    platform_starter: Callable[..., Platform],
) -> None:
    options = (
        *("--no-history", "--encrypt-values"),
        "--gateway-options=--mqtt-map devices/+/+/note=notes",
    )
    platform = platform_starter(*options)
    data, master = platform.data, platform.data / "master.key"
    history, places = data / "history", data / "places"
    anna = Anna(platform)
    anna.leave_a_session()
    ids = anna.send_positions()
    anna.publish()
    anna.be_refused()
    wanted = traces(ids)

    def job(*words: str) -> str:
        done = subprocess.run(
            [*WAYLOG, *words, "--bootstrap-servers", platform.kafka],
            capture_output=True, text=True, timeout=120, check=False,
            env=os.environ | {"WAYLOG_MASTER_KEY": str(master)},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    where = ("--out", str(history), "--places", str(places))
    job("history", "run", "--once", "--engine", "arrow", *where)
    rows = parquet.read_table(places / "places.parquet").to_pylist()
    assert {row["label"] for row in rows} >= {"home", "work"}
    name = ("anna/phone", rows[0]["place_id"], WORDS["place"], "--places", str(places))
    job("places", "name", *name)
    await_condition(lambda: values_of(platform.kafka, master, [b"display_name"]), 60, "an address")

    # Sealed values are sealed in every topic and file; Parquet is plain until it is rewritten.
    plain = ("history", "places")
    assert files_with(data, wanted, plain) == []
    for topic in ("location", "address", "event", "error", "place", "place-edit", "notes"):
        values = [message.value() for message in read_topic(platform.kafka, topic)]
        assert values, topic
        assert all(value is None or value.startswith(MAGIC) for value in values), topic
    # An orderly stop writes the messages that wait for the tablet.
    platform.stop()
    platform = platform_starter(*options)
    words = [word.encode() for word in WORDS.values()]
    readable = values_of(platform.kafka, master, [*words, b'"waiting":[{'])
    assert {each.partition(":")[0] for each in readable} >= {"location", "event", MQTT_STATE}
    assert any("waiting" in each for each in readable)

    platform.waylog("user", "revoke", "anna", "--users", str(data / "users.db"))
    report = json.loads(
        job("history", "erase", "--user", "anna", "--yes", "--patience", "60", "--json", *where)
    )
    assert report["devices"] == ["anna/phone"]
    assert report["rows"] == len(ids) + 1
    assert report["places"] >= 2
    assert report["keys_gone"]
    assert report["tombstones"]["mqtt-state"] >= 3
    assert open_to_others(data) == []

    platform.stop()
    # The running gateway had everything in memory, but has written nothing of it at its end.
    assert files_with(data, wanted) == []
    for path in [*history.rglob("*.parquet"), *places.rglob("*.parquet")]:
        assert "anna/phone" not in parquet.read_table(path)["device"].to_pylist()
    platform = platform_starter(*options)
    assert values_of(platform.kafka, master, wanted) == []
    assert not any(
        (message.key() or b"").startswith(b"anna") and message.value()
        for message in read_topic(platform.kafka, VALUE_KEY)
    )
