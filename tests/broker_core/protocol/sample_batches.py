"""Record batches for tests, also of another implementation, and their damage."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import google_crc32c
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import strategies as st

from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.compression import Compression

if TYPE_CHECKING:
    from broker_core.protocol.batch_builder import NewRecord

NOW = 1_700_000_000_000

names = st.text(st.characters(codec="utf-8"), max_size=8)
values = st.none() | st.binary(max_size=40)
new_records = st.tuples(
    st.integers(NOW - 10**9, NOW + 10**9),
    values,
    values,
    st.lists(st.tuples(names, values), max_size=3),
)
batches_of_records = st.lists(new_records, min_size=1, max_size=20)
codecs = st.sampled_from(list(Compression))


def foreign_batch(records: list[NewRecord], codec: int = 0, **producer: int) -> bytearray:
    """Build a batch with aiokafka's builder."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=producer.get("is_transactional", 0),
        producer_id=producer.get("producer_id", -1),
        producer_epoch=producer.get("producer_epoch", -1),
        base_sequence=producer.get("base_sequence", -1),
        batch_size=10**9,
    )
    for offset, (timestamp, key, value, headers) in enumerate(records):
        assert builder.append(offset, timestamp, key, value, list(headers)) is not None
    return bytearray(builder.build())


def sample(count: int = 3, **arguments: Any) -> bytearray:
    """Build a batch of small records; `arguments` are those of `build_batch`."""
    return build_batch([(NOW + i, b"key", b"value %d" % i, []) for i in range(count)], **arguments)


def resealed(batch: bytearray) -> bytearray:
    """Return the batch with the CRC of its changed bytes."""
    struct.pack_into(">I", batch, 17, google_crc32c.value(bytes(batch[21:])))
    return batch


def patched(position: int, layout: str, value: int, batch: bytearray | None = None) -> bytearray:
    """Return a batch with one field replaced and the right CRC; `layout` is that of struct."""
    changed = sample() if batch is None else batch
    struct.pack_into(layout, changed, position, value)
    return resealed(changed)
