"""What a history job says of itself reaches who reads its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.small_disk import small_disk
from waylog.history.job_report import FILE, JobReport, read_report, remove_report, write_report


def test_a_report_is_exchanged_and_removed(tmp_path: Path) -> None:
    assert read_report(tmp_path) is None
    for report in (JobReport(1, "spark"), JobReport(2, "arrow", 1, 3.5, "no room")):
        write_report(tmp_path, report)
        assert read_report(tmp_path) == report
    remove_report(tmp_path)
    assert read_report(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    remove_report(tmp_path)


def test_a_folder_that_is_gone_stops_nobody(tmp_path: Path) -> None:
    write_report(tmp_path / "absent", JobReport(1, "spark"))
    remove_report(tmp_path / "absent")
    assert read_report(tmp_path / "absent") is None


def test_on_a_full_disk_the_trouble_is_told_nevertheless(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 256 * 1024) as disk:
        assert write_report(disk.folder, JobReport(1, "spark", trouble="x" * 300))
        disk.fill()
        for trouble in ("no room left", "no room left in " + "y" * 300, None):
            report = JobReport(2, "spark", trouble=trouble)
            assert write_report(disk.folder, report)
            assert read_report(disk.folder) == report
        remove_report(disk.folder)
        disk.fill()
        assert not write_report(disk.folder, report)
        assert [each.name for each in disk.folder.iterdir()] == ["ballast"]


@pytest.mark.parametrize("content", [b"", b"{}", b'{"time":"x","engine":"spark"}', b"\xff"])
def test_what_is_no_report_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    assert read_report(tmp_path) is None


def test_a_job_that_falls_silent_is_a_problem() -> None:
    well = JobReport(1_000_000, "spark")
    assert well.problem(1_060_000) is None
    assert well.problem(1_061_000) == "nothing heard from the history job for 61 s"
    troubled = JobReport(1_000_000, "spark", trouble="no room")
    assert troubled.problem(1_000_000) == "no room"
