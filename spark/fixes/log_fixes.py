"""Fixes from ranges of the log; records that are not fixes go to topic `error`."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message

from spark.fixes.log_source import OffsetRange, read_range
from spark.fixes.schema import LogRecord, Unreadable, decode_records
from waylog.cli import CommandError
from waylog.config import ConfigError
from waylog.kafka.clients import LogUnreachable, producer_config
from waylog.kafka.errors import not_stored_text
from waylog.kafka.librdkafka_producer import LibrdkafkaProducer
from waylog.kafka.topics import ERROR
from waylog.messages import Rejected, encode, shortened
from waylog.sealing.sealing import shared_key_ring
from waylog.sealing.unopened import Unopened

logger = logging.getLogger(__name__)

# Encoded in Base64, this fits into the largest record that every broker accepts.
_RAW_BYTES_MAX: Final = 512 * 1024


#: Seconds until records must be stored, and between two looks whether to stop.
_STORE_S: Final = 60.0
_STEP_S: Final = 0.5


def next_ends(
    starts: Mapping[int, int], ends: Mapping[int, int], rows: int | None
) -> dict[int, int]:
    """Return the end of a batch of about `rows` records at most, given the ends of the log.

    Partitions share the rows in proportion to their waiting records, so that none falls behind. If
    the end is before the start (the log lost its tail), the partition does not move.
    """
    waiting = {partition: max(0, end - starts.get(partition, 0)) for partition, end in ends.items()}
    total = sum(waiting.values())
    result = dict(starts)
    for partition, count in waiting.items():
        if rows is not None and total > rows:
            # Round up: a partition with one record among millions must advance as well.
            share = min(count, -(-count * rows // total))
        else:
            share = count
        result[partition] = starts.get(partition, 0) + share
    return result


def read_fixes(
    servers: str, topic: str, wanted: OffsetRange, stopping: threading.Event | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the fixes of a range; other records go to topic `error` before the range is done.

    A batch that is repeated sends its unreadable records to `error` again. `stopping` ends a wait
    for the log with LogUnreachable.
    """
    for messages in read_range(servers, topic, wanted, stopping):
        batch, unreadable = decode_records(wanted.partition, [_record(each) for each in messages])
        if unreadable:
            refuse_sealed(servers, unreadable)
            report_unreadable(servers, topic, wanted.partition, unreadable, stopping)
        if batch.num_rows:
            yield batch


def refuse_sealed(servers: str, unreadable: Sequence[Unreadable]) -> None:
    """Raise CommandError for values that lack only their key: the history would have a gap.

    Raises LogUnreachable as well.
    """
    if shared_key_ring(servers) is not None:
        return
    try:
        Unopened(servers).check(each.value for each in unreadable)
    except ConfigError as error:
        raise CommandError(str(error)) from None


def _record(message: Message) -> LogRecord:
    return LogRecord(message.offset(), message.key(), message.value())  # type: ignore[arg-type]


def report_unreadable(
    servers: str,
    topic: str,
    partition: int,
    unreadable: Sequence[Unreadable],
    stopping: threading.Event | None = None,
) -> None:
    """Write records that are not fixes to topic `error`; raises LogUnreachable if that fails.

    It also fails if `stopping` is set while the log does not answer. What is too large for the
    topic is shortened, and left out if that is too large too.
    """
    logger.warning(
        "%s-%d: %d unreadable records go to topic %s, the first at offset %d: %s",
        topic,
        partition,
        len(unreadable),
        ERROR,
        unreadable[0].offset,
        # The reason contains names of members and types, never values.
        unreadable[0].reason,
    )
    letters: list[_Letter] = []
    for record in unreadable:
        raw = record.value or b""
        cut = f" (cut from {len(raw)} bytes)" if len(raw) > _RAW_BYTES_MAX else ""
        rejected = Rejected(
            reason=record.reason + cut,
            source="history",
            time=time.time_ns() // 1_000_000,
            raw=raw[:_RAW_BYTES_MAX],
            device=record.key.decode("utf-8", "replace") if record.key is not None else None,
            headers={
                "topic": topic,
                "partition": str(partition),
                "offset": str(record.offset),
            },
        )
        letters.append((record.key, rejected))
    refused = _store(servers, letters, stopping)
    # Of several records in one request none is stored if they are too large together.
    refused = _store(servers, refused, stopping, at_once=1)
    short: list[_Letter] = [(None, shortened(rejected)) for _, rejected in refused]
    left_out = _store(servers, short, stopping, at_once=1)
    if left_out:
        logger.error(
            "%s-%d: %d unreadable records are left out, the first at offset %s: topic %s takes no "
            "record so large; raise its max.message.bytes",
            *(topic, partition, len(left_out), (left_out[0][1].headers or {}).get("offset"), ERROR),
        )


#: The key and value of a record of topic `error`.
_Letter = tuple[bytes | None, Rejected]


def _store(
    servers: str,
    letters: Sequence[_Letter],
    stopping: threading.Event | None,
    *,
    at_once: int = 10_000,
) -> list[_Letter]:
    """Append records to topic `error`, `at_once` in a request; return those that are too large.

    Raises LogUnreachable.
    """
    if not letters:
        return []
    failures: list[str] = []
    too_large: list[_Letter] = []
    keys = shared_key_ring(servers)
    producer = LibrdkafkaProducer(
        producer_config(servers, "waylog-history", batch_num_messages=at_once)
    )

    def failed(letter: _Letter, error: KafkaError) -> None:
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            too_large.append(letter)
        else:
            failures.append(not_stored_text(error, ERROR))

    def on_delivery(letter: _Letter, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed(letter, error)

    for letter in letters:
        key, rejected = letter
        while True:
            try:
                value = encode(rejected)
                if keys is not None:
                    value = keys.seal_value(ERROR, value, key)
                producer.produce(ERROR, value, key, on_delivery=partial(on_delivery, letter))
                break
            except BufferError:
                producer.poll(0.1)
            except KafkaException as error:
                failed(letter, error.args[0])
                break
    deadline = time.monotonic() + _STORE_S
    # In steps: Python's signal handlers run between them.
    while (waiting := producer.finish(_STEP_S, ERROR)) and time.monotonic() < deadline:
        if failures or (stopping is not None and stopping.is_set()):
            break
    if waiting or failures:
        raise LogUnreachable(
            f"unreadable records could not be written to topic {ERROR}: "
            f"{failures[0] if failures else waiting}"
        )
    return too_large
