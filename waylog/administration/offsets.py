"""Where the partitions of a topic begin and end, and offsets that people name."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from waylog.administration.answers import answer_to
from waylog.administration.log_access import LogAccess
from waylog.cli import CommandError

WHERE_HELP: Final = (
    "beginning, end, an offset, -N (N before the end), a time (ISO 8601, UTC without a zone, or "
    "milliseconds) or 15m, 2h, 3d (so long ago)"
)

_AGO: Final = re.compile(r"(\d{1,9})(s|m|h|d)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
#: The digits an offset may have: thirteen are a time in milliseconds, and an offset that large
#: would take centuries to reach.
_OFFSET_DIGITS_MAX: Final = 12
_TIME_DIGITS_MAX: Final = 15


class BadMoment(CommandError):
    """A text names neither an offset nor a time."""


def watermarks(
    access: LogAccess, consumer: Consumer, topic: str, partition: int
) -> tuple[int, int]:
    """Return a partition's first offset and its end; raises KafkaException and CommandError."""
    place = TopicPartition(topic, partition)

    def ask(seconds: float) -> tuple[int, int]:
        low, high = consumer.get_watermark_offsets(place, timeout=seconds)
        return low, high

    return answer_to(access, ask, (topic,))


def offset_at(
    access: LogAccess, consumer: Consumer, topic: str, partition: int, time_ms: int
) -> int:
    """Return the first offset at or after a time, -1 if there is none.

    Raises KafkaException and CommandError.
    """
    asked = [TopicPartition(topic, partition, time_ms)]
    found: int = answer_to(
        access, lambda seconds: consumer.offsets_for_times(asked, timeout=seconds), (topic,)
    )[0].offset
    return found


def is_offset(where: str) -> bool:
    """Return whether a text as in `WHERE_HELP` is an offset; longer numbers are times."""
    return where.isdigit() and len(where) <= _OFFSET_DIGITS_MAX


def find_offset(
    access: LogAccess, consumer: Consumer, topic: str, partition: int, where: str
) -> int:
    """Return the offset for a text as in `WHERE_HELP`; raises KafkaException and BadMoment."""
    low, high = watermarks(access, consumer, topic, partition)
    if where in {"beginning", "earliest"}:
        return low
    if where in {"end", "latest"}:
        return high
    if where.startswith("-") and where[1:].isdigit():
        return max(low, high - int(where[1:]))
    if is_offset(where):
        return min(max(int(where), low), high)
    found = offset_at(access, consumer, topic, partition, parse_time(where))
    return found if found >= 0 else high


def parse_time(text: str) -> int:
    """Parse milliseconds, ISO 8601 (UTC without a zone) or a time ago such as 2h.

    Returns milliseconds since 1970; raises BadMoment.
    """
    if text.isdecimal() and len(text) <= _TIME_DIGITS_MAX:
        return int(text)
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return int((time.time() - int(ago[1]) * _SECONDS[ago[2]]) * 1000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadMoment(
            f"{text!r} is not a time: milliseconds, 2026-11-21T08:00:00 or 2h (ago) are expected"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
