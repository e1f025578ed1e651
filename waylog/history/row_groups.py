"""Reads a Parquet file of any size in memory that depends only on the size of its row groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

#: The default number of rows that are in memory at once.
ROWS: Final = 1 << 17


def read_row_groups(
    parquet: pq.ParquetFile,
    columns: Sequence[str] | None = None,
    *,
    rows: int = ROWS,
    groups: Sequence[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield batches in file order; row groups are joined to at least `rows` rows.

    A row group that is much larger is split. Arrow's own iterator keeps 0.3 MB for every row group
    that it has read, for as long as it exists; so a new one is created every few row groups.
    """
    metadata = parquet.metadata
    waiting: list[int] = []
    count = 0
    for group in range(metadata.num_row_groups) if groups is None else groups:
        waiting.append(group)
        count += metadata.row_group(group).num_rows
        if count >= rows:
            yield from _read(parquet, columns, waiting, rows)
            waiting, count = [], 0
    if waiting:
        yield from _read(parquet, columns, waiting, rows)


def _read(
    parquet: pq.ParquetFile, columns: Sequence[str] | None, groups: list[int], rows: int
) -> Iterator[pa.RecordBatch]:
    # Several row groups hold a bit more than `rows`; only one that is much larger is cut.
    yield from parquet.iter_batches(2 * rows, row_groups=groups, columns=columns, use_threads=False)
