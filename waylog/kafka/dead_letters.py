"""Dead letters: records that a program could not process, as topics keep them.

Topic `error` has messages.Rejected as JSON; the topics of Kafka Connect (KIP-298) have the record
as it was, and headers that tell the rest.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple, Protocol

from waylog.kafka.record_headers import headers_of
from waylog.malformed import MALFORMED
from waylog.messages import decode_rejected

#: What the names of Kafka Connect's headers begin with.
CONNECT_PREFIX: Final = "__connect.errors."
#: The header, behind that prefix, of a letter whose record was too large: what it does not have.
LEFT_OUT: Final = "waylog.left.out"
#: Header of a record that was sent again: the place of its dead letter.
REPLAYED: Final = "waylog.replayed"

_PLACE: Final = re.compile(r"([a-zA-Z0-9._-]+):(\d{1,9}):(\d{1,18})")
#: What a reason says of a message or its headers, of which not all bytes were kept.
_SHORTENED: Final = re.compile(
    r"\((?:raw: (?:the first \d+|none) of|headers: none of|cut from) \d+ bytes"
)


class RecordPlace(NamedTuple):
    """The place of a record; its text is TOPIC:PARTITION:OFFSET."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"


def parse_place(text: str) -> RecordPlace | None:
    """Return the place that a text names, None if it names none."""
    found = _PLACE.fullmatch(text)
    return None if found is None else RecordPlace(found[1], int(found[2]), int(found[3]))


class StoredRecord(Protocol):
    """The methods of a client's record that are used here; confluent_kafka.Message has them."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def key(self) -> Any: ...
    def value(self) -> Any: ...
    def headers(self) -> Any: ...


class DeadLetter(NamedTuple):
    """A record that could not be processed, and why."""

    place: RecordPlace
    time: int  # ms since 1970: when it was given up
    reason: str
    source: str  # the device format, program or connector that could not process it
    device: str | None
    origin: RecordPlace | None  # where it was read; None if it never was a record
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, Any]]  # those of the record itself
    is_whole: bool  # all bytes were kept


def read_dead_letter(record: StoredRecord) -> DeadLetter:
    """Return what a record of topic `error` or of a topic of Kafka Connect says; never raises."""
    place = RecordPlace(record.topic() or "", record.partition() or 0, record.offset() or 0)
    headers = headers_of(record)
    told = {
        name.removeprefix(CONNECT_PREFIX): _text(value)
        for name, value in headers
        if name.startswith(CONNECT_PREFIX)
    }
    own = [each for each in headers if not each[0].startswith(CONNECT_PREFIX)]
    key: bytes | None = record.key()
    time = record.timestamp()[1]
    if told:
        reason = told.get("exception.message") or told.get("exception.class.name") or ""
        if stage := told.get("stage"):
            reason = f"{stage}: {reason}"
        return DeadLetter(
            place, time, reason, told.get("connector.name", ""), _device(key), _origin(told),
            key, record.value(), own, is_whole=LEFT_OUT not in told,
        )  # fmt: skip
    value: bytes | None = record.value()
    try:
        rejected = decode_rejected(value or b"")
    except MALFORMED:
        return DeadLetter(
            place, time, "the record does not say why", "", _device(key), None, key, value, own,
            is_whole=True,
        )  # fmt: skip
    return DeadLetter(
        place, rejected.time, rejected.reason, rejected.source, rejected.device,
        _origin(rejected.headers or {}), key, rejected.raw, own,
        is_whole=_SHORTENED.search(rejected.reason) is None,
    )  # fmt: skip


def _origin(told: dict[str, str]) -> RecordPlace | None:
    named = [told.get(each, "") for each in ("topic", "partition", "offset")]
    return parse_place(":".join(named))


def _device(key: bytes | None) -> str | None:
    return None if key is None else key.decode("utf-8", "replace")


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
