"""Validation of batches by the settings of a topic, before the append: Kafka's LogValidator.

Batches are decompressed only if a setting requires it: a compacted topic requires keys, and
`compression.type` may require another codec.
"""

from __future__ import annotations

from typing import Final

from broker_core.errors import InvalidRecord, InvalidTimestamp
from broker_core.log.config import LogConfig
from broker_core.protocol.compression import codec_named
from broker_core.protocol.recompression import recompress
from broker_core.protocol.records import (
    BatchHeader,
    inspect_compressed,
    read_records,
    validate_batches,
)

#: The value of `compression.type` that keeps the producer's compression.
_PRODUCERS_CHOICE: Final = "producer"

Batches = bytearray | memoryview


def prepare(
    batches: Batches, config: LogConfig, now_ms: int, log_name: str
) -> tuple[Batches, list[BatchHeader]]:
    """Return the batches in the form to be stored, and their headers.

    Raises CorruptMessage, InvalidRecord, InvalidTimestamp, MessageTooLarge,
    UnsupportedCompressionType.
    """
    headers = validate_batches(batches, max_batch_bytes=config.max_message_bytes)
    if config.compression_type != _PRODUCERS_CHOICE:
        codec = codec_named(config.compression_type)
        if any(header.compression != codec for header in headers):
            batches = recompress(batches, headers, codec)
            headers = validate_batches(batches, max_batch_bytes=config.max_message_bytes)
    for header in headers:
        if config.compacts:
            if header.compression:
                inspect_compressed(batches, header)
            if header.has_null_key:
                raise _without_keys(batches, header, log_name)
        if not config.uses_log_append_time:
            _check_time(header, config, now_ms)
    return batches, headers


def _check_time(header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    newest = header.newest_timestamp
    if (
        newest - now_ms > config.message_timestamp_after_max_ms
        or now_ms - newest > config.message_timestamp_before_max_ms
    ):
        raise InvalidTimestamp(f"timestamp {newest} is too far from the broker's {now_ms}")


def _without_keys(batches: Batches, header: BatchHeader, log_name: str) -> InvalidRecord:
    error = InvalidRecord(f"{log_name} is compacted: a record needs a key")
    reason = "Compacted topic cannot accept message without key in topic partition"
    error.record_errors = tuple(
        (index, f"{reason} {log_name}.")
        for index, record in enumerate(read_records(batches, header))
        if record[2] is None
    )
    return error
