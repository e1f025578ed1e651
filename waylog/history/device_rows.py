"""The devices that a history has, with their numbers of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from waylog.history.history_reader import device_runs

if TYPE_CHECKING:
    from waylog.history.history_reader import HistoryReader


def rows_by_device(
    reader: HistoryReader, devices: Collection[str], users: Collection[str]
) -> dict[str, int]:
    """Return the number of rows of each device that the history has, of these and all of users'.

    The named devices come first, in their order, and then those of users, sorted.
    """
    counts: Counter[str] = Counter()
    for file in reader.files():
        with reader.storage.open_input(file.path) as stream:
            for device, rows in _devices_in(stream):
                if device in devices or device.partition("/")[0] in users:
                    counts[device] += rows
    return {each: counts[each] for each in (*devices, *sorted(counts)) if each in counts}


def _devices_in(stream: Any) -> Iterator[tuple[str, int]]:
    """Yield the devices of a file with their numbers of rows; one may occur several times."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    parquet = pq.ParquetFile(stream, read_dictionary=["device"])
    runs = device_runs(parquet)
    if runs is not None:
        yield from ((run.device, run.stop - run.start) for run in runs)
        return
    for batch in parquet.iter_batches(columns=["device"], use_threads=False):
        for each in pc.value_counts(batch["device"]).to_pylist():
            yield each["values"], each["counts"]


def devices_of(reader: HistoryReader, user: str) -> list[str]:
    """Return the devices of a user that occur in the history."""
    return list(rows_by_device(reader, (), (user,)))
