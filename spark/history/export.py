"""Export of all fixes of devices.

A pass over the history reads the rows of as many devices as fit into memory together, so that the
number of passes depends on the number of rows and not on that of devices. A device that does not
fit is read one period after the other, so that a year takes no more memory than a month.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from waylog.history.days import days_of_rows
from waylog.history.history_reader import HistoryReader, period_bounds_ms
from waylog.history.row_layout import HISTORY_SCHEMA
from waylog.history.track_writers import TrackWriter

#: Rows of several devices that are held at once: some 200 MB.
ROWS_AT_ONCE: Final = 1_000_000


def export(
    reader: HistoryReader,
    rows: Mapping[str, int],
    writer: TrackWriter,
    from_ms: int,
    to_ms: int,
    *,
    rows_at_once: int = ROWS_AT_ONCE,
    advance: Callable[[int], object] = lambda rows: None,
) -> tuple[int, int]:
    """Write the fixes of devices from a time up to another; return how many, and of how many.

    `rows` are the devices with their numbers of rows, of `rows_by_device`. `advance` is called with
    the rows that are done.
    """
    count = with_fixes = 0
    for devices in _together(rows, rows_at_once):
        for device, days in _read(reader, devices, from_ms, to_ms):
            before = count
            writer.begin(device)
            for day in days:
                writer.day(day)
                count += day.num_rows
            writer.end()
            with_fixes += count > before
            advance(rows[device])
    writer.close()
    return count, with_fixes


def _together(rows: Mapping[str, int], rows_at_once: int) -> Iterator[list[str]]:
    """Yield groups of devices that are read together."""
    group: list[str] = []
    size = 0
    for device, count in rows.items():
        if group and size + count > rows_at_once:
            yield group
            group, size = [], 0
        group.append(device)
        size += count
    if group:
        yield group


def _read(
    reader: HistoryReader, devices: Sequence[str], from_ms: int, to_ms: int
) -> Iterator[tuple[str, Iterator[pa.Table]]]:
    """Yield each device with its fixes, day by day."""
    names = _periods(reader, from_ms, to_ms)
    periods = (_period(reader, each, devices, from_ms, to_ms) for each in names)
    if len(devices) == 1:
        yield devices[0], (day for rows in periods for day in days_of_rows(_sorted(rows)))
        return
    rows = _sorted(pa.concat_tables([HISTORY_SCHEMA.empty_table(), *periods]), "device")
    runs = pc.run_end_encode(rows["device"].combine_chunks())
    ends = runs.run_ends.to_pylist()
    own = dict(zip(runs.values.to_pylist(), pairwise([0, *ends]), strict=True))
    for device in devices:
        start, stop = own.get(device, (0, 0))
        yield device, days_of_rows(rows.slice(start, stop - start))


def _periods(reader: HistoryReader, from_ms: int, to_ms: int) -> Iterator[str]:
    for period in reader.periods():
        start, stop = period_bounds_ms(period)
        if start <= to_ms and stop > from_ms:
            yield period


def _sorted(rows: pa.Table, *first: str) -> pa.Table:
    return rows.sort_by([(name, "ascending") for name in (*first, "time", "kafka_offset")])


def _period(
    reader: HistoryReader, period: str, devices: Sequence[str], from_ms: int, to_ms: int
) -> pa.Table:
    """Return the fixes of devices in a period, as they lie in its files."""
    return reader.retried(
        lambda: pa.Table.from_batches(
            [_own(batch, devices, from_ms, to_ms) for batch in reader.scan(period, devices)],
            HISTORY_SCHEMA,
        )
    )


def _own(batch: pa.RecordBatch, devices: Sequence[str], from_ms: int, to_ms: int) -> pa.RecordBatch:
    within = pc.and_(pc.greater_equal(batch["time"], from_ms), pc.less_equal(batch["time"], to_ms))
    names = batch["device"].cast(pa.string())
    own = batch.filter(pc.and_(pc.is_in(names, pa.array(devices, pa.string())), within))
    return own.select(HISTORY_SCHEMA.names).cast(HISTORY_SCHEMA)
