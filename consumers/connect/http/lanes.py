"""Divides records among connections, so that those with the same key stay in order."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import count
from typing import Any

from consumers.connect.data.records import SinkRecord


def lanes_of(records: Sequence[SinkRecord], lanes: int) -> list[list[SinkRecord]]:
    """Return the records by lane; all with the same key are in the same lane.

    Records without a key are spread evenly: they have no order among each other.
    """
    divided: list[list[SinkRecord]] = [[] for _ in range(lanes)]
    without_key = count()
    for record in records:
        key = record.key
        number = next(without_key) if key is None else zlib.crc32(_bytes(key))
        divided[number % lanes].append(record)
    return [each for each in divided if each]


def batches_of(
    records: Sequence[SinkRecord], size: int, target: Callable[[SinkRecord], Hashable]
) -> Iterator[list[SinkRecord]]:
    """Yield records that follow each other and have the same target, at most `size` of them."""
    batch: list[SinkRecord] = []
    batch_target: Hashable = None
    for record in records:
        found = target(record) if size > 1 else None
        if batch and (len(batch) >= size or found != batch_target):
            yield batch
            batch = []
        batch.append(record)
        batch_target = found
    if batch:
        yield batch


def order_key(record: SinkRecord) -> Any:
    """Return what holds later records back; without a key none is."""
    key = record.key
    if key is None:
        return record.place
    return key if isinstance(key, (str, bytes, int)) else repr(key)


def _bytes(key: Any) -> bytes:
    if isinstance(key, bytes):
        return key
    return (key if isinstance(key, str) else repr(key)).encode("utf-8", "surrogatepass")
