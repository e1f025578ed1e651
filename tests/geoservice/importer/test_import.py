"""`waylog geo import`: the index that it writes, and the files that it leaves."""

from __future__ import annotations

import fcntl
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from geoservice.importer.build import ImportFailed, build_index
from geoservice.importer.reading import SourceError
from geoservice.reverse.geocoder import Geocoder
from tests.geoservice.small_extract import SOUTH, STEP, WEST, write_extract
from waylog.cli import main


@pytest.fixture
def extract(tmp_path: Path) -> Path:
    path = tmp_path / "town.osm.pbf"
    write_extract(path)
    return path


def test_the_same_extract_gives_the_same_file(extract: Path, tmp_path: Path) -> None:
    first = build_index([extract], tmp_path / "a.geo")
    second = build_index([extract], tmp_path / "b.geo")
    assert first.version == second.version
    assert (tmp_path / "a.geo").read_bytes() == (tmp_path / "b.geo").read_bytes()


def test_overlapping_extracts_count_once(extract: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.osm.pbf"
    copy.write_bytes(extract.read_bytes())
    alone = build_index([extract], tmp_path / "a.geo")
    both = build_index([extract, copy], tmp_path / "b.geo")
    assert (alone.streets, alone.houses, alone.objects) == (both.streets, both.houses, both.objects)


def test_a_file_that_is_no_extract_is_refused(tmp_path: Path) -> None:
    bad = tmp_path / "bad.osm.pbf"
    bad.write_bytes(b"no extract at all" * 100)
    with pytest.raises(SourceError, match=r"bad\.osm\.pbf"):
        build_index([bad], tmp_path / "a.geo")
    with pytest.raises(SourceError, match="no such file"):
        build_index([tmp_path / "missing.osm.pbf"], tmp_path / "a.geo")
    assert list(tmp_path.iterdir()) == [bad]


def test_an_index_of_an_extract_without_streets_answers_from_the_world(tmp_path: Path) -> None:
    import osmium

    empty = tmp_path / "empty.osm.pbf"
    osmium.SimpleWriter(str(empty)).close()
    build_index([empty], tmp_path / "a.geo")
    result = Geocoder.open(tmp_path / "a.geo").reverse(47.141, 9.5209)
    assert result.address["country_code"] == "li"


def test_what_a_killed_import_left_is_removed(extract: Path, tmp_path: Path) -> None:
    work = tmp_path / "a.geo.import"
    work.mkdir()
    (work / "nodes").write_bytes(b"left")
    (tmp_path / "a.geo.123.new").write_bytes(b"left")
    build_index([extract], tmp_path / "a.geo")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.geo", "town.osm.pbf"]


def test_two_imports_to_one_file_do_not_mix(extract: Path, tmp_path: Path) -> None:
    work = tmp_path / "a.geo.import"
    work.mkdir()
    with (work / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ImportFailed, match="another import"):
            build_index([extract], tmp_path / "a.geo")


def test_a_failed_import_leaves_the_old_index(extract: Path, tmp_path: Path) -> None:
    index = tmp_path / "a.geo"
    build_index([extract], index)
    before = index.read_bytes()
    extract.write_bytes(extract.read_bytes()[:2000])
    with pytest.raises(SourceError):
        build_index([extract], index)
    assert index.read_bytes() == before


def test_the_command_says_what_it_built(
    extract: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = tmp_path / "a.geo"
    assert main(["geo", "import", str(extract), "-o", str(index), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["path"] == str(index)
    assert facts["streets"] > 10 and facts["houses"] > 50
    assert main(["geo", "reverse", f"{SOUTH + STEP}", f"{WEST + STEP}", "--index", str(index)]) == 0
    assert "1. Querstraße" in capsys.readouterr().out
    assert main(["geo", "import", str(tmp_path / "none.pbf"), "-o", str(index)]) == 1
    assert "no such file" in capsys.readouterr().err


def test_the_import_of_a_country_of_160_square_kilometres_stays_small(tmp_path: Path) -> None:
    shared = Path(__file__).parents[3] / "../shared/data/osm/liechtenstein-2021-05-05.osm.pbf"
    if not shared.exists():
        pytest.skip(f"{shared.name} is not here")
    program = (
        "import sys, pathlib; from geoservice.importer.build import build_index;"
        "build_index([pathlib.Path(sys.argv[1])], pathlib.Path(sys.argv[2]))"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    subprocess.run(
        [sys.executable, "-c", program, shared, tmp_path / "li.geo"],
        check=True,
        cwd=Path(__file__).parents[3],
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{cpu:.1f} s CPU, {time.monotonic() - started:.1f} s, {after.ru_maxrss // 1024} MB")
    # Some 6 s on an idle machine; cost that grows with the square of the objects would be hours.
    assert cpu < 60
    assert (tmp_path / "li.geo").stat().st_size < 6_000_000
