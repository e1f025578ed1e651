from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from tests.load_tests.mqtt_acceptor import MqttAcceptor, mqtt_acceptor
from waylog.cli import main
from waylog.messages import fix_id


def track(folder: Path, rows: int = 10) -> Path:
    path = folder / "walk.csv"
    lines = "".join(f"{1748772000 + index},47.{index},9.5\n" for index in range(rows))
    path.write_text("time,lat,lon\n" + lines)
    return path


async def replay(acceptor: MqttAcceptor, *arguments: str) -> int:
    words = ["replay", "--via", "mqtt", "--mqtt", f"127.0.0.1:{acceptor.port}", *arguments]
    return await asyncio.to_thread(main, words)


async def test_every_acknowledged_fix_is_written_with_its_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    account = tmp_path / "acknowledged"
    async with mqtt_acceptor() as acceptor:
        status = await replay(
            acceptor, str(track(tmp_path)), "--json", "--acknowledged", str(account)
        )
    assert status == 0
    result = msgspec.json.decode(capsys.readouterr().out)
    assert result["sent"] == result["acknowledged"] == 10
    lines = [msgspec.json.decode(line) for line in account.read_bytes().splitlines()]
    assert lines[3] == {
        "device": "demo/walk",
        "time": 1748772003000,
        "lat": 47.3,
        "lon": 9.5,
        "id": fix_id("demo/walk", 1748772003000, 47.3, 9.5),
    }


async def test_the_demo_users_token_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "demo.token").write_text("s3cret\n")
    monkeypatch.setenv("WAYLOG_DATA", str(tmp_path))
    async with mqtt_acceptor() as acceptor:
        assert await replay(acceptor, str(track(tmp_path)), "--limit", "1") == 0
        assert (acceptor.users, acceptor.passwords) == (["demo"], ["s3cret"])
        assert len(acceptor.received) == 1


async def test_silence_ends_the_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with mqtt_acceptor() as acceptor:
        acceptor.acknowledge = lambda _: False
        assert await replay(acceptor, str(track(tmp_path)), "--patience", "0.3") == 1
    assert "waylog replay: no answer for" in capsys.readouterr().err


def test_a_format_that_does_not_go_this_way_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["replay", "--via", "mqtt", "--format", "overland", str(track(tmp_path))]
    assert main(words) == 2
    assert "only owntracks or positions" in capsys.readouterr().err


def test_a_file_without_any_fix_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(track(tmp_path, rows=0))]) == 1
    assert "no fix with a place and a time" in capsys.readouterr().err


async def test_what_stands_before_a_cut_is_sent_and_the_cut_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    point = '<trkpt lat="1" lon="{}"><time>2025-01-01T00:00:00Z</time></trkpt>\n'
    gpx = "<gpx><trk><trkseg>" + "".join(point.format(lon) for lon in range(10)) + '<trkpt lat="1'
    geojson = (
        '{"type":"FeatureCollection","features":[{"type":"Feature","geometry":{"type":"Point",'
        '"coordinates":[9.5,47.1]},"properties":{"timestamp":1748772000}},{"type":"Fea'
    )
    for name, text, count in (("cut.gpx", gpx, 10), ("cut.geojson", geojson, 1)):
        (tmp_path / name).write_text(text)
        async with mqtt_acceptor() as acceptor:
            # A whole file behind the damaged one is sent, too.
            files = (str(tmp_path / name), str(track(tmp_path)))
            assert await replay(acceptor, *files, "--json") == 1
        said = capsys.readouterr()
        assert msgspec.json.decode(said.out)["acknowledged"] == count + 10
        assert f"what follows could not be read: {tmp_path / name}: " in said.err


async def test_reasons_that_did_not_occur_are_not_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "walk.kml"
    path.write_text(
        "<kml><Placemark><TimeStamp><when>2025-06-01T10:00:00Z</when></TimeStamp>"
        "<Point><coordinates>9.5,47.1</coordinates></Point></Placemark></kml>"
    )
    async with mqtt_acceptor() as acceptor:
        assert await replay(acceptor, str(path), "--json") == 0
    assert msgspec.json.decode(capsys.readouterr().out)["skipped"] == {}
