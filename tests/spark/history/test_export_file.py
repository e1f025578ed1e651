"""The file of an export while it is written, and what killed ones have left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from spark.history.export_file import export_file
from tests.small_disk import small_disk
from tests.spark.history.test_compaction import append, some_fixes
from waylog.cli import main

#: Writes a little, says so, and waits.
_WRITER: Final = """
import sys
from pathlib import Path
from spark.history.export_file import export_file
with export_file(Path(sys.argv[1])) as stream:
    stream.write(b"begun")
    stream.flush()
    print("writing", flush=True)
    sys.stdin.read()
"""


def start(file: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    return process


def write(file: Path, content: bytes = b"whole") -> None:
    with export_file(file) as stream:
        stream.write(content)


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


@pytest.mark.parametrize("next_name", ["a.gpx", "b.gpx"])
def test_what_a_killed_export_has_left_goes_with_the_next_one(
    tmp_path: Path, next_name: str
) -> None:
    killed, runs = start(tmp_path / "a.gpx"), start(tmp_path / "a.gpx")
    try:
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        assert len(names(tmp_path)) == 2
        (tmp_path / ".a.gpx.77.part").write_bytes(b"of another program, or of a version before")
        (tmp_path / ".b.gpx.77.part").symlink_to(tmp_path / "nowhere")
        write(tmp_path / next_name)
        assert f".a.gpx.{runs.pid}.waylog-part" in names(tmp_path)
        older = [] if next_name == "a.gpx" else [".a.gpx.77.part"]
        assert set(names(tmp_path)) == {
            *(next_name, f".a.gpx.{runs.pid}.waylog-part", ".b.gpx.77.part", *older)
        }
        # The one that runs ends as if nothing had been.
        runs.communicate("")
        assert runs.returncode == 0
        assert (tmp_path / "a.gpx").read_bytes() == b"begun"
    finally:
        for process in (killed, runs):
            process.kill()
            process.communicate()


def test_a_number_that_is_used_again_does_not_keep_a_file(tmp_path: Path) -> None:
    left = tmp_path / f".a.gpx.{os.getpid()}.waylog-part"
    left.write_bytes(b"of a process that had our number")
    write(tmp_path / "a.gpx")
    assert names(tmp_path) == ["a.gpx"]


def test_a_folder_that_cannot_be_written_is_told_with_the_name_that_was_given(
    tmp_path: Path,
) -> None:
    with pytest.raises(OSError, match="No such file or directory") as missing:
        write(tmp_path / "none" / "a.gpx")
    assert missing.value.filename == str(tmp_path / "none" / "a.gpx")
    with pytest.raises(OSError, match="No space left") as full:
        write(Path("/dev/full"))
    assert full.value.filename == "/dev/full"


def test_a_full_disk_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append(tmp_path / "history", some_fixes(500))
    with small_disk(tmp_path / "disk", 1024 * 1024) as disk:
        disk.fill()
        file = disk.folder / "a.csv"
        words = ["history", "export", "--out", str(tmp_path / "history"), "--user", "u"]
        assert main([*words, "--format", "csv", "-o", str(file)]) == 1
        assert capsys.readouterr().err.splitlines()[-1] == (
            f"waylog history: {file}: No space left on device"
        )
        assert names(disk.folder) == ["ballast"]
        assert (
            main(["places", "run", "--once", "--engine", "arrow", *_to(tmp_path, disk.folder)]) == 1
        )
        said = capsys.readouterr().err.splitlines()[-1]
        assert f"{disk.folder}/places: no room left; make room" in said


def _to(folder: Path, disk: Path) -> list[str]:
    return ["--history", str(folder / "history"), "--out", str(disk / "places")]
