"""Scanning a file in chunks finds every batch, whatever its size and the ends of chunks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker_core.environment import SystemDisk
from broker_core.log.scanning import Scan
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.record_reader import iterate_records

PIECE = 1024 * 1024  # size of one read


def written(path: Path, sizes: list[int]) -> tuple[list[int], int]:
    """Write one-record batches with values of given sizes; return positions and file length."""
    data = bytearray()
    positions = []
    for offset, size in enumerate(sizes):
        positions.append(len(data))
        data += build_batch([(0, None, os.urandom(size), [])], base_offset=offset)
    path.write_bytes(data)
    return positions, len(data)


@pytest.mark.parametrize(
    "sizes",
    [
        [],
        [0],
        [10, 3 * PIECE, 10],
        [PIECE - 71, 5],
        [PIECE - 71 - 60, 5, 5],
        [PIECE // 3] * 10,
        [2 * PIECE, 2 * PIECE],
        [1000] * 3000,
    ],
)
def test_every_batch_is_found(tmp_path: Path, sizes: list[int]) -> None:
    path = tmp_path / "batches"
    positions, length = written(path, sizes)
    scan = Scan(SystemDisk().open(path), length, check_crc=True)
    found = []
    for header, position, data in scan:
        batch = data[header.position : header.position + header.size]
        assert [record[0] for record in iterate_records(batch)] == [header.base_offset]
        found.append(position)
    assert found == positions
    assert scan.problem is None


@pytest.mark.parametrize("sizes", [[100] * 5, [10, 2 * PIECE], [PIECE - 75, 100]])
def test_a_torn_end_is_a_problem_and_what_is_whole_before_it_is_found(
    tmp_path: Path, sizes: list[int]
) -> None:
    path = tmp_path / "batches"
    positions, length = written(path, sizes)
    for cut in (1, 30, 61, length - positions[-1] - 1):
        scan = Scan(SystemDisk().open(path), length - cut, check_crc=True)
        assert [position for _, position, _ in scan] == positions[:-1]
        assert scan.problem == "the batch is cut short"


def test_damage_ends_the_scan_where_the_crc_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "batches"
    positions, length = written(path, [100] * 5)
    content = bytearray(path.read_bytes())
    content[positions[3] + 90] ^= 1
    path.write_bytes(content)
    scan = Scan(SystemDisk().open(path), length, check_crc=True)
    assert [position for _, position, _ in scan] == positions[:3]
    assert scan.problem == "the CRC does not match"
    scan = Scan(SystemDisk().open(path), length, check_crc=False)
    assert [position for _, position, _ in scan] == positions
