"""Batches are added to a history exactly once, wherever the job is killed."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark.fixes import staging as landing
from spark.fixes.schema import DAY_MS, fix_hashes
from spark.fixes.staging import FOLDER, StagedFile, land
from spark.history.files import HistoryFiles
from waylog.cli import main
from waylog.config import ConfigError
from waylog.history.file_names import OffsetSpan, parse_name
from waylog.history.row_layout import HISTORY_SCHEMA
from waylog.history.storage import Storage

Row = tuple[int, int]  # number of the id, number of the day


class Killed(BaseException):
    """A stand-in for SIGKILL: no code runs after it."""


class MortalStorage(Storage):
    """A storage with real files; the process dies before the n-th change to them."""

    changes_left: int = 1 << 30

    def _change(self) -> None:
        if self.changes_left <= 0:
            raise Killed
        self.changes_left -= 1

    def rename(self, source: str, target: str) -> None:
        self._change()
        super().rename(source, target)

    def delete(self, name: str) -> None:
        self._change()
        super().delete(name)

    def write_parquet(self, name: str, table: pa.Table, **options: object) -> None:
        self._change()
        super().write_parquet(name, table, **options)


def batch_of(rows: Sequence[Row], start: int, partition: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {
                "id": f"{number:024x}",
                "device": "u/d",
                "user": "u",
                "lat": 1.0,
                "lon": 2.0,
                "time": day * DAY_MS + 5,
                "received": 0,
                "kafka_partition": partition,
                "kafka_offset": start + place,
            }
            for place, (number, day) in enumerate(rows)
        ],
        schema=HISTORY_SCHEMA,
    )


def write_batch(
    files: HistoryFiles, storage: Storage, rows: Sequence[Row], start: int, end: int
) -> None:
    landed: list[StagedFile] = []
    for batch in land([batch_of(rows[start:end], start)], storage, start, end):
        landed += [StagedFile(**row) for row in batch.to_pylist()]
    files.commit(landed)


def stored(out: Path) -> list[tuple[int, str]]:
    table = ds.dataset(out, format="parquet").to_table(["kafka_offset", "id"])
    return sorted(zip(table["kafka_offset"].to_pylist(), table["id"].to_pylist(), strict=True))


def expected(rows: Sequence[Row], window: int) -> list[tuple[int, str]]:
    kept: list[tuple[int, int]] = []
    for offset, (number, _) in enumerate(rows):
        recent = kept[-window:] if window else []
        if number not in [each for _, each in recent]:
            kept.append((offset, number))
    return [(offset, f"{number:024x}") for offset, number in kept]


# The window is longer than a batch here, so all ids within a batch count as recent.
@settings(max_examples=60)
@given(
    rows=st.lists(st.tuples(st.integers(0, 25), st.integers(0, 2)), min_size=1, max_size=40),
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=10),
    lives=st.lists(st.integers(0, 6), max_size=5),
    chunk=st.sampled_from([3, 7, 100]),
    checkpoint_lost=st.booleans(),
)
def test_each_id_is_stored_once_after_any_number_of_kills(
    rows: list[Row], sizes: list[int], lives: list[int], chunk: int, checkpoint_lost: bool
) -> None:
    batches: list[tuple[int, int]] = []
    start = 0
    for size in sizes:
        if start < len(rows):
            batches.append((start, min(len(rows), start + size)))
            start += size
    if start < len(rows):
        batches.append((start, len(rows)))
    lives = [*lives, 1 << 30]
    previous = landing.CHUNK_OFFSETS
    landing.CHUNK_OFFSETS = chunk  # type: ignore[misc]
    try:
        with tempfile.TemporaryDirectory() as folder:
            done = 0
            for changes in lives:
                storage = MortalStorage(folder)
                storage.changes_left = changes
                files = HistoryFiles(storage, 1000)
                files.open()
                if checkpoint_lost:
                    done = 0
                try:
                    for first, end in batches[done:]:
                        write_batch(files, storage, rows, first, end)
                        done += 1
                except Killed:
                    continue
            assert stored(Path(folder)) == expected(rows, 1000)
            assert not list(Path(folder, FOLDER).iterdir())
    finally:
        landing.CHUNK_OFFSETS = previous  # type: ignore[misc]


def test_a_window_rebuilt_from_files_forgets_what_the_running_one_has_forgotten(
    tmp_path: Path,
) -> None:
    rows = [(number, number % 2) for number in range(20)] + [(9, 0), (15, 0), (16, 1)]
    storage = Storage(str(tmp_path))
    files = HistoryFiles(storage, 5)
    files.open()
    for start in range(0, 20, 4):
        write_batch(files, storage, rows, start, start + 4)
    for again in (files, HistoryFiles(storage, 5)):
        if again is not files:
            again.open()
        assert len(again._windows.get(0) or again._rebuild(0, 20)) == 5
        window = again._windows.get(0) or again._rebuild(0, 20)
        hashes = fix_hashes(pa.Table.from_batches([batch_of(rows, 0)]))
        assert window.repeated(hashes[20:]).tolist() == [False, True, True]


def test_an_id_that_another_device_has_sent_is_no_repetition(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    names = ["u/d", "u/import", "u/d", "v/import", "u/import"]
    for first in (0, 2):  # the second batch meets a window that is rebuilt from files
        rows = batch_of([(7, 0)] * 5, 0)
        rows = rows.set_column(1, HISTORY_SCHEMA.field("device"), pa.array(names))
        files = HistoryFiles(storage)
        files.open()
        part = rows.slice(first, 2 if first == 0 else 3)
        landed = [
            StagedFile(**row)
            for batch in land([part], storage, first, first + part.num_rows)
            for row in batch.to_pylist()
        ]
        files.commit(landed)
    table = ds.dataset(tmp_path, format="parquet").to_table(["device"])
    assert sorted(table["device"].to_pylist()) == ["u/d", "u/import", "v/import"]


def test_records_that_retention_took_between_two_attempts_stay_in_the_history(
    tmp_path: Path,
) -> None:
    rows = [(number, 0) for number in range(10)]
    storage = Storage(str(tmp_path))
    files = HistoryFiles(storage)
    files.open()
    write_batch(files, storage, rows, 0, 10)
    # Killed before Spark recorded the batch as done; then retention deleted the first four records.
    files = HistoryFiles(storage)
    files.open()
    write_batch(files, storage, rows, 4, 10)
    assert stored(tmp_path) == [(number, f"{number:024x}") for number in range(10)]


def test_names_say_partition_and_offsets(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    files = HistoryFiles(storage)
    files.open()
    write_batch(files, storage, [(0, 20_454), (1, 20_454), (2, 20_453)], 0, 3)
    names = sorted(storage.list_files())
    assert names == [
        "month=2025-12/2025-12-31-location-0-00000000000000000000-00000000000000000002.parquet",
        "month=2026-01/2026-01-01-location-0-00000000000000000000-00000000000000000002.parquet",
    ]
    parsed = parse_name(names[0])
    assert parsed is not None
    assert (parsed.date, parsed.span) == ("2025-12-31", OffsetSpan(0, 0, 2))
    assert files.next_offsets() == {}
    files.open()
    assert files.next_offsets() == {0: 3}


@pytest.mark.parametrize(
    "name",
    [
        *("places.parquet", "month=x/location-0-0-1.parquet"),
        *("month=2026-02/2026-01-31-location-0-0-1.parquet", "month=2026-01/other-0-0-1.tmp"),
    ],
)
def test_other_files_are_not_taken_for_history(name: str) -> None:
    assert parse_name(name) is None


def test_a_history_has_one_writer_at_a_time(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    lock = storage.lock()
    assert lock is not None
    with pytest.raises(ConfigError, match="another process"):
        Storage(str(tmp_path)).lock()
    lock.close()
    again = storage.lock()
    assert again is not None
    again.close()


def test_a_url_that_nothing_can_open_is_a_users_mistake() -> None:
    with pytest.raises(ConfigError, match="gopher"):
        Storage("gopher://somewhere/history")


def test_a_history_without_fixes_is_no_missing_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun, missing = tmp_path / "begun", tmp_path / "missing"
    HistoryFiles(Storage(str(begun))).open()
    for line in ("history files --out", "history compact --out", "fleet quality --history"):
        assert main([*line.split(), str(begun)]) == 0, line
        assert main([*line.split(), str(missing)]) == 1, line
        assert f"{missing}: there is no history, and no such folder" in capsys.readouterr().err
    words = ["places", "run", "--once", "--engine", "arrow", "--out", str(tmp_path / "places")]
    assert main([*words, "--history", str(begun)]) == 0
    assert main([*words, "--history", str(missing)]) == 1
    assert main(["history", "export", "--out", str(begun), "--user", "ada"]) == 1
    assert "the history knows no device" in capsys.readouterr().err
