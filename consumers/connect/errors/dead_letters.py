"""Records that could not be processed, as a sink connector writes them to a topic (KIP-298)."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from typing import Final, NamedTuple

from consumers.connect.data.exceptions import kafka_name_of
from consumers.connect.errors.failures import ConsumedRecord, Failure
from waylog.kafka.dead_letters import CONNECT_PREFIX, LEFT_OUT

#: A trace is cut to this; a record has to fit its topic.
_TRACE_CHARACTERS_MAX: Final = 16 * 1024


class DeadLetter(NamedTuple):
    """A record of the dead letter topic; the partition is chosen by its key."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int | None  # ms since 1970-01-01 UTC
    headers: tuple[tuple[str, bytes | None], ...]
    place: tuple[tuple[str, bytes | None], ...]  # headers that tell where the record is

    def without_content(self) -> DeadLetter:
        """Return the letter for a record that is too large for the topic.

        It has the headers that Connect adds, and tells where the record is and what was left out.
        """
        headers = {name: value for name, value in self.headers if name.startswith(CONNECT_PREFIX)}
        own = len(self.headers) - len(headers)
        left_out = f"key of {_size(self.key)}, value of {_size(self.value)}, {own} headers"
        headers |= dict(self.place)
        headers[CONNECT_PREFIX + LEFT_OUT] = left_out.encode()
        return self._replace(key=None, value=None, headers=tuple(headers.items()))


def _size(content: bytes | None) -> str:
    return "no bytes" if content is None else f"{len(content)} bytes"


def dead_letter(
    topic: str, connector: str, task: int, failure: Failure, *, with_context: bool
) -> DeadLetter | None:
    """Return the dead letter of a failed record that was consumed, None for one that was not.

    It has key, value, time and headers as they were in the log. With `with_context`, headers tell
    where it was and what went wrong, all of them texts.
    """
    record = failure.record
    if not isinstance(record, ConsumedRecord):
        return None
    headers = record.headers
    place = _context(
        [
            ("topic", record.topic),
            ("partition", str(record.partition)),
            ("offset", str(record.offset)),
        ]
    )
    if with_context:
        error = failure.error
        context: list[tuple[str, str | None]] = [
            ("connector.name", connector),
            ("task.id", str(task)),
            ("stage", failure.stage.name),
            ("class.name", failure.class_name),
            ("exception.class.name", kafka_name_of(error)),
            ("exception.message", str(error)),
            ("exception.stacktrace", trace_of(error)),
        ]
        headers = (*headers, *place, *_context(context))
    return DeadLetter(topic, record.key, record.value, record.timestamp, headers, place)


def _context(told: Iterable[tuple[str, str | None]]) -> tuple[tuple[str, bytes | None], ...]:
    return tuple(
        (CONNECT_PREFIX + name, None if text is None else text.encode("utf-8", "replace"))
        for name, text in told
    )


def trace_of(error: BaseException) -> str:
    """Return the traceback of an error, its end if it is long."""
    return "".join(traceback.format_exception(error))[-_TRACE_CHARACTERS_MAX:]
