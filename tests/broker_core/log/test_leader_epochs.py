"""Leader epochs: the results for OffsetForLeaderEpoch, and the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.environment import SystemDisk
from broker_core.log.leader_epochs import FILE_NAME, LeaderEpochs


@pytest.fixture
def epochs(tmp_path: Path) -> LeaderEpochs:
    table = LeaderEpochs(SystemDisk(), tmp_path)
    for epoch, start in ((0, 0), (2, 10), (5, 25)):
        table.assign(epoch, start)
    return table


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(0, (0, 10)), (1, (0, 10)), (2, (2, 25)), (4, (2, 25)), (5, (5, 40)), (9, (5, 40))],
)
def test_an_epoch_ends_where_the_next_begins(
    epochs: LeaderEpochs, asked: int, answer: tuple[int, int]
) -> None:
    assert epochs.end_offset(asked, 40) == answer


def test_an_epoch_before_the_first_ends_where_that_begins(tmp_path: Path) -> None:
    table = LeaderEpochs(SystemDisk(), tmp_path)
    assert table.end_offset(3, 40) == (-1, -1)
    assert table.latest == -1
    table.assign(4, 7)
    assert table.end_offset(3, 40) == (3, 7)
    assert table.end_offset(-1, 40) == (-1, -1)


@pytest.mark.parametrize(("offset", "epoch"), [(0, 0), (9, 0), (10, 2), (24, 2), (25, 5), (99, 5)])
def test_every_offset_has_an_epoch(epochs: LeaderEpochs, offset: int, epoch: int) -> None:
    assert epochs.epoch_at(offset) == epoch


def test_an_epoch_is_assigned_once_and_never_goes_back(epochs: LeaderEpochs) -> None:
    epochs.assign(5, 30)
    epochs.assign(1, 50)
    assert epochs.entries == [(0, 0), (2, 10), (5, 25)]


def test_an_epoch_without_records_gives_way_to_the_next(epochs: LeaderEpochs) -> None:
    epochs.assign(6, 25)
    assert epochs.entries == [(0, 0), (2, 10), (6, 25)]


def test_the_file_has_kafkas_format_and_survives(epochs: LeaderEpochs, tmp_path: Path) -> None:
    assert (tmp_path / FILE_NAME).read_text() == "0\n3\n0 0\n2 10\n5 25\n"
    assert LeaderEpochs.load(SystemDisk(), tmp_path).entries == epochs.entries


@pytest.mark.parametrize(
    "text", ["", "0\n", "1\n1\n0 0\n", "0\n2\n0 0\n", "0\n1\nx y\n", "0\n2\n2 5\n1 9\n", "\xff"]
)
def test_a_damaged_file_is_named_and_an_empty_table(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    (tmp_path / FILE_NAME).write_text(text, encoding="latin-1")
    assert LeaderEpochs.load(SystemDisk(), tmp_path).entries == []
    assert f"{tmp_path / FILE_NAME} is damaged" in caplog.text


def test_cutting_the_log_forgets_what_began_behind_the_cut(
    epochs: LeaderEpochs, tmp_path: Path
) -> None:
    epochs.truncate_from_end(25)
    assert epochs.entries == [(0, 0), (2, 10)]
    epochs.truncate_from_end(11)
    assert epochs.entries == [(0, 0), (2, 10)]
    assert LeaderEpochs.load(SystemDisk(), tmp_path).entries == epochs.entries


def test_a_new_start_is_cut_again_by_who_reads_the_file(
    epochs: LeaderEpochs, tmp_path: Path
) -> None:
    epochs.truncate_from_start(12)
    loaded = LeaderEpochs.load(SystemDisk(), tmp_path)
    loaded.truncate_from_start(12)
    assert loaded.entries == epochs.entries == [(2, 12), (5, 25)]


def test_a_new_start_of_the_log_moves_the_epoch_that_holds_it(epochs: LeaderEpochs) -> None:
    epochs.truncate_from_start(5)
    assert epochs.entries == [(0, 5), (2, 10), (5, 25)]
    epochs.truncate_from_start(10)
    assert epochs.entries == [(2, 10), (5, 25)]
    epochs.truncate_from_start(99)
    assert epochs.entries == [(5, 99)]
