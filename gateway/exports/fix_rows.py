"""The fixes of a device, day by day: rows of the history, and points in memory that it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gateway.exports.questions import ExportQuestion
from gateway.tracks.track_points import MEASURED, Points, degrees, measured, merged
from waylog.history.days import days_of_rows
from waylog.history.history_reader import HistoryReader, HistoryUnreadable, period_bounds_ms
from waylog.history.row_layout import FIX_FIELDS

#: Order of arrival in the log, where a file says it.
_OFFSET: Final = "kafka_offset"


#: The columns of the rows; memory does not have all of them.
SCHEMA: Final = pa.schema([field.with_nullable(True) for field in FIX_FIELDS])


def days_of(
    history: HistoryReader | None, device: str, question: ExportQuestion, recent: Points
) -> Iterator[pa.Table]:
    """Yield the days (UTC) of a device that have fixes, with the columns of SCHEMA.

    `recent` are its points in memory, merged. Of what is in the history, too, the row of the
    history counts, which has all members of the fix. Raises HistoryUnreadable, OSError.
    """
    begin = 0
    times = recent["time"]
    for period in () if history is None else history.periods():
        assert history is not None
        start, stop = period_bounds_ms(period)
        if start > question.to_ms or stop <= question.from_ms:
            continue
        first, last = np.searchsorted(times, (start, stop)).tolist()
        first = max(first, begin)
        yield from days_of_rows(_rows_of(device, recent[begin:first]))
        own = _period(history, period, device, question)
        missing = recent[first:last][~_is_in(recent[first:last], own)]
        yield from days_of_rows(_by_time(pa.concat_tables([own, _rows_of(device, missing)])))
        begin = max(begin, last)
    yield from days_of_rows(_rows_of(device, recent[begin:]))


def recent_of(points: list[Points], question: ExportQuestion) -> Points:
    """Return the points in memory that a question is about, by time, each once."""
    found = merged(*points)
    times = found["time"]
    return found[(times >= question.from_ms) & (times <= question.to_ms)]


def _rows_of(device: str, points: Points) -> pa.Table:
    """Return points in memory as rows: what memory does not have is missing."""
    known: dict[str, list[Any]] = {
        "device": [device] * len(points),
        "user": [device.partition("/")[0]] * len(points),
        "time": points["time"].tolist(),
        "lat": degrees(points, "lat"),
        "lon": degrees(points, "lon"),
        **{name: measured(points, name) for name in MEASURED},
    }
    return pa.table(
        {name: known.get(name, [None] * len(points)) for name in SCHEMA.names}, schema=SCHEMA
    )


def _period(history: HistoryReader, period: str, device: str, question: ExportQuestion) -> pa.Table:
    def read() -> pa.Table:
        found = [_own(batch, device, question) for batch in history.scan(period, [device])]
        table = pa.concat_tables([_ordered(SCHEMA).empty_table(), *found])
        return table.sort_by([("time", "ascending"), (_OFFSET, "ascending")])

    try:
        return history.retried(read).select(SCHEMA.names)
    except FileNotFoundError as error:
        raise HistoryUnreadable(f"the history of {period} changes: {error}") from error


def _ordered(schema: pa.Schema) -> pa.Schema:
    return schema.append(pa.field(_OFFSET, pa.int64()))


def _own(batch: pa.RecordBatch, device: str, question: ExportQuestion) -> pa.Table:
    """Return the rows of a device and its time; files of earlier versions lack some columns."""
    rows = pa.Table.from_batches([batch])
    rows = rows.filter(pc.equal(rows["device"].cast(pa.string()), device))
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in _ordered(SCHEMA)
    ]
    table = pa.table(columns, schema=_ordered(SCHEMA))
    times = table["time"]
    return table.filter(
        pc.and_(pc.greater_equal(times, question.from_ms), pc.less_equal(times, question.to_ms))
    )


def _is_in(points: Points, rows: pa.Table) -> NDArray[np.bool_]:
    """Tell of each point whether there is a row of the same time and place."""
    places = (np.rint(rows[name].to_numpy() * 1e7).astype(np.int64) for name in ("lat", "lon"))
    columns = (rows["time"].to_numpy(), *places)
    there = set(zip(*(column.tolist() for column in columns), strict=True))
    keys = zip(*(points[name].tolist() for name in ("time", "lat", "lon")), strict=True)
    return np.fromiter((key in there for key in keys), np.bool_, len(points))


def _by_time(rows: pa.Table) -> pa.Table:
    times = rows["time"].to_numpy()
    if (times[1:] >= times[:-1]).all():
        return rows
    return rows.take(pa.array(np.argsort(times, kind="stable")))
