"""Up to where Spark has written, out of its write-ahead log."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark.history.spark_offsets import committed_offsets
from waylog.history.storage import Storage


def planned(folder: Path, number: int, *lines: str) -> None:
    path = folder / f"_checkpoint/python/offsets/{number}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))


def done(folder: Path, number: int) -> None:
    path = folder / f"_checkpoint/python/commits/{number}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('v1\n{"nextBatchWatermarkMs":0}')


def offsets(folder: Path) -> dict[int, int]:
    return committed_offsets(Storage(str(folder)), "_checkpoint/python")


def test_the_last_batch_that_is_done_counts_not_one_that_is_planned(tmp_path: Path) -> None:
    assert offsets(tmp_path) == {}
    for number in range(12):
        planned(tmp_path, number, "v1", "{}", f'{{"0": {number * 10 + 1}, "3": {number}}}')
    assert offsets(tmp_path) == {}
    for number in range(11):
        done(tmp_path, number)
        (tmp_path / f"_checkpoint/python/commits/.{number}.crc").write_bytes(b"x")
    assert offsets(tmp_path) == {0: 101, 3: 10}


@pytest.mark.parametrize(
    "lines",
    [("v2", "{}", '{"0": 1}'), ("v1", "{}"), ("v1", "{}", "x"), ("v1", "{}", '{"a": 1}'), ("",)],
)
def test_what_cannot_be_read_counts_as_nothing(tmp_path: Path, lines: tuple[str, ...]) -> None:
    planned(tmp_path, 0, *lines)
    done(tmp_path, 0)
    assert offsets(tmp_path) == {}
