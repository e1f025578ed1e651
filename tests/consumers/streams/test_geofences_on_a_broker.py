"""Geofences from their command to topic `event`, and topologies out of a file."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.consumers.running import WAYLOG, Broker, Process, await_condition
from tests.consumers.streams.geofences.test_geofences import at, transitions
from tests.consumers.streams.harness import make_fix
from tests.consumers.streams.test_topologies_on_a_broker import Reader, reader
from waylog.kafka.clients import producer_config
from waylog.kafka.topics import EVENT, GEOFENCE, LOCATION
from waylog.messages import Fix, encode

__all__ = ["reader"]

StartTopology = Callable[..., Process]
OpenReader = Callable[[str], Reader]


def send(servers: str, *fixes: Fix) -> None:
    producer = Producer(producer_config(servers, "phone"))
    for fix in fixes:
        producer.produce(LOCATION, encode(fix), fix.device.encode())
    assert producer.flush(60) == 0


def geofences(broker: Broker, *words: Any, status: int = 0) -> str:
    """Run `waylog streams geofences`; return what it has printed."""
    command = [*WAYLOG, "streams", "geofences", *map(str, words)]
    done = subprocess.run(
        [*command, "--bootstrap-servers", broker.address],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def feature(name: str | None, geometry: dict[str, Any], **properties: Any) -> dict[str, Any]:
    named = {} if name is None else {"name": name}
    return {"type": "Feature", "geometry": geometry, "properties": named | properties}


def test_geofences_are_added_followed_listed_and_removed(
    broker: Broker, start_topology: StartTopology, reader: OpenReader, tmp_path: Path
) -> None:
    geofences(broker, "add", "home", "--user", "ann", "--circle", "47,9,100", "--dwell", 60)
    start_topology("geofences")
    send(broker.address, at(0, 5), at(10, 0), at(80, 0))
    found = reader(EVENT)
    expected = [("enter", "home", 10), ("dwell", "home", 80)]
    await_condition(lambda: events(found) == expected, 60, "enter and dwell")
    # A running topology follows the definitions.
    fences = tmp_path / "fences.geojson"
    line = {"type": "LineString", "coordinates": [[9, 46.99], [9, 47.0]]}
    point = {"type": "Point", "coordinates": [9, 47]}
    fences.write_text(json.dumps({"type": "FeatureCollection", "features": [
        feature("route", line, width=60, devices=["phone"]), feature("zoo", point, radius=70),
    ]}))  # fmt: skip
    assert "2 geofences are right" in geofences(
        broker, "import", fences, "--everybody", "--dry-run"
    )
    geofences(broker, "import", fences, "--user", "ann")
    geofences(broker, "remove", "home", "--user", "ann")
    listed = geofences(broker, "list", "--user", "ann", "--json").splitlines()
    assert [(row["name"], row["shape"]) for row in map(json.loads, listed)] == [
        *[("route", "corridor 60 m"), ("zoo", "circle 47,9 70 m")],
    ]
    seconds = iter(range(100, 1000))

    def has_followed() -> bool:
        send(broker.address, at(next(seconds), 0))
        return len(events(found)) >= 4

    await_condition(has_followed, 60, "events of the new fences")
    assert sorted(fence for _, fence, _ in events(found)[2:]) == ["route", "zoo"]


def events(found: Reader) -> list[tuple[str, str, float]]:
    class Output:
        def __init__(self, value: bytes) -> None:
            self.topic, self.value = EVENT, value

    return transitions(Output(record.value()) for record in found.read())


def test_mistakes_are_named(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "fences.geojson"
    polygon = {"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [0, 1], [1, 0], [0, 0]]]}
    point = {"type": "Point", "coordinates": [9, 47]}
    for features, message in (
        ([feature(None, point, radius=5)], r"features[0]: properties.name: a text is expected"),
        ([feature("a", point)], r"features[0]: properties.radius: metres are expected"),
        ([feature("a", point, radius="x")], "features[0]: Expected `float`"),
        ([feature("a", point, radius=5)] * 2, "features[1]: properties.name: there are two"),
        ([feature("a", polygon)], "features[0]: polygon: ring self-intersection"),
        ([3], "features[0]: type: Feature is expected"),
        (3, "features: an array is expected"),
    ):
        path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
        said = geofences(broker, "import", path, "--user", "ann", status=1)
        assert f"{path}: {message}" in said
    path.write_text("no JSON")
    assert "is no JSON" in geofences(broker, "import", path, "--user", "ann", status=1)
    for words, message in (
        (["add", "a", "--user", "ann", "--circle", "1,2"], "LAT,LON,RADIUS is expected"),
        (["add", "a", "--user", "a/b", "--circle", "1,2,3"], "without a slash"),
        (["add", "a", "--user", "ann", "--circle", "91,2,3"], "$.circle.lat"),
        (["add", "a", "--user", "ann", "--corridor", path], "go together"),
        (["remove", "a", "--user", "ann"], "there is no geofence a"),
    ):
        status = 2 if "is expected" in message or "together" in message else 1
        assert message in geofences(broker, *words, status=status)


def test_a_record_that_is_no_geofence_stops_nobody(
    broker: Broker, start_topology: StartTopology, reader: OpenReader
) -> None:
    geofences(broker, "add", "home", "--everybody", "--circle", "47,9,100")
    producer = Producer(producer_config(broker.address, "odd"))
    for value in (b"", b"{", b'{"circle":{"lat":1e999}}', b"[" * 3000, b"\xff"):
        for key in (b"ann/odd", b"\xff\xfe", b"", None, b"odd"):
            producer.produce(GEOFENCE, value, key)
    assert producer.flush(60) == 0
    start_topology("geofences")
    send(broker.address, at(0, 0))
    found = reader(EVENT)
    await_condition(lambda: events(found) == [("enter", "home", 0)], 60, "the event")


def test_records_that_are_refused_are_named_in_the_log_and_listed_as_wrong(
    broker: Broker, start_topology: StartTopology
) -> None:
    ring = [[0, 0], [1, 1], [0, 1], [1, 0], [0, 0]]
    refused = {
        # Found where the record is read, and where a shape is made of it.
        "far": (b'{"circle":{"lat":91,"lon":9,"radius":5}}', "definition", r"\$\.circle\.lat"),
        "torn": (b'{"circle":', "definition", "Input data was truncated"),
        "bow": (
            json.dumps({"polygon": {"type": "Polygon", "coordinates": [ring]}}).encode(),
            *("geofence", "polygon: ring self-intersection"),
        ),
    }
    producer = Producer(producer_config(broker.address, "odd"))

    def append(prefix: str) -> None:
        for name, (value, _, _) in refused.items():
            producer.produce(GEOFENCE, value, f"ann/{prefix}{name}".encode())
        assert producer.flush(60) == 0

    def await_named(prefix: str) -> None:
        for name, (_, what, reason) in refused.items():
            line = rf"topic geofence is no {what}: key 'ann/{prefix}{name}': .*{reason}"
            await_condition(lambda: re.search(line, topology.output), 60, line)  # noqa: B023

    geofences(broker, "add", "home", "--user", "ann", "--circle", "47,9,100")
    append("")
    topology = start_topology("geofences")
    await_named("")
    append("late-")
    await_named("late-")
    listed = geofences(broker, "list", "--user", "ann", "--json").splitlines()
    shapes = {row["name"]: row["shape"] for row in map(json.loads, listed)}
    assert shapes.pop("home") == "circle 47,9 100 m"
    assert shapes.keys() == {f"{prefix}{name}" for prefix in ("", "late-") for name in refused}
    for name, shape in shapes.items():
        assert re.match(f"wrong: .*{refused[name.removeprefix('late-')][2]}", shape), shape


MODULE = """
from consumers.streams.builder import stream
from waylog.messages import Fix

