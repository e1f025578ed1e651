"""What is refused before anything starts, and what is not."""

from __future__ import annotations

import resource
import sqlite3
from pathlib import Path

import pytest

from tests.small_disk import small_disk
from waylog import preflight
from waylog.cli import CommandError
from waylog.config import ConfigError, DataDirectory


def test_an_intact_folder_is_taken_and_left_as_it_is(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path / "new" / "data")
    preflight.check_data(data)
    assert list(data.root.iterdir()) == []
    database = sqlite3.connect(data.users)
    database.execute("CREATE TABLE users (name)")
    database.commit()
    database.close()
    preflight.check_data(data)
    assert [each.name for each in data.root.iterdir()] == ["users.db"]


def test_a_disk_without_room_is_refused(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk", 4 * 1024 * 1024) as disk,
        pytest.raises(CommandError, match=r"the disk has \d+ MiB left, and 100 are needed"),
    ):
        preflight.check_data(DataDirectory(disk.folder))


@pytest.mark.parametrize(
    ("hard", "refused"),
    [(511, True), (512, False), (resource.RLIM_INFINITY, False)],
)
def test_too_few_open_files_are_refused(
    monkeypatch: pytest.MonkeyPatch, hard: int, refused: bool
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (10, hard))
    if refused:
        with pytest.raises(CommandError, match="511 files open here, and 512 are needed"):
            preflight.check_limits()
    else:
        preflight.check_limits()


@pytest.mark.parametrize(
    "url", ["s3://bucket/x", "s3a://bucket/x", "webhdfs://h:1/x", "file:///tmp/x", "gs://b"]
)
def test_a_history_elsewhere_is_taken(url: str) -> None:
    preflight.check_history(url)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("hdfs://h:8020/x", "say webhdfs://HOST:9870/PATH"),
        ("ftp://h/x", "is expected"),
        ("webhdfs:///x", "names no bucket or host"),
    ],
)
def test_a_history_that_nothing_can_open_is_refused(url: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        preflight.check_history(url)


def test_an_index_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "index").write_bytes(b"")
    preflight.check_index(tmp_path / "index")
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(ConfigError, match="waylog geo import"):
            preflight.check_index(path)
