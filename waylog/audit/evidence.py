"""Decodes records into facts. Bytes that are none of ours become no fact, and stop nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, NamedTuple, Protocol

import msgspec

from waylog.audit.facts import AddressFact, FixFact, Refusal
from waylog.audit.question import Question
from waylog.audit.sequences import sequence_of
from waylog.kafka.dead_letters import DeadLetter, StoredRecord, read_dead_letter
from waylog.malformed import MALFORMED

#: The consumer group of a connector, as Kafka Connect names it.
CONNECTOR_GROUP: Final = "connect-"
#: The consumer group of a topology's processor.
STREAMS_GROUP: Final = "streams-"
#: The name of the history among the readers, and the source of what it refuses.
HISTORY: Final = "history"
_RESOLVER: Final = "resolver"
STRANGERS: Final = "(strangers)"

_Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class Record(Protocol):
    """The part of confluent_kafka.Message that is read here."""

    def key(self) -> Any: ...
    def value(self) -> Any: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def timestamp(self) -> tuple[int, int]: ...


class _Fix(msgspec.Struct, gc=False):
    """The members without which a record is no fix; see waylog.messages.Fix."""

    id: str
    device: str
    user: str
    lat: float
    lon: float
    time: _Int64
    received: _Int64


class _CountedFix(_Fix, gc=False):
    attributes: dict[str, Any] | None = None


class _Address(msgspec.Struct, gc=False):
    fix_id: str
    time: _Int64
    resolved: _Int64 = 0


_decode_fix: Final = msgspec.json.Decoder(_Fix).decode
_decode_counted: Final = msgspec.json.Decoder(_CountedFix).decode
_decode_address: Final = msgspec.json.Decoder(_Address).decode


class GatewayRefusal(NamedTuple):
    """A message that a gateway has refused, and whose it was."""

    device: str
    reason: str
    time: int  # when the record was written, ms


def fix_fact(record: Record, *, counted: bool = False) -> FixFact | None:
    """Return a record of topic `location` as a fact, None if it is no fix.

    `counted`: also read the app's own count.
    """
    try:
        if counted:
            fix: _Fix = _decode_counted(record.value())
            sequence = sequence_of(fix.attributes) if isinstance(fix, _CountedFix) else None
        else:
            fix, sequence = _decode_fix(record.value()), None
    except (*MALFORMED, TypeError):  # TypeError: no value
        return None
    return FixFact(
        record.partition() or 0,
        record.offset() or 0,
        fix.device,
        fix.id,
        fix.time,
        fix.received,
        sequence,
        stored=record.timestamp()[1],
        is_own=record.key() == fix.device.encode(),
    )


def device_of(record: Record) -> str | None:
    """Return the device that a record's key names."""
    key = record.key()
    if not key:
        return None
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)


def address_fact(record: Record) -> AddressFact | None:
    """Return a record of topic `address` as a fact, None for a tombstone or anything else."""
    device = device_of(record)
    try:
        address = _decode_address(record.value())
    except (*MALFORMED, TypeError):
        return None
    return (
        None
        if device is None
        else AddressFact(device, address.fix_id, address.time, address.resolved)
    )


def refusal_of(record: StoredRecord, resolver_group: str) -> Refusal | GatewayRefusal | None:
    """Return what a record of topic `error` tells, None if nothing."""
    letter = read_dead_letter(record)
    if not letter.source:
        return None
    if letter.origin is None:
        reason = f"{letter.source}: {letter.reason}"
        return GatewayRefusal(_whose(letter), reason, record.timestamp()[1])
    return Refusal(_reader_of(letter.source, resolver_group), *letter.origin, letter.reason)


def _reader_of(source: str, resolver_group: str) -> str:
    """Return the reader by its name in topic `error`: topologies have no other one there."""
    if source == _RESOLVER:
        return resolver_group
    return source if source == HISTORY else f"{STREAMS_GROUP}{source}"


def connector_refusal_of(record: StoredRecord) -> Refusal | None:
    """Return what a dead letter of a connector tells, None if it does not tell where it was."""
    return _refusal_of(record, CONNECTOR_GROUP)


def forwarding_refusal_of(record: StoredRecord) -> Refusal | None:
    """Return what a dead letter of a forwarding tells; the reader is its `letter_source`."""
    return _refusal_of(record, "")


def _refusal_of(record: StoredRecord, prefix: str) -> Refusal | None:
    letter = read_dead_letter(record)
    if letter.origin is None or not letter.source:
        return None
    return Refusal(f"{prefix}{letter.source}", *letter.origin, letter.reason)


def _whose(letter: DeadLetter) -> str:
    if letter.device is not None:
        return letter.device
    # What has no device has its user as key; see gateway.fixes.submit.
    return STRANGERS if not letter.key else f"{letter.key.decode('utf-8', 'replace')}/?"


def facts_in(
    records: Sequence[Record], question: Question
) -> Iterator[tuple[Record, FixFact | None]]:
    """Yield the records that a question is about, with their facts."""
    key = None if question.device is None else question.device.encode()
    wanted = None if question.fix_id is None else question.fix_id.encode()
    for record in records:
        if key is not None and record.key() != key:
            continue
        if wanted is None:
            yield record, fix_fact(record, counted=key is not None)
        elif wanted in (record.value() or b""):
            # An id with characters that JSON may escape is not found so; the apps have none.
            fact = fix_fact(record)
            if fact is not None and fact.id == question.fix_id:
                yield record, fact
