"""A history as versions before decision 42 have written it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark.fixes.schema import DAY_MS, DICTIONARY, date_text
from waylog.history.file_names import OffsetSpan
from waylog.history.history_reader import (
    MANIFEST,
    RUNS_KEY,
    CompactedDate,
    CompactedFile,
    Manifest,
    encode_runs,
)
from waylog.history.row_layout import HISTORY_SCHEMA, to_units

PACKED_SCHEMA = pa.schema(
    [
        pa.field(f"{field.name}_e7", pa.int32(), nullable=False)
        if field.name in {"lat", "lon"}
        else field
        for field in HISTORY_SCHEMA
    ]
)


def write_outdated(out: Path, month: pa.Table, day: pa.Table | None, landed: pa.Table) -> None:
    """Write rows of partition 0: a packed month, a packed date of another one, and landed ones."""
    [name] = {date[:7] for date, _ in _by_date(month)}
    spans = {each: [_span(month)] for each, _ in _by_date(month)}
    dates = {name: CompactedDate([_pack(out, name, month)], [_span(month)], spans)}
    if day is not None:
        [(date, _)] = list(_by_date(day))
        dates[date] = CompactedDate([_pack(out, date, day)], [_span(day)])
    (out / MANIFEST).write_bytes(msgspec.json.encode(Manifest(7, dates)))
    span = _span(landed)
    for each, rows in _by_date(landed):
        folder = out / f"date={each}"
        folder.mkdir(parents=True, exist_ok=True)
        file = f"location-{span.partition}-{span.first:020d}-{span.last:020d}.parquet"
        pq.write_table(rows, folder / file, compression="zstd", use_dictionary=_dictionary())


def _pack(out: Path, period: str, rows: pa.Table) -> CompactedFile:
    rows = rows.sort_by([("device", "ascending"), ("time", "ascending")])
    units = [
        pa.array(to_units(column.to_numpy())) if field.name in {"lat", "lon"} else column
        for field, column in zip(rows.schema, rows.columns, strict=True)
    ]
    path = f"date={period}/compacted-0123456789ab-00000.parquet"
    (out / path).parent.mkdir(parents=True)
    with pq.ParquetWriter(
        out / path,
        PACKED_SCHEMA,
        compression="zstd",
        use_dictionary=_dictionary(),
        column_encoding={"lat_e7": "BYTE_STREAM_SPLIT", "lon_e7": "DELTA_BINARY_PACKED"},
    ) as writer:
        writer.write_table(pa.Table.from_arrays(units, schema=PACKED_SCHEMA), row_group_size=64)
        counts = pc.value_counts(rows["device"]).to_pylist()
        runs = [(each["values"], each["counts"]) for each in counts]
        writer.add_key_value_metadata({RUNS_KEY: encode_runs(runs)})
    return CompactedFile(path, rows.num_rows, (out / path).stat().st_size)


def _dictionary() -> list[str]:
    return [name for name in DICTIONARY if name in HISTORY_SCHEMA.names]


def _span(rows: pa.Table) -> OffsetSpan:
    offsets = rows["kafka_offset"].to_numpy()
    return OffsetSpan(0, int(offsets.min()), int(offsets.max()))


def _by_date(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    days = np.floor_divide(rows["time"].to_numpy(), DAY_MS)
    for day in np.unique(days).tolist():
        yield date_text(day), rows.filter(pa.array(days == day))
