"""An installation's files are private to the account that runs it."""

from __future__ import annotations

import logging
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from waylog.config import DataDirectory
from waylog.private_files import make_private, temporary_folder, tighten


def open_to_others(folder: Path) -> list[str]:
    return [
        path.name
        for path in [folder, *folder.rglob("*")]
        if not path.is_symlink() and path.lstat().st_mode & 0o077
    ]


@pytest.fixture
def installation(tmp_path: Path) -> DataDirectory:
    """Create the data directory as an earlier version left it."""
    data = DataDirectory(tmp_path / "data")
    for folder in (data.root, data.history, data.history / "date=2026-01-01", data.logs):
        folder.mkdir()
        folder.chmod(0o755)
    data.history_url.touch(0o600)
    for file in (data.users, data.history / "date=2026-01-01" / "a.parquet", data.logs / "x.log"):
        file.touch()
        file.chmod(0o644)
    return data


def test_what_was_made_wider_is_tightened_with_a_line(
    installation: DataDirectory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.touch()
    elsewhere.chmod(0o644)
    (installation.logs / "link").symlink_to(elsewhere)
    with caplog.at_level(logging.WARNING):
        make_private(installation)
    assert open_to_others(installation.root) == []
    assert [record.getMessage()[:10] for record in caplog.records] == ["7 files an"]
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o644
    assert tighten([installation.root]) == 0


def test_a_folder_with_other_things_in_it_is_warned_about(
    installation: DataDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    others = installation.root / "photos"
    others.mkdir()
    others.chmod(0o755)
    with caplog.at_level(logging.WARNING):
        make_private(installation)
    assert open_to_others(installation.root) == ["data", "photos"]
    assert "chmod 700" in caplog.text


def test_every_command_makes_private_files_and_no_core(tmp_path: Path) -> None:
    script = (
        "import resource, sys\n"
        "from waylog.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "open(sys.argv[1], 'w')\n"
        "print(resource.getrlimit(resource.RLIMIT_CORE)[0])\n"
    )
    path = tmp_path / "file"
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        capture_output=True,
        text=True,
        check=True,
        umask=0o022,
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert done.stdout.splitlines()[-1] == "0"


def test_what_a_killed_job_left_aside_is_gone_at_the_next_start(tmp_path: Path) -> None:
    environment = temporary_folder(tmp_path / "tmp")
    left = Path(environment["TMPDIR"]) / "waylog-compact-x"
    left.mkdir()
    (left / "chunk").write_bytes(b"positions")
    assert temporary_folder(tmp_path / "tmp") == environment
    assert list(Path(environment["TMPDIR"]).iterdir()) == []
