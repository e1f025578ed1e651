"""GPX and GeoJSON files: whole at any moment, each position once and in order."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from datetime import UTC
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import gpxpy
import pytest

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.data.exceptions import ConnectException, DataException
from consumers.connect.formats.track_file import add_lines, locked, read_lines
from consumers.connect.formats.track_file_sink import TrackFileSinkConnector
from consumers.connect.formats.track_file_task import FORMATS, TrackFileSinkTask
from consumers.connect.formats.track_paths import TrackPaths
from consumers.connect.plugins.registry import ConnectorRegistry
from tests.consumers.connect.sink_harness import Reporter, fix, record, run_task

DAY_MS = 86_400_000


def next_day() -> dict[str, Any]:
    return fix(9, time=fix(0)["time"] + DAY_MS)


class Sink:
    """A task that runs."""

    def __init__(self, directory: Path, **more: str) -> None:
        self.directory = directory
        self.reporter = Reporter()
        self.task = TrackFileSinkTask()
        connector = TrackFileSinkConnector()
        connector.start(
            {
                "directory": str(directory),
                **{name.replace("_", "."): value for name, value in more.items()},
            }
        )
        (properties,) = connector.task_configs(1)
        self.context = run_task(self.task, properties, self.reporter)

    def write(self, *values: Any, **more: Any) -> None:
        self.task.put([record(value, **more) for value in values])
        self.task.flush({})

    def files(self) -> list[str]:
        return sink_files(self.directory)


def sink_files(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*.*"))


def gpx_points(path: Path) -> list[Any]:
    with path.open() as file:
        (track,) = gpxpy.parse(file).tracks
    (segment,) = track.segments
    return list(segment.points)


def features(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["features"]
    return found


def test_a_device_and_a_day_have_a_file(tmp_path: Path) -> None:
    sink = Sink(tmp_path)
    sink.write(fix(0), fix(0, "bert/bike"), fix(1), next_day())
    assert sink.files() == [
        "anna/phone/2025-11-01.gpx",
        "anna/phone/2025-11-02.gpx",
        "bert/bike/2025-11-01.gpx",
    ]
    points = gpx_points(tmp_path / "anna/phone/2025-11-01.gpx")
    assert [(each.latitude, each.longitude) for each in points] == [
        (47.1412, 9.5215),
        (47.141201, 9.521499),
    ]
    assert points[0].time.isoformat() == "2025-11-01T11:00:05+00:00"


def test_days_are_those_of_a_time_zone(tmp_path: Path) -> None:
    sink = Sink(tmp_path, timezone="Pacific/Auckland")
    sink.write(fix(0))
    assert sink.files() == ["anna/phone/2025-11-02.gpx"]


@pytest.mark.parametrize("name", FORMATS)
def test_everything_that_is_known_is_in_the_file(tmp_path: Path, name: str) -> None:
    known: dict[str, Any] = {
        "accuracy": 14.5,
        "altitude": 61.0,
        "vertical_accuracy": 3.0,
        "speed": 6.4,
        "course": 141.0,
        "battery": 72.0,
        "charging": True,
        "trigger": "a\nb<c>&\x01",
        "attributes": {"text": 'ä"\n</trkpt>', "list": [1, None]},
    }
    sink = Sink(tmp_path, format=name)
    sink.write(fix(0, **known))
    sink.write(fix(1))
    (path,) = tmp_path.rglob("*.*")
    if name == "geojson":
        first, second = features(path)
        assert first["geometry"] == {"type": "Point", "coordinates": [9.5215, 47.1412, 61.0]}
        assert first["id"] == fix(0)["id"]
        assert first["properties"] == {
            "device": "anna/phone",
            "time": "2025-11-01T11:00:05.000Z",
            **known,
        }
        assert second["geometry"]["coordinates"] == [fix(1)["lon"], fix(1)["lat"]]
        return
    texts = {
        each.tag.rpartition("}")[2]: each.text for each in ET.fromstring(path.read_text()).iter()
    }
    assert texts["speed"] == "6.4"
    assert texts["trigger"] == "a\nb<c>&\ufffd"
    assert json.loads(texts["attributes"] or "") == known["attributes"]
    assert len(gpx_points(path)) == 2


@pytest.mark.parametrize("name", FORMATS)
def test_what_comes_again_or_late_is_there_once_and_in_order(tmp_path: Path, name: str) -> None:
    sink = Sink(tmp_path, format=name)
    sink.write(*(fix(number) for number in (5, 3, 3)))
    sink.write(*(fix(number) for number in (1, 3, 5, 7)))
    nameless = {each: value for each, value in fix(6).items() if each != "id"}
    sink.write(nameless, nameless)
    sink.write(nameless)
    (path,) = tmp_path.rglob("*.*")
    lines = read_lines(path, FORMATS[name], "anna/phone")
    assert [int(each.time[-4:-1]) for each in lines] == [1, 3, 5, 6, 7]


@pytest.mark.parametrize("name", FORMATS)
def test_a_reader_always_finds_a_whole_file(tmp_path: Path, name: str) -> None:
    sink = Sink(tmp_path, format=name)
    sink.write(fix(0))
    (path,) = tmp_path.rglob("*.*")
    stop = threading.Event()
    seen: list[int] = []

    def read() -> None:
        while not stop.is_set():
            seen.append(len(read_lines(path, FORMATS[name], "anna/phone")))
            if name == "gpx":
                ET.fromstring(path.read_text())
            else:
                json.loads(path.read_text())

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(1, 60):
        sink.write(fix(number))
    stop.set()
    reader.join()
    assert seen == sorted(seen)
    assert len(gpx_points(path) if name == "gpx" else features(path)) == 60


def test_a_kill_leaves_the_file_as_it_was_or_as_it_will_be(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from tests.consumers.connect.formats.test_track_files import Sink
from tests.consumers.connect.sink_harness import fix
sink = Sink(Path({str(tmp_path)!r}))
number = 0
while True:
    sink.write(*(fix(number + each) for each in range(10)))
    number += 10
    print(number, flush=True)
"""
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        written = [int(process.stdout.readline()) for _ in range(5)][-1]
        process.kill()
        process.wait()
        process.stdout.close()
        points = gpx_points(tmp_path / "anna/phone/2025-11-01.gpx")
        assert len(points) >= written
        assert len(points) % 10 == 0


