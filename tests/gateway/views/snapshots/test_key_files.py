"""Key files: written, merged, removed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gateway.fixes.stored_keys import StoredKeys
from gateway.views.snapshots.key_files import KeyFiles, alive, size_of
from gateway.views.snapshots.view_snapshot import KeyFileEntry


def packed(keys: list[int]) -> bytes:
    return b"".join(key.to_bytes(8, "little") for key in keys)


class Runs:
    """Uses key files as SavedViews does."""

    def __init__(self, folder: Path, entries: list[KeyFileEntry] | None = None) -> None:
        self.folder = folder
        self.stored = StoredKeys()
        self.runs = KeyFiles(folder, self.stored)
        self.entries = self.runs.open(entries or [])
        self.runs.use(self.entries)

    def add(self, keys: list[int], day: int, covers: dict[int, int]) -> None:
        written = self.runs.write(packed(keys), day, covers)
        self.entries = self.runs.merged([*self.entries, written], day)
        self.runs.use(self.entries)

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*.keys*"))


def test_many_small_files_become_few_and_each_key_is_found(tmp_path: Path) -> None:
    runs, numbers = Runs(tmp_path), random.Random(1)
    keys = [numbers.getrandbits(64) for _ in range(3000)]
    for at in range(0, 3000, 30):
        runs.add([*keys[at : at + 30], keys[at]], 20_000, {0: at})
    assert len(runs.entries) < 8
    assert all(key in runs.stored for key in keys)
    assert len(runs.stored) == 3000
    assert runs.files == [entry.name for entry in runs.entries]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == size_of(runs.entries)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    again = Runs(tmp_path, runs.entries)
    assert all(key in again.stored for key in keys)
    again.add([5], 20_000, {0: 3000})
    assert 5 in again.stored


def test_a_day_that_is_over_is_one_file_which_goes_with_the_log(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    for day in (20_000, 20_001, 20_002):
        for part in range(3):
            runs.add([day * 10 + part], day, {0: day, 1: day * 2})
    assert [entry.day for entry in runs.entries] == [20_000, 20_001, 20_002, 20_002, 20_002]
    runs.entries = alive(runs.entries, {0: 20_001, 1: 40_000})
    runs.runs.use(runs.entries)
    assert [entry.day for entry in runs.entries] == [20_001, 20_002, 20_002, 20_002]
    assert 200_000 not in runs.stored
    assert 200_010 in runs.stored
    assert len(runs.files) == 4


def test_files_of_before_stay_as_they_are_when_others_come(tmp_path: Path) -> None:
    first = Runs(tmp_path)
    first.add([1], 20_000, {0: 1})
    again = Runs(tmp_path, first.entries)
    again.add([2], 20_000, {0: 2})
    last = Runs(tmp_path, again.entries)
    assert len(last.entries) == 2
    assert all(key in last.stored for key in (1, 2))


def test_a_merged_file_stays_as_long_as_the_log_has_one_of_its_fixes(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    for part in range(3):
        runs.add([part + 1], 20_000, {0: 10 + part, part: 10})
    runs.add([9], 20_001, {0: 100})
    merged, _ = runs.entries
    assert merged.covers == {0: 12, 1: 10, 2: 10}
    for first, expected in (({0: 11, 1: 10, 2: 10}, 2), ({0: 12, 1: 10, 2: 10}, 1)):
        assert len(alive(runs.entries, first)) == expected


@pytest.mark.parametrize("damage", ["gone", "cut", "foreign"])
def test_a_damaged_file_is_left_out_and_the_others_count(tmp_path: Path, damage: str) -> None:
    runs = Runs(tmp_path)
    runs.add([1, 2], 20_000, {0: 1})
    runs.add([3, 4], 20_000, {0: 2})
    path = tmp_path / runs.entries[0].name
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-3])
    else:
        path.write_bytes(b"something else altogether")
    again = Runs(tmp_path, runs.entries)
    assert 3 in again.stored
    assert 1 not in again.stored
