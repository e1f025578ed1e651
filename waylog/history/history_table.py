"""A history as one table, for programs and notebooks: `waylog.open_history`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from waylog.history.file_names import HistoryFile, is_outdated
from waylog.history.history_reader import (
    HistoryReader,
    HistoryUnreadable,
    TrackRow,
    period_bounds_ms,
)
from waylog.history.row_layout import STORED_SCHEMA, to_stored
from waylog.history.storage_errors import unavailable

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow.dataset as ds
    from pyspark.sql import DataFrame, SparkSession

#: A time: aware, or a date or text (ISO 8601) that means midnight UTC if it has no time of day.
Moment = datetime | date | str

_EARLIEST_MS: Final = -(1 << 62)
_LATEST_MS: Final = 1 << 62
_ATTEMPTS: Final = 10


class HistoryTable:
    """The rows of a history at a folder or URL; made by `waylog.open_history`.

    Columns and types are those of the files (docs/history.md). Files that are exchanged meanwhile
    are found again by `files`, `table` and `track`. What `dataset`, `duckdb`, `polars` and `spark`
    return reads later what counted when it was made; if a packing has deleted files since, reading
    fails, and asking again helps. A `start` is inclusive, a `stop` is not.
    """

    def __init__(self, url: str) -> None:
        """Raises ConfigError for what is no URL; HistoryUnreadable, also for a missing folder."""
        try:
            self._reader = HistoryReader(url)
            storage = self._reader.storage
            if not self._reader.files() and not storage.is_there():
                raise HistoryUnreadable(
                    f"{storage.path if storage.local else storage.place}: there is no such folder; "
                    "name that of a history, which `waylog history run` writes"
                )
        except OSError as error:
            raise HistoryUnreadable(str(unavailable(url, error))) from error

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return STORED_SCHEMA

    def files(self, start: Moment | None = None, stop: Moment | None = None) -> list[str]:
        """Return paths, or URLs, of the files that count now and may have rows of a time.

        Raises HistoryUnreadable; ValueError for a time that cannot be understood.
        """
        storage = self._reader.storage
        base = storage.path if storage.local else storage.url.partition("?")[0].rstrip("/")
        return [f"{base}/{file.path}" for file in self._current(start, stop)]

    def table(
        self,
        columns: Sequence[str] | None = None,
        devices: Sequence[str] | None = None,
        start: Moment | None = None,
        stop: Moment | None = None,
    ) -> pa.Table:
        """Return rows as an Arrow table, in the order of the files: some columns, devices, times.

        All of it is in memory. Raises HistoryUnreadable; ValueError for an unknown column or a time
        that cannot be understood.
        """
        names = STORED_SCHEMA.names if columns is None else list(columns)
        if unknown := [name for name in names if name not in STORED_SCHEMA.names]:
            raise ValueError(
                f"no column {', '.join(unknown)}; there are {', '.join(STORED_SCHEMA.names)}"
            )
        schema = pa.schema([STORED_SCHEMA.field(name) for name in names])
        from_ms, stop_ms = _bounds_ms(start, stop)
        self._refresh()
        try:
            return self._reader.retried(
                lambda: self._table(schema, devices, from_ms, stop_ms), _ATTEMPTS
            )
        except OSError as error:
            raise HistoryUnreadable(f"the history changes: {error}") from error

    def track(
        self, device: str, start: Moment | None = None, stop: Moment | None = None
    ) -> pa.Table:
        """Return the points of a device by time, each once: time, position and what was measured.

        Raises as `table` does.
        """
        from_ms, stop_ms = _bounds_ms(start, stop)
        self._refresh()
        rows = self._reader.track_table(device, from_ms, stop_ms - 1)
        schema = pa.schema([STORED_SCHEMA.field(name) for name in TrackRow._fields])
        return to_stored(rows, schema)

    def pandas(
        self,
        columns: Sequence[str] | None = None,
        devices: Sequence[str] | None = None,
        start: Moment | None = None,
        stop: Moment | None = None,
    ) -> pd.DataFrame:
        """Return what `table` returns as a DataFrame of pandas; `date` is of type datetime64."""
        return self.table(columns, devices, start, stop).to_pandas(date_as_object=False)

    def dataset(self, start: Moment | None = None, stop: Moment | None = None) -> ds.Dataset:
        """Return the files that may have rows of a time as a dataset of pyarrow.

        Raises HistoryUnreadable, also for files of an earlier version, whose columns are others.
        """
        import pyarrow.dataset as ds

        storage = self._reader.storage
        paths = [f"{storage.path}/{file.path}" for file in self._uniform(start, stop)]
        return ds.FileSystemDataset.from_paths(
            paths, STORED_SCHEMA, ds.ParquetFileFormat(), filesystem=storage.file_system
        )

    def duckdb(
        self,
        connection: duckdb.DuckDBPyConnection | None = None,
        start: Moment | None = None,
        stop: Moment | None = None,
    ) -> duckdb.DuckDBPyRelation:
        """Return a relation of DuckDB that reads the files. Raises as `dataset` does."""
        import duckdb

        own = connection or duckdb.connect()
        files = self._uniform(start, stop)
        if not files or not self._reader.storage.local:
            return own.from_arrow(self.dataset(start, stop))
        return own.read_parquet(
            [f"{self._reader.storage.path}/{file.path}" for file in files], hive_partitioning=False
        )

    def polars(self, start: Moment | None = None, stop: Moment | None = None) -> pl.LazyFrame:
        """Return a LazyFrame of Polars that reads the files. Raises as `dataset` does."""
        import polars as pl

        files = self._uniform(start, stop)
        if not files or not self._reader.storage.local:
            return pl.scan_pyarrow_dataset(self.dataset(start, stop))
        return pl.scan_parquet(
            [f"{self._reader.storage.path}/{file.path}" for file in files], hive_partitioning=False
        )

    def spark(
        self, session: SparkSession, start: Moment | None = None, stop: Moment | None = None
    ) -> DataFrame:
        """Return a DataFrame of Spark that reads the files. Raises as `dataset` does."""
        base = self._reader.storage.spark_url.partition("?")[0].rstrip("/")
        paths = [f"{base}/{file.path}" for file in self._uniform(start, stop)]
        if not paths:
            from pyspark.sql.pandas.types import from_arrow_schema

            return session.createDataFrame([], from_arrow_schema(STORED_SCHEMA))
        return session.read.parquet(*paths)

    def _refresh(self) -> None:
        try:
            self._reader.refresh()
        except OSError as error:
            raise HistoryUnreadable(str(unavailable(self._reader.storage.place, error))) from error

    def _current(self, start: Moment | None, stop: Moment | None) -> list[HistoryFile]:
        from_ms, stop_ms = _bounds_ms(start, stop)
        self._refresh()
        return [file for file in self._reader.files() if _overlaps(file.date, from_ms, stop_ms)]

    def _uniform(self, start: Moment | None, stop: Moment | None) -> list[HistoryFile]:
        files = self._current(start, stop)
        if older := sum(is_outdated(file.path) for file in files):
            raise HistoryUnreadable(
                f"{self._reader.storage.place}: {older} files are of an earlier version and have "
                "other columns; `waylog history compact` rewrites them, and `table` reads them"
            )
        return files

    def _table(
        self, schema: pa.Schema, devices: Sequence[str] | None, from_ms: int, stop_ms: int
    ) -> pa.Table:
        names = {*schema.names, "time", *(() if devices is None else ("device",))}
        wanted = None if devices is None else pa.array(devices, pa.string())
        found: list[pa.RecordBatch] = []
        try:
            for file in self._reader.files():
                if not _overlaps(file.date, from_ms, stop_ms):
                    continue
                for batch in self._reader.scan_file(file, devices, sorted(names - {"date"})):
                    found.append(to_stored(_within(batch, wanted, from_ms, stop_ms), schema))
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise HistoryUnreadable(f"{self._reader.storage.place}: {error}") from error
        return pa.Table.from_batches(found, schema)


def _overlaps(period: str, from_ms: int, stop_ms: int) -> bool:
    first, end = period_bounds_ms(period)
    return first < stop_ms and end > from_ms


def _within(
    batch: pa.RecordBatch, devices: pa.Array | None, from_ms: int, stop_ms: int
) -> pa.RecordBatch:
    own = pc.and_(pc.greater_equal(batch["time"], from_ms), pc.less(batch["time"], stop_ms))
    if devices is not None:
        own = pc.and_(own, pc.is_in(batch["device"], devices))
    return batch.filter(own)


def _bounds_ms(start: Moment | None, stop: Moment | None) -> tuple[int, int]:
    return (
        _EARLIEST_MS if start is None else _time_ms(start),
        _LATEST_MS if stop is None else _time_ms(stop),
    )


def _time_ms(moment: Moment) -> int:
    given: Any = moment
    if isinstance(given, str):
        given = (
            date.fromisoformat(given)
            if len(given) <= len("YYYY-MM-DD")
            else datetime.fromisoformat(given)
        )
    if not isinstance(given, datetime):
        given = datetime(given.year, given.month, given.day, tzinfo=UTC)
    if given.tzinfo is None:
        raise ValueError(f"{moment}: say of which time zone, such as {given.isoformat()}+00:00")
    time_ms: int = round(given.timestamp() * 1000)
    return time_ms
