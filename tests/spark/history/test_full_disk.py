"""A history job whose disk is full says so, and goes on when there is room."""

from __future__ import annotations

from pathlib import Path

from tests.consumers.running import await_condition
from tests.small_disk import small_disk
from tests.spark.running import Running


def test_a_full_disk_is_reported_and_its_end_too(log: str, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 8 * 1024 * 1024) as disk:
        job = Running(
            *("history", "run", "--engine", "arrow", "--bootstrap-servers", log),
            *("--out", str(disk.folder / "history")),
        )
        try:
            await_condition(lambda: "is written to" in job.said, 60, "the start of the job")
            disk.fill()
            full = f"not ready: no room left in {disk.folder / 'history'}"
            await_condition(lambda: full in job.said, 60, "the report of a full disk")
            disk.free()
            well = f"ready again; it was: no room left in {disk.folder / 'history'}"
            await_condition(lambda: well in job.said, 60, "the report that there is room")
            assert job.said.count("not ready: ") == 1
            assert job.terminate(timeout_s=30) == 0, job.said
        finally:
            job.close()