def test_records_that_are_no_positions_are_reported(tmp_path: Path) -> None:
    sink = Sink(tmp_path)
    sink.write(fix(0), {"no": 1}, fix(1, lat=95), fix(2, "x" * 300), fix(3, time=10**17), None)
    assert len(gpx_points(tmp_path / "anna/phone/2025-11-01.gpx")) == 1
    assert len(sink.reporter.reasons) == 5
    assert "the record is no position" in sink.reporter.reasons[0]
    assert "delete.enabled is false" in sink.reporter.reasons[-1]


def test_the_tombstone_of_an_erased_device_removes_its_files(tmp_path: Path) -> None:
    sink = Sink(tmp_path, delete_enabled="true")
    sink.write(fix(0), next_day(), fix(0, "anna/bike"))
    note = tmp_path / "anna/phone/note.txt"
    note.touch()
    sink.task.put([record(fix(2)), record(None, key="anna/phone"), record(None, key="ghost/x")])
    sink.task.flush({})
    assert sink.files() == ["anna/bike/2025-11-01.gpx", "anna/phone/note.txt"]


@pytest.mark.parametrize("form", ["gpx", "geojson"])
def test_an_erasure_removes_positions_until_its_time(tmp_path: Path, form: str) -> None:
    sink = Sink(tmp_path, format=form)
    erased_at = fix(1)["time"]
    sink.write(fix(0), fix(1), fix(2), fix(0, "anna/bike"), next_day())
    # Neither what is in files nor what waits for them stays.
    sink.task.put([record(fix(1) | {"id": "waits"}), record(fix(3))])
    sink.task.erase({"anna/phone": erased_at, "ghost/x": erased_at, "../../etc": erased_at})
    sink.task.flush({})
    names = [
        f"anna/{each}.{form}"
        for each in ("bike/2025-11-01", "phone/2025-11-01", "phone/2025-11-02")
    ]
    assert sink.files() == names
    lines = read_lines(tmp_path / names[1], FORMATS[form], "anna/phone")
    assert [each.id for each in lines] == [fix(2)["id"], fix(3)["id"]]
    sink.task.erase({"anna/phone": 2**63 - 1, "anna/bike": -(2**63)})
    assert sink.files() == names[:1]


