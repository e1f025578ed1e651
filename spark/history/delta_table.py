"""The history as a Delta table, for programs that read these: Spark, Trino, DuckDB, Polars.

The table is a transaction log (`_delta_log`) beside the files that names the current ones; no row
is copied. A commit holds the changes since the last one, so a reader sees the history as it was
before or after a compaction, never in between.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from spark.history.manifest import outdated
from waylog.cli import CommandError
from waylog.history.row_layout import STORED_SCHEMA

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from waylog.history.history_reader import HistoryReader
    from waylog.history.storage import Storage

_LOG: Final = "_delta_log"
#: All columns are nullable, because one that is new is missing in older files.
_SCHEMA: Final = pa.schema([field.with_nullable(True) for field in STORED_SCHEMA])


class Published(NamedTuple):
    """A version of the table."""

    version: int
    files: int
    added: int
    removed: int


def is_published(history: HistoryReader) -> bool:
    """Return whether the history has a Delta table."""
    return bool(history.storage.list_files(_LOG))


def publish(history: HistoryReader) -> Published:
    """Write the current files to the table, which is created the first time.

    Raises CommandError when the table cannot be written, or not all files have the same columns.
    """
    try:
        from deltalake.exceptions import DeltaError
    except ImportError as error:
        raise CommandError(
            "the Delta table needs a library: pip install 'waylog[delta]'"
        ) from error
    history.refresh()
    if outdated(history):
        raise CommandError(
            f"{history.storage.url}: some files are of an earlier version and have other columns; "
            "`waylog history compact` rewrites them"
        )
    sizes = {file.path: file.bytes for file in history.files()}
    try:
        return _publish(history, sizes)
    except (DeltaError, OSError) as error:
        raise CommandError(f"{history.storage.url}: the Delta table: {error}") from error


def _publish(history: HistoryReader, sizes: dict[str, int]) -> Published:
    from deltalake import DeltaTable, Schema
    from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

    url, options = _location(history.storage)
    now = time.time_ns() // 1_000_000
    table = DeltaTable(url, storage_options=options) if is_published(history) else None
    schema: Any = Schema.from_arrow(_SCHEMA)
    # The table of an earlier version gets the present columns together with files that have them.
    renewed = table is not None and table.schema() != schema
    known = {} if renewed else _known(table)
    added = [
        AddAction(path, size, {}, now, True, _statistics(history, path))
        for path, size in sizes.items()
        if known.get(path) != size
    ]
    # A file that was rewritten under its name is only added, because the new entry replaces the
    # old.
    removed = [RemoveAction(path, True, now) for path in known if path not in sizes]
    if table is None:
        create_table_with_add_actions(url, schema, added, name="waylog", storage_options=options)
        table = DeltaTable(url, storage_options=options)
    elif added or removed:
        mode = "overwrite" if renewed else "append"
        table.create_write_transaction([*added, *removed], mode, schema)
        table.update_incremental()
    return Published(table.version(), len(sizes), len(added), len(removed))


def _location(storage: Storage) -> tuple[str, dict[str, str]]:
    """Return the folder's URL and options for the library.

    Raises CommandError for a storage that the library does not support.
    """
    if storage.local:
        return storage.path, {}
    parts = urlsplit(storage.url.replace("s3a://", "s3://", 1))
    if parts.scheme != "s3":
        raise CommandError(f"{storage.url}: a Delta table can be on a local disk or on S3")
    given = dict(parse_qsl(parts.query))
    options = {}
    if endpoint := given.get("endpoint_override"):
        options["AWS_ENDPOINT_URL"] = f"{given.get('scheme', 'https')}://{endpoint}"
        options["AWS_ALLOW_HTTP"] = "true"
    return f"s3://{parts.hostname}{parts.path}", options


def _known(table: DeltaTable | None) -> dict[str, int]:
    """Return the files in the table, with their sizes."""
    if table is None:
        return {}
    actions = pa.table(table.get_add_actions(flatten=True))
    paths, sizes = actions["path"].to_pylist(), actions["size_bytes"].to_pylist()
    return dict(zip(paths, sizes, strict=True))


def _statistics(history: HistoryReader, path: str) -> str:
    """Return the number of rows and the bounds of the time, by which readers skip files."""
    with history.storage.open_input(path) as stream:
        metadata = pq.ParquetFile(stream).metadata
    index = metadata.schema.names.index("time")
    bounds = [
        metadata.row_group(group).column(index).statistics
        for group in range(metadata.num_row_groups)
    ]
    said: dict[str, Any] = {"numRecords": metadata.num_rows}
    if bounds and all(each is not None and each.has_min_max for each in bounds):
        said["minValues"] = _bound(min(each.min_raw for each in bounds))
        said["maxValues"] = _bound(max(each.max_raw for each in bounds))
        said["nullCount"] = {"time": 0, "date": 0}
    return msgspec.json.encode(said).decode()


def _bound(time_ms: int) -> dict[str, str]:
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    text = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"time": text, "date": f"{moment:%Y-%m-%d}"}
