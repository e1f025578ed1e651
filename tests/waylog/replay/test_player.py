from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from waylog.cli import CommandError
from waylog.replay.player import play, read_files
from waylog.replay.readers.recorded import RecordedFix


def csv(path: Path, rows: int, device: str | None = None) -> Path:
    column, value = ("device,", f"{device},") if device else ("", "")
    lines = "".join(f"{value}{1748772000 + index},47,9\n" for index in range(rows))
    path.write_text(f"{column}time,lat,lon\n{lines}")
    return path


def test_a_device_is_named_by_option_then_file_then_file_name(tmp_path: Path) -> None:
    plain, named = csv(tmp_path / "my walk.csv", 1), csv(tmp_path / "b.csv", 1, "pixel/8")

    def devices(device: str | None) -> list[str | None]:
        fixes = read_files([plain, named], device=device, limit=None, skipped=Counter())
        return [fix.device for fix in fixes]

    assert devices(None) == ["my_walk", "pixel_8"]
    assert devices("x") == ["x", "x"]


def test_the_limit_counts_over_all_files(tmp_path: Path) -> None:
    paths = [csv(tmp_path / "a.csv", 3), csv(tmp_path / "b.csv", 3)]
    fixes = list(read_files(paths, device=None, limit=4, skipped=Counter()))
    assert [fix.device for fix in fixes] == ["a", "a", "a", "b"]


def test_a_missing_file_is_a_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"gone.gpx: No such file"):
        list(read_files([tmp_path / "gone.gpx"], device=None, limit=None, skipped=Counter()))


async def test_recorded_gaps_are_scaled_and_cut() -> None:
    times = [0, 20_000, 20_000, 10_000_000]
    fixes = [RecordedFix(time=time, lat=0.0, lon=0.0, device="d") for time in times]
    loop = asyncio.get_running_loop()
    started = loop.time()
    due = [
        loop.time() - started
        async for _ in play(fixes, user="m", wire_format="positions", speed=200.0, gap_max_s=0.2)
    ]
    # Never early; how late depends on the machine.
    assert 0.1 <= due[1] <= due[2]
    assert 0.3 <= due[3] < 30, "the gap of 50 s was not cut"
