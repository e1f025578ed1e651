"""The checkpoint files beside the segments."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.environment import SystemDisk
from broker_core.log.checkpoints import (
    CLEAN_SHUTDOWN,
    RECOVERY_POINT,
    CleanShutdown,
    load_offset,
    save_offset,
)


def test_an_offset_survives(tmp_path: Path) -> None:
    disk = SystemDisk()
    assert load_offset(disk, tmp_path, RECOVERY_POINT) == (0, True)
    save_offset(disk, tmp_path, RECOVERY_POINT, 2**40)
    assert load_offset(disk, tmp_path, RECOVERY_POINT) == (2**40, True)


def test_an_offset_without_checksum_is_that_of_an_earlier_version(tmp_path: Path) -> None:
    (tmp_path / RECOVERY_POINT).write_bytes(b"120\n")
    assert load_offset(SystemDisk(), tmp_path, RECOVERY_POINT) == (120, True)


@pytest.mark.parametrize("content", [b"", b"\0\0\0", b"twelve", b"-5\n", b"12", b"12 0\n"])
def test_a_damaged_offset_is_not_known(tmp_path: Path, content: bytes) -> None:
    (tmp_path / RECOVERY_POINT).write_bytes(content)
    assert load_offset(SystemDisk(), tmp_path, RECOVERY_POINT) == (None, False)


def test_no_damaged_byte_makes_another_offset(tmp_path: Path) -> None:
    disk, path = SystemDisk(), tmp_path / RECOVERY_POINT
    save_offset(disk, tmp_path, RECOVERY_POINT, 1234567)
    right = path.read_bytes()
    for position in range(len(right)):
        for value in (right[position] ^ 1, ord("0"), ord("\n"), 0):
            path.write_bytes(bytes([*right[:position], value, *right[position + 1 :]]))
            is_same = value == right[position]
            assert load_offset(disk, tmp_path, RECOVERY_POINT) == (1234567, is_same)


def test_the_mark_of_a_clean_shutdown_stays_until_it_is_removed(tmp_path: Path) -> None:
    disk = SystemDisk()
    mark = CleanShutdown(segment_base_offset=10, segment_bytes=200, log_end_offset=15)
    mark.save(disk, tmp_path)
    assert CleanShutdown.load(disk, tmp_path) == mark
    CleanShutdown.remove(disk, tmp_path)
    assert CleanShutdown.load(disk, tmp_path) is None


@pytest.mark.parametrize("content", [b"", b"1 2", b"a b c"])
def test_a_damaged_mark_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / CLEAN_SHUTDOWN).write_bytes(content)
    assert CleanShutdown.load(SystemDisk(), tmp_path) is None
