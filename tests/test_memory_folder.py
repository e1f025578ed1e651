"""Where the files of tests are, on machines with much and with little memory."""

from __future__ import annotations

from pathlib import Path

from tests.memory_folder import memory_folder


def test_files_are_in_memory_only_where_there_is_room(tmp_path: Path) -> None:
    info = tmp_path / "meminfo"
    for available_kb, expected in ((20, tmp_path), (19, None)):
        info.write_text(f"MemTotal: 9000000 kB\nMemAvailable:   {available_kb} kB\n")
        assert memory_folder(tmp_path, info, bytes_min=20 * 1024) == expected
    info.write_text("MemAvailable: 9000000 kB\n")
    assert memory_folder(tmp_path, info, bytes_min=1 << 60) is None
    assert memory_folder(tmp_path / "none", info, bytes_min=0) is None
    assert memory_folder(tmp_path, tmp_path / "none", bytes_min=0) is None
