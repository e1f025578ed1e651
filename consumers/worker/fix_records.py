"""Fixes out of records that anybody may have written, and what becomes of those that are none.

Consumers of topic `location` read it by the same rules: what one refuses the others refuse too.
"""

from __future__ import annotations

import logging
from typing import Annotated, Final

import msgspec

from consumers.worker.records import InputRecord, OutputRecord
from waylog.kafka.dead_letters import CONNECT_PREFIX
from waylog.kafka.record_headers import headers_of
from waylog.kafka.topics import ERROR
from waylog.malformed import MALFORMED
from waylog.messages import Fix, Rejected, encode

logger = logging.getLogger(__name__)

TRACEPARENT: Final = "traceparent"

# Bounds that make every result fit into a record, whatever other producers have put into the log.
NAME_CHARACTERS_MAX: Final = 1000
RAW_BYTES_MAX: Final = 500_000
TRACEPARENT_BYTES_MAX: Final = 256
HEADERS_BYTES_MAX: Final = 100_000

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARACTERS_MAX)]
#: Times in ms that readers of results keep in 64 bits.
_Time = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class _UsableFix(Fix, kw_only=True, omit_defaults=True, gc=False):
    """A fix within the bounds. To check them while decoding costs a third of Python's time."""

    id: Annotated[str, msgspec.Meta(max_length=NAME_CHARACTERS_MAX)]
    device: _Name
    lat: Annotated[float, msgspec.Meta(ge=-90.0, le=90.0)]
    lon: Annotated[float, msgspec.Meta(ge=-180.0, le=180.0)]
    time: _Time
    received: _Time


_decode = msgspec.json.Decoder(_UsableFix).decode


class NotAFix(ValueError):
    """A record holds no fix that can be used; the message says why."""


def fix_of(value: bytes | None) -> Fix:
    """Return the fix of a record of topic `location`; raises NotAFix.

    Its place is on earth, its device has a name of at most a thousand characters and one line, and
    its times fit into 64 bits.
    """
    if value is None:
        raise NotAFix("the record has no value")
    try:
        fix = _decode(value)
    except MALFORMED as error:
        raise NotAFix(f"not a fix: {error}") from None
    # Keys of states are the device, whose key seals them, and what else they are of, in lines.
    if "\n" in fix.device:
        raise NotAFix("not a fix: the name of the device has a line feed - at `$.device`")
    return fix


def rejected_record(record: InputRecord, reason: str, source: str, now_ms: int) -> OutputRecord:
    """Return the record of topic `error` that keeps a refused one, with a line in the log."""
    place = {
        "topic": record.topic() or "",
        "partition": str(record.partition()),
        "offset": str(record.offset()),
    }
    # The reason is not logged: its text may quote what a device sent.
    logger.warning(
        "record %s-%s at %s goes to topic error",
        record.topic(),
        record.partition(),
        record.offset(),
    )
    key, raw = record.key(), record.value() or b""
    # With the prefix a reader of dead letters would take it for one of Kafka Connect.
    headers = [each for each in headers_of(record) if not each[0].startswith(CONNECT_PREFIX)]
    size = sum(len(name.encode()) + len(value or b"") for name, value in headers)
    if size > HEADERS_BYTES_MAX:
        reason += f" (headers: none of {size} bytes)"
        headers = passed_on(headers) or []
    return _rejected(key, raw, headers or None, reason, source, now_ms, place)


def rejected_result(output: OutputRecord, reason: str, source: str, now_ms: int) -> OutputRecord:
    """Return the record of topic `error` that keeps a result which its topic cannot have."""
    logger.warning("a result for topic %s goes to topic error", output.topic)
    place = {"topic": output.topic}
    return _rejected(output.key, output.value, output.headers, reason, source, now_ms, place)


def _rejected(
    key: bytes | None,
    raw: bytes,
    headers: list[tuple[str, bytes]] | None,
    reason: str,
    source: str,
    now_ms: int,
    place: dict[str, str],
) -> OutputRecord:
    if key is not None and len(key) > NAME_CHARACTERS_MAX:
        key = None
    if len(raw) > RAW_BYTES_MAX:
        reason += f" (raw: the first {RAW_BYTES_MAX} of {len(raw)} bytes)"
    rejected = Rejected(
        reason=reason,
        source=source,
        time=now_ms,
        raw=raw[:RAW_BYTES_MAX],
        device=key.decode("utf-8", "replace") if key is not None else None,
        headers=place,
    )
    return OutputRecord(ERROR, None, key, encode(rejected), headers)


def passed_on(headers: list[tuple[str, bytes]]) -> list[tuple[str, bytes]] | None:
    """Return the headers that a result inherits from the record it was made of."""
    for name, value in headers:
        if name == TRACEPARENT and value and len(value) <= TRACEPARENT_BYTES_MAX:
            return [(name, value)]
    return None
