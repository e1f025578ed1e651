"""What hostile and odd files do to the process that reads them: they end it with a reason."""

from __future__ import annotations

import gzip
import io
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from gateway.imports.import_process import END, FIXES, LENGTH_BYTES
from gateway.imports.records import ReadingPlan, ReadingProgress
from tests.gateway.imports.uploading import archive, gpx
from waylog.messages import Fix

MIB = 1024**2


class Read(NamedTuple):
    """What the process has written, and what it said for its log."""

    fixes: list[Fix]
    progress: ReadingProgress
    said: str


def frames(output: bytes) -> Iterator[tuple[bytes, bytes]]:
    stream = io.BytesIO(output)
    while kind := stream.read(1):
        yield kind, stream.read(int.from_bytes(stream.read(LENGTH_BYTES)))


def read(
    folder: Path,
    files: Mapping[str, bytes],
    *,
    content_bytes_max: int = 64 * MIB,
    fixes_max: int = 1_000_000,
    memory_bytes_max: int = 512 * MIB,
) -> Read:
    """Let the process read files within bounds."""
    (folder / "scratch").mkdir()
    for number, content in enumerate(files.values()):
        (folder / str(number)).write_bytes(content)
    plan = ReadingPlan(
        folder=str(folder),
        user="ada",
        device="walk",
        names=list(files),
        content_bytes_max=content_bytes_max,
        fixes_max=fixes_max,
        memory_bytes_max=memory_bytes_max,
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway.imports.import_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(folder / "scratch")},
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    process.stdin.write(msgspec.json.encode(plan) + b"\n")
    process.stdin.flush()
    output, said = process.stdout.read(), process.stderr.read()
    process.stdin.close()
    process.wait(60)
    process.stdout.close()
    process.stderr.close()
    fixes: list[Fix] = []
    progress = ReadingProgress(error="there was no end")
    for kind, content in frames(output):
        if kind == FIXES:
            fixes += msgspec.json.decode(content, type=list[Fix])
        elif kind == END:
            progress = msgspec.json.decode(content, type=ReadingProgress)
    assert list((folder / "scratch").iterdir()) == []
    return Read(fixes, progress, said.decode())


def test_the_order_is_that_of_time_and_what_sending_refuses_is_counted(tmp_path: Path) -> None:
    late, early = gpx(3), gpx(3, begin_s=1_700_000_000)
    found = read(tmp_path, {"b.gpx": late, "a.gpx": early})
    assert [fix.time for fix in found.fixes] == sorted(fix.time for fix in found.fixes)
    assert {fix.device for fix in found.fixes} == {"ada/walk"}
    progress = found.progress
    assert (progress.found, progress.error) == (6, None)
    assert (progress.first, progress.last) == (found.fixes[0].time, found.fixes[-1].time)
    assert progress.of_bytes == len(late) + len(early) <= progress.read_bytes


def test_times_that_the_history_would_not_keep_are_refused(tmp_path: Path) -> None:
    lines = (f"47.2,9.6,{year}-05-31T00:00:00Z" for year in (1970, 2020, 2199))
    found = read(tmp_path, {"a.csv": "\n".join(("lat,lon,time", *lines)).encode()})
    assert len(found.fixes) == 1
    (reason, count), *more = found.progress.refused.items()
    assert (count, more) == (2, []) and "implausible time" in reason
    assert found.progress.first == found.progress.last == found.fixes[0].time


def test_a_bomb_ends_at_the_bound(tmp_path: Path) -> None:
    packed = gzip.compress(gpx(1)[:-25] + b" " * (40 * MIB))
    assert len(packed) < MIB // 10
    found = read(tmp_path, {"bomb.gpx.gz": packed}, content_bytes_max=8 * MIB)
    assert (
        found.progress.error is not None and "8388608 bytes when unpacked" in found.progress.error
    )
    assert found.fixes == [] and found.said == ""


