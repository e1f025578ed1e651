"""The processors of topologies that consumers.streams.builder makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from consumers.streams.processor import FUTURE, Context, RecordTooLarge, StreamProcessor
from consumers.streams.store import Store
from consumers.worker.fix_records import NAME_CHARACTERS_MAX, NotAFix, fix_of
from consumers.worker.records import InputRecord
from waylog.malformed import MALFORMED
from waylog.messages import live_time

_TIME_MAX: Final = (1 << 63) - 1


class NotAValue(ValueError):
    """A record holds no value of the expected type; the message says why."""


class Item(NamedTuple):
    """A value on its way through the operators."""

    key: str
    time: int  # ms since 1970
    value: Any


class Source(NamedTuple):
    """A topic, and how its records become items; `read` raises MALFORMED."""

    topic: str
    read: Callable[[InputRecord, int], Item]


class Held(msgspec.Struct, array_like=True):
    """A value of a store: the latest time of what is in it, in ms, and the value."""

    time: int
    value: Any


class Sink(Protocol):
    """Where items end."""

    def take(self, item: Item, store: Store[Held], record: InputRecord, context: Context) -> None:
        """Take an item. Its function may raise any exception."""

    def end_batch(self, store: Store[Held], context: Context) -> None:
        """Forward what has become of the items of a batch."""


class Forward:
    """Writes items to a topic."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def take(self, item: Item, store: Store[Held], record: InputRecord, context: Context) -> None:
        """Write an item."""
        context.forward(self._topic, item.key, msgspec.json.encode(item.value), record)

    def end_batch(self, store: Store[Held], context: Context) -> None:
        """Nothing is left."""


class Repartition:
    """Writes items to a topic of the topology, with another key."""

    def __init__(self, topic: str, key: Callable[[Any], str]) -> None:
        self._topic = topic
        self._key = key

    def take(self, item: Item, store: Store[Held], record: InputRecord, context: Context) -> None:
        """Write an item, with its time."""
        value = msgspec.json.encode((item.time, item.value))
        context.forward(self._topic, checked_key(self._key(item.value)), value, record)

    def end_batch(self, store: Store[Held], context: Context) -> None:
        """Nothing is left."""


class BuiltProcessor(StreamProcessor[Held]):
    """Reads a source, applies operators to each item, and hands what is left to a sink."""

    value_type = Held

    def __init__(
        self,
        name: str,
        source: Source,
        operations: Sequence[Callable[[Any], Iterable[Any]]],
        sink: Sink,
    ) -> None:
        self.name = name  # type: ignore[misc]
        self.topic = source.topic
        self._read = source.read
        self._operations = tuple(operations)
        self._sink = sink

    def process(self, records: Sequence[InputRecord], store: Store[Held], context: Context) -> None:
        """Process records of one partition; one at which a function fails is refused."""
        read, sink = self._read, self._sink
        for record in records:
            try:
                item = read(record, context.now_ms)
                if item.time > context.latest:
                    raise NotAValue(FUTURE)
                values = [item.value]
                for operation in self._operations:
                    values = [result for value in values for result in operation(value)]
                for value in values:
                    sink.take(item._replace(value=value), store, record, context)
            except (NotAFix, NotAValue, RecordTooLarge) as error:
                context.refuse(record, str(error))
            except Exception as error:
                # A user's function; its message may quote what a device sent.
                context.refuse(record, f"topology {self.name} failed: {type(error).__name__}")
        sink.end_batch(store, context)


def fix_source(topic: str) -> Source:
    """Return a source of fixes, whose key is the device."""

    def read(record: InputRecord, _now_ms: int) -> Item:
        fix = fix_of(record.value())
        return Item(fix.device, live_time(fix.time, fix.received), fix)

    return Source(topic, read)


def json_source(
    topic: str, value_type: type[Any], time: Callable[[Any], int] | None = None
) -> Source:
    """Return a source of JSON of a type, whose key is that of the record, as text.

    The time is that of `time`, or when the record is processed.
    """
    decode = msgspec.json.Decoder(value_type).decode

    def read(record: InputRecord, now_ms: int) -> Item:
        value = _decoded(record, decode)
        return Item(_key_of(record), now_ms if time is None else checked_time(time(value)), value)

    return Source(topic, read)


def repartition_source(topic: str, value_type: type[Any]) -> Source:
    """Return a source of what Repartition has written."""
    decode = msgspec.json.Decoder(tuple[int, value_type]).decode  # type: ignore[valid-type]

    def read(record: InputRecord, _now_ms: int) -> Item:
        time, value = _decoded(record, decode)
        return Item(_key_of(record), checked_time(time), value)

    return Source(topic, read)


def checked_key(key: object) -> str:
    """Return a key that a record can have; raises NotAValue."""
    if not isinstance(key, str) or len(key) > NAME_CHARACTERS_MAX:
        raise NotAValue(f"a key is a text of at most {NAME_CHARACTERS_MAX} characters")
    return key


def checked_time(time: object) -> int:
    """Return a time in ms that 64 bits hold; raises NotAValue."""
    if not isinstance(time, int) or not 0 <= time <= _TIME_MAX:
        raise NotAValue("a time is a whole number of milliseconds since 1970, in 64 bits")
    return time


def _decoded(record: InputRecord, decode: Callable[[bytes], Any]) -> Any:
    value = record.value()
    if value is None:
        raise NotAValue("the record has no value")
    try:
        return decode(value)
    except MALFORMED as error:
        raise NotAValue(f"not of the expected type: {error}") from None


def _key_of(record: InputRecord) -> str:
    try:
        return checked_key((record.key() or b"").decode())
    except UnicodeDecodeError:
        raise NotAValue("the key is no text in UTF-8") from None