@pytest.mark.parametrize(
    "device", ["../../etc", "..", "./..", "a/../../b", "a\0/b", "a/b/c", "/", ".", "a/.."]
)
def test_no_device_leads_out_of_the_folder(tmp_path: Path, device: str) -> None:
    paths = TrackPaths(tmp_path / "in", ".gpx", UTC)
    try:
        path = paths.file(device, 0)
    except DataException:
        return
    assert path.resolve().is_relative_to((tmp_path / "in").resolve())
    assert path.parent.resolve() != (tmp_path / "in").resolve()


@pytest.mark.parametrize("text", ["", "<gpx></gpx>", "cut"])
def test_a_file_of_somebody_else_is_not_touched(tmp_path: Path, text: str) -> None:
    sink = Sink(tmp_path)
    sink.write(fix(0))
    path = tmp_path / "anna/phone/2025-11-01.gpx"
    changed = path.read_text()[:-10] if text == "cut" else text
    path.write_text(changed)
    with pytest.raises(ConnectException, match="was not written by this connector"):
        sink.write(fix(1))
    assert path.read_text() == changed
    assert sink.files() == ["anna/phone/2025-11-01.gpx"]


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    code = f"""
import resource, signal
from pathlib import Path
from consumers.connect.data.exceptions import ConnectException
from tests.consumers.connect.formats.test_track_files import Sink
from tests.consumers.connect.sink_harness import fix
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sink = Sink(Path({str(tmp_path)!r}))
sink.write(fix(0))
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    sink.write(*map(fix, range(100)))
except ConnectException as error:
    print("File too large" in str(error))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
    assert len(gpx_points(tmp_path / "anna/phone/2025-11-01.gpx")) == 1
    assert sink_files(tmp_path) == ["anna/phone/2025-11-01.gpx"]


def test_two_tasks_add_to_the_same_file(tmp_path: Path) -> None:
    form = FORMATS["gpx"]
    path = tmp_path / "d" / "f.gpx"
    sinks = [Sink(tmp_path) for _ in range(4)]

    def write(number: int) -> None:
        for each in range(20):
            sinks[number].write(fix(number * 100 + each))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(gpx_points(tmp_path / "anna/phone/2025-11-01.gpx")) == 80
    with locked(path.parent):
        add_lines(path, form, "x", [])
    assert not path.exists()


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({}, 'Missing required configuration "directory"'),
        ({"directory": "x", "format": "kml"}, "must be one of: gpx, geojson"),
        ({"directory": "x", "timezone": "Mars/Base"}, "no such time zone"),
        ({"directory": "x", "timezone": "../../etc/passwd"}, "no such time zone"),
    ],
)
def test_what_is_wrong_is_told(properties: dict[str, str], reason: str) -> None:
    found = TrackFileSinkConnector().validate(properties)
    (text,) = [text for each in found.values() for text in each.errors]
    assert reason in text
    with pytest.raises(ConfigException):
        TrackFileSinkConnector().start(properties)


def test_the_connector_is_found_by_its_name() -> None:
    assert ConnectorRegistry().find("TrackFileSink").connector is TrackFileSinkConnector
