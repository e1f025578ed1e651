"""No byte of an erased device's positions is left in any file of a history and its places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from spark.places.job import write_places
from spark.runtime.tasks import LocalEngine
from tests.spark.history.outdated import write_outdated
from tests.spark.history.test_compaction import compact
from tests.spark.history.test_readers import of_dates
from tests.spark.places.test_job import table_of, write_history
from tests.spark.synthetic import make_person
from waylog.cli import main
from waylog.history.row_layout import stored_degrees, to_stored, to_units

ERASED, LEFT = "u0/p", "u1/p"


def forms_of(rows: pa.Table) -> NDArray[np.uint64]:
    """Return positions in each form in which files have them, as eight bytes each.

    These are doubles as they were sent and as they are stored, and whole numbers of a latitude
    beside its longitude, and of two latitudes or longitudes in a row.
    """
    units = [to_units(rows[name].to_numpy()) for name in ("lat", "lon")]
    forms = [rows[name].to_numpy().view(np.uint64) for name in ("lat", "lon")]
    forms += [stored_degrees(each).view(np.uint64) for each in units]
    for first, second in ((units[0], units[1]), *((each[:-1], each[1:]) for each in units)):
        forms.append(np.column_stack([first, second]).astype(np.int32).view(np.uint64).ravel())
    return np.unique(np.concatenate(forms))


def contents(path: Path) -> Iterator[bytes]:
    """Yield what a file holds; of Parquet the columns, too, of which each is packed there."""
    content = path.read_bytes()
    yield content
    if content[:4] == b"PAR1":
        for column in pq.ParquetFile(path).read().columns:
            for chunk in column.chunks:
                yield from (bytes(each) for each in chunk.buffers() if each is not None)


def traces(folder: Path, device: pa.Table) -> dict[str, int]:
    """Return how many bytes of each file, also those in scratch folders, begin a position."""
    wanted = forms_of(device)
    texts = [repr(each).encode() for each in device["lat"].to_pylist()[::500]]
    found: dict[str, int] = {}
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        hits = 0
        for content in contents(path):
            hits += sum(content.count(text) for text in texts)
            for start in range(8):  # at any offset: a position is a member of longer records, too
                whole = max(0, len(content) - start) // 8
                words = np.frombuffer(content[start : start + 8 * whole], np.uint64)
                places = np.minimum(np.searchsorted(wanted, words), len(wanted) - 1)
                hits += int((wanted[places] == words).sum())
        if hits:
            found[str(path.relative_to(folder))] = hits
    return found


def people() -> pa.Table:
    """Return the fixes of both, who are never near each other, so that no position is of both."""
    table = table_of({ERASED: make_person(0, days=6), LEFT: make_person(1, days=6)})
    is_erased = pc.equal(table["device"], ERASED).to_numpy()
    for name, away in (("lat", 20), ("lon", 30)):
        moved = np.round(table[name].to_numpy() - away * is_erased, 7)
        index = table.schema.get_field_index(name)
        table = table.set_column(index, table.schema.field(name), pa.array(moved))
    return table


def of_this_version(history: Path, table: pa.Table, half: int) -> None:
    write_history(history, table, 0, half)
    compact(history)
    write_history(history, table, half)


def of_an_earlier_version(history: Path, table: pa.Table, half: int) -> None:
    dates = to_stored(table)["date"].to_pylist()
    month = of_dates(table, str(dates[0]), str(dates[half]))
    history.mkdir()
    write_outdated(history, month, None, table.slice(month.num_rows))


@pytest.mark.parametrize("write", [of_this_version, of_an_earlier_version])
def test_no_position_is_left(tmp_path: Path, write: Callable[[Path, pa.Table, int], None]) -> None:
    table = people()
    erased, left = (table.filter(pc.equal(table["device"], each)) for each in (ERASED, LEFT))
    history, places = tmp_path / "history", tmp_path / "places"
    write(history, table, table.num_rows // 2)
    write_places(LocalEngine(1), str(history), str(places))
    before = traces(tmp_path, erased)
    # Otherwise the search would prove nothing: both kinds of files, and what places are made from.
    assert sum("compacted-" in path for path in before) == 1
    assert sum("location-" in path for path in before) > 1
    assert any(path.startswith("places/") for path in before)
    words = ("--device", ERASED, "--places", str(places), "--yes")
    assert main(["history", "erase", "--out", str(history), *words]) == 0
    assert traces(tmp_path, erased) == {}
    others = traces(tmp_path, left)
    assert others.keys() >= {path for path in before if "location-" in path}
    assert any(path.startswith("places/") for path in others)
