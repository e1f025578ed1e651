"""Validation of batches by the settings of a topic, before the append: Kafka's LogValidator.

Batches are decompressed only if a setting requires it: a compacted topic requires keys, and
`compression.type` may require another codec.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from broker_core.errors import InvalidRecord, InvalidTimestamp, MessageTooLarge
from broker_core.log.config import PRODUCERS_CHOICE, LogConfig
from broker_core.log.steps import result_of
from broker_core.protocol.batch_header import BatchHeader
from broker_core.protocol.compression import EXPANDED_BYTES_MAX, codec_named
from broker_core.protocol.produced_batches import BATCHES_MAX, inspect_compressed, validate_batches
from broker_core.protocol.recompression import recompress
from broker_core.protocol.record_reader import RecordReader
from broker_core.protocol.stored_batches import scan_batches

#: Bytes without compression that are compressed as fast as other requests are handled.
_CHEAP_BYTES: Final = 16 * 1024
#: Bytes to which compressed records are expanded as fast, and of how many that is tried.
_CHEAP_EXPANDED_BYTES: Final = 64 * 1024
_CHEAP_COMPRESSED_BYTES: Final = 32 * 1024
#: Records without a key that an answer names.
_TOLD_MAX: Final = 1_000
#: The timestamp of a record that has none.
_NO_TIMESTAMP: Final = -1

Batches = bytearray | memoryview


def is_dear(batches: Batches, config: LogConfig) -> bool:
    """Tell whether opening these batches may take long: they are expanded or compressed anew."""
    # More than there may be are refused when they are appended.
    headers, _, _ = scan_batches(batches, check_crc=False, count_max=BATCHES_MAX)
    if config.compacts and any(header.compression for header in headers):
        return True
    if config.compression_type == PRODUCERS_CHOICE:
        return False
    codec = codec_named(config.compression_type)
    others = [header for header in headers if header.compression != codec]
    return (
        any(header.compression for header in others)
        or sum(header.size for header in others) > _CHEAP_BYTES
    )


def open_if_cheap(
    batches: Batches, config: LogConfig, log_name: str
) -> tuple[Batches, list[BatchHeader]] | None:
    """Return what `open_batches` returns, None if that is more than a batch that expands to little.

    Raises what `open_batches` raises.
    """
    headers, _, _ = scan_batches(batches, check_crc=False, count_max=2)
    if len(headers) != 1 or headers[0].size > _CHEAP_COMPRESSED_BYTES:
        return None
    is_changed = config.compression_type != PRODUCERS_CHOICE
    limit = _CHEAP_BYTES if is_changed else _CHEAP_EXPANDED_BYTES
    try:
        return result_of(open_in_steps(batches, config, log_name, expanded_bytes_max=limit))
    except MessageTooLarge:
        return None


def open_batches(
    batches: Batches, config: LogConfig, log_name: str
) -> tuple[Batches, list[BatchHeader]]:
    """Return the batches in the form to be stored, and their headers; any thread may call it.

    Raises CorruptMessage, InvalidRecord, MessageTooLarge, UnsupportedCompressionType.
    """
    return result_of(open_in_steps(batches, config, log_name))


def open_in_steps(
    batches: Batches,
    config: LogConfig,
    log_name: str,
    *,
    expanded_bytes_max: int = EXPANDED_BYTES_MAX,
) -> Generator[int, None, tuple[Batches, list[BatchHeader]]]:
    """Do what `open_batches` does, but yield the size of each batch, in bytes, after opening it.

    Raises MessageTooLarge also for a batch that expands to more than `expanded_bytes_max`.
    """
    headers = validate_batches(batches, max_batch_bytes=config.max_message_bytes)
    if config.compression_type != PRODUCERS_CHOICE:
        codec = codec_named(config.compression_type)
        if any(header.compression != codec for header in headers):
            changed = bytearray()
            for header in headers:
                changed += recompress(batches, header, codec, expanded_bytes_max)
                yield header.size
            batches = changed
            headers = validate_batches(batches, max_batch_bytes=config.max_message_bytes)
    if config.compacts:
        for header in headers:
            if header.compression:
                inspect_compressed(batches, header, max_bytes=expanded_bytes_max)
            if header.has_null_key:
                raise _without_keys(batches, header, log_name)
            yield header.size
    return batches, headers


def check_times(headers: list[BatchHeader], config: LogConfig, now_ms: int) -> None:
    """Raise InvalidTimestamp if records are too far from the broker's time, or before 1970.

    Apache Kafka takes most negative timestamps, but can write none of them again: its cleaner
    fails for ever at such a record.
    """
    if config.uses_log_append_time:
        return
    for header in headers:
        newest, oldest = header.newest_timestamp, header.oldest_timestamp
        if oldest < _NO_TIMESTAMP:
            raise InvalidTimestamp(f"timestamp {oldest} is before 1970; -1 stands for none")
        if newest - now_ms > config.message_timestamp_after_max_ms:
            raise InvalidTimestamp(f"timestamp {newest} is too far from the broker's {now_ms}")
        if now_ms - oldest > config.message_timestamp_before_max_ms and oldest != _NO_TIMESTAMP:
            raise InvalidTimestamp(f"timestamp {oldest} is too far from the broker's {now_ms}")


def _without_keys(batches: Batches, header: BatchHeader, log_name: str) -> InvalidRecord:
    error = InvalidRecord(f"{log_name} is compacted: a record needs a key")
    reason = "Compacted topic cannot accept message without key in topic partition"
    told: list[tuple[int, str]] = []
    reader = RecordReader(batches, header)
    index = 0
    while len(told) < _TOLD_MAX and (piece := reader.read(_TOLD_MAX)):
        for _, _, key, _, _ in piece:
            if key is None:
                told.append((index, f"{reason} {log_name}."))
            index += 1
    error.record_errors = tuple(told[:_TOLD_MAX])
    return error