def test_a_bomb_in_an_archive_in_an_archive_ends_at_the_bound(tmp_path: Path) -> None:
    rows = (b"1,2," + b" " * 1000 + b"\n") * (20 * 1024)
    inner = archive({"a.csv": b"lat,lon,time\n" + rows, "b.gpx": gpx(1)})
    outer = archive({"inner.zip": inner, "c.gpx": gpx(1)})
    found = read(tmp_path, {"outer.zip": outer}, content_bytes_max=8 * MIB)
    assert found.progress.error is not None and "when unpacked" in found.progress.error


def test_more_positions_than_the_bound_are_not_stored(tmp_path: Path) -> None:
    found = read(tmp_path, {"a.gpx": gpx(500)}, fixes_max=400)
    assert found.progress.error == "the files have too much in them: more than 400 positions"
    assert found.fixes == []


def test_what_takes_too_much_memory_ends_with_a_reason(tmp_path: Path) -> None:
    # One text of an element is held as a whole.
    content = b"<gpx><trk><name>" + b"x" * (200 * MIB)
    found = read(
        tmp_path,
        {"a.gpx.gz": gzip.compress(content)},
        content_bytes_max=512 * MIB,
        memory_bytes_max=128 * MIB,
    )
    # libxml2 says that there is an error, and not which.
    assert found.progress.error is not None or len(found.progress.files[0].damage) == 1
    assert found.fixes == []


def test_paths_and_links_of_an_archive_lead_nowhere(tmp_path: Path) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as written:
        written.writestr("../../../../evil.gpx", gpx(2))
        written.writestr("/etc/evil.gpx", gpx(2, lat=20))
        link = zipfile.ZipInfo("link.gpx")
        link.create_system = 3
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        written.writestr(link, "/etc/passwd")
    found = read(tmp_path, {"evil.zip": content.getvalue()})
    assert len(found.fixes) == 4
    assert found.progress.files[0].skipped == {"a file that is no track (.gpx)": 1}
    assert {path.name for path in tmp_path.iterdir()} == {"0", "scratch"}
    assert not any((folder / "evil.gpx").exists() for folder in (*tmp_path.parents, Path("/etc")))


def test_many_reasons_and_damages_stay_short(tmp_path: Path) -> None:
    members = {f"{number}.gpx": b"<gpx><trk" + b"x" * 50 for number in range(200)}
    rows = b"lat,lon,time\n" + b"".join(b"%d,1,1\n" % (100 + number) for number in range(500))
    found = read(tmp_path, {"a.zip": archive(members), "b.csv": rows})
    damage, skipped = found.progress.files[0].damage, found.progress.files[1].skipped
    assert len(damage) == 21 and damage[-1] == "and 180 more"
    assert len(skipped) <= 31 and sum(skipped.values()) == 500


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"PK\x03\x04", b"\x1f\x8b\x08", b"{", b"<"])
def test_files_that_are_none_have_a_reason_each(tmp_path: Path, content: bytes) -> None:
    found = read(tmp_path, {"<b>.gpx": content, "good.gpx": gpx(2)})
    assert found.progress.error is None
    assert len(found.progress.files[0].damage) == 1
    assert str(tmp_path) not in found.progress.files[0].damage[0]
    assert len(found.fixes) == 2


def test_entities_of_xml_read_no_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("2025-05-30T00:00:00Z")
    document = gpx(1).replace(
        b'<?xml version="1.0"?>',
        b'<!DOCTYPE gpx [<!ENTITY x SYSTEM "file://%s/secret">]>' % str(tmp_path).encode(),
    )
    found = read(tmp_path, {"a.gpx": document.replace(b"</time>", b"</time><name>&x;</name>")})
    assert b"2025-05-30T00:00:00Z" not in msgspec.json.encode(
        [each.attributes for each in found.fixes]
    )


def test_a_process_whose_gateway_has_gone_ends(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(gpx(50_000))
    plan = ReadingPlan(str(tmp_path), "ada", "walk", ["a.gpx"], 64 * MIB, 1_000_000, 512 * MIB)
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway.imports.import_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(msgspec.json.encode(plan) + b"\n")
    process.stdin.flush()
    # It writes more than a pipe takes, and nobody reads.
    process.stdout.read(1)
    process.stdin.close()
    assert process.wait(60) == 1
    process.stdout.close()