topology = (
    stream("fixes-by-user", "location", Fix)
    .filter(lambda fix: fix.speed is None or fix.speed < 100)
    .group_by(lambda fix: fix.user)
    .aggregate(lambda: 0, lambda so_far, fix: so_far + 1, int)
    .to("fixes-by-user")
)
"""


def test_a_topology_of_a_file_runs_in_two_processors(
    broker: Broker, start_topology: StartTopology, reader: OpenReader, tmp_path: Path
) -> None:
    path = tmp_path / "by_user.py"
    path.write_text(MODULE)
    command = [*WAYLOG, "topics", "create", "fixes-by-user", "--bootstrap-servers", broker.address]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    guarantee = ["--processing-guarantee", "exactly_once_v2"]
    topology = start_topology("--module", path, *guarantee)
    devices = ["ann/phone", "ann/car", "bob/phone"]
    send(broker.address, *(make_fix(i, device=devices[i % 3]) for i in range(90)))
    found = reader("fixes-by-user")

    def counts() -> dict[bytes, bytes]:
        return {record.key(): record.value() for record in found.read()}

    await_condition(lambda: counts() == {b"ann": b"60", b"bob": b"30"}, 60, "the counts")
    assert topology.stop() == 0
    start_topology("--module", path, *guarantee)
    send(broker.address, make_fix(100, device="bob/phone"))
    await_condition(lambda: counts() == {b"ann": b"60", b"bob": b"31"}, 60, "the counts")
