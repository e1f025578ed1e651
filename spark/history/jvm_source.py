"""Staging of rows that were read by Spark's own Kafka connector."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Final

import pyarrow as pa

from spark.fixes.log_fixes import refuse_sealed, report_unreadable
from spark.fixes.schema import LogRecord, decode_records
from spark.fixes.staging import land
from waylog.history.storage import Storage
from waylog.sealing.sealing import is_sealed, shared_key_ring
from waylog.sealing.value_encryption import NotAuthentic
from waylog.sealing.value_keys import KeyRing

_ROWS: Final = 10_000

LandingFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def landing_function(servers: str, topic: str, storage: Storage) -> LandingFunction:
    """Return the function for `mapInArrow` over rows (partition, offset, key, value)."""

    def fixes(partition: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keys = shared_key_ring(servers)
        for batch in batches:
            for start in range(0, batch.num_rows, _ROWS):
                part = batch.slice(start, _ROWS)
                records = map(
                    LogRecord,
                    part["offset"].to_pylist(),
                    part["key"].to_pylist(),
                    part["value"].to_pylist(),
                )
                rows, unreadable = decode_records(partition, _opened(keys, records))
                if unreadable:
                    refuse_sealed(servers, unreadable)
                    report_unreadable(servers, topic, partition, unreadable)
                if rows.num_rows:
                    yield rows

    def land_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        runs = (run for batch in batches for run in _runs(batch))
        for partition, group in groupby(runs, key=lambda run: int(run["partition"][0].as_py())):
            yield from land(fixes(partition, group), storage, None, None)

    return land_batches


def _opened(keys: KeyRing | None, records: Iterable[LogRecord]) -> list[LogRecord]:
    """Return decrypted records, without those whose key was destroyed."""
    if keys is None:
        return list(records)
    opened = []
    for record in records:
        if record.value is None or not is_sealed(record.value):
            opened.append(record)
            continue
        try:
            plain = keys.open_value(record.value, record.key)
        except NotAuthentic:
            plain = record.value
        if plain is not None:
            opened.append(record._replace(value=plain))
    return opened


def _runs(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch where its partition changes; a task usually has one partition."""
    partitions = batch["partition"].to_numpy()
    start = 0
    for end in range(1, len(partitions) + 1):
        if end == len(partitions) or partitions[end] != partitions[start]:
            yield batch.slice(start, end - start)
            start = end
