"""The time of the newest file of a history, in folders of both layouts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from waylog.history.file_names import OffsetSpan, compacted_path, landed_path
from waylog.history.newest_file import newest_file_ms

LANDED = landed_path("2026-01-31", OffsetSpan(0, 0, 9))
PACKED = compacted_path("2025-12", "8c1f", 0)
OUTDATED = "date=2026-01-31/location-0-00000000000000000000-00000000000000000009.parquet"


def write(folder: Path, name: str, time_s: int) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (time_s, time_s))


@pytest.mark.parametrize("name", [LANDED, PACKED, OUTDATED])
def test_the_newest_file_is_seen_wherever_it_lies(tmp_path: Path, name: str) -> None:
    for each in (LANDED, PACKED, OUTDATED):
        write(tmp_path, each, 2_000 if each == name else 1_000)
    write(tmp_path, "_checkpoint/offsets", 3_000)
    assert newest_file_ms(tmp_path) == 2_000_000


def test_without_files_nothing_is_known(tmp_path: Path) -> None:
    assert newest_file_ms(tmp_path) is None
    assert newest_file_ms(tmp_path / "absent") is None
