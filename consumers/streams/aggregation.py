"""Aggregation of the values of a key: of all, of time windows, and of sessions."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from consumers.streams.built_processor import Held, Item
from consumers.streams.processor import Context, RecordTooLarge
from consumers.streams.store import Store
from consumers.streams.windows import Session, SessionWindows, TimeWindows, add_to_sessions
from consumers.worker.records import InputRecord
from waylog.process.log_throttle import RepeatedFailure

logger = logging.getLogger(__name__)


class Aggregation(NamedTuple):
    """How values become one: `reduce` and `count` are cases of `aggregate`."""

    initial: Callable[[], Any]
    add: Callable[[Any, Any], Any]
    merge: Callable[[Any, Any], Any] | None  # of two sessions
    into: type[Any]

    def restored(self, value: Any) -> Any:
        """Return a value of a store, which may have come out of the changelog, as its type."""
        is_own = isinstance(self.into, type) and isinstance(value, self.into)
        return value if value is None or is_own else msgspec.convert(value, self.into)


class _Result(msgspec.Struct):
    """What is written of a window."""

    key: str
    start: int  # ms
    end: int  # ms
    value: Any


class Aggregator:
    """Keeps one result a key; forwards those that have changed at the end of a batch."""

    topic: str

    def __init__(self, aggregation: Aggregation) -> None:
        self._aggregation = aggregation
        # The key and value to forward, by the key of the store.
        self._changed: dict[str, tuple[str, Any]] = {}
        self._failure = RepeatedFailure()

    def take(self, item: Item, store: Store[Held], record: InputRecord, context: Context) -> None:
        """Add a value to the result of its key."""
        self._changed[item.key] = item.key, self._add(item.key, item, store)

    def end_batch(self, store: Store[Held], context: Context) -> None:
        """Forward the results that have changed."""
        for key, result in self._changed.values():
            try:
                context.forward(self.topic, key, msgspec.json.encode(result))
            except RecordTooLarge as error:
                if self._failure.is_new(error):
                    logger.error("topic %s lacks a result: %s", self.topic, error)
        self._changed.clear()

    def _add(self, key: str, item: Item, store: Store[Held]) -> Any:
        held, aggregation = store.get(key), self._aggregation
        so_far = aggregation.initial() if held is None else aggregation.restored(held.value)
        value = aggregation.add(so_far, item.value)
        store.put(key, Held(item.time if held is None else max(held.time, item.time), value))
        return value


class _Closing(Aggregator):
    """An aggregator whose windows close."""

    def __init__(self, aggregation: Aggregation, sweep_ms: int) -> None:
        """Closed windows are forgotten each time that the stream time is `sweep_ms` later."""
        super().__init__(aggregation)
        self._sweep_ms = sweep_ms
        self.late = 0

    @abstractmethod
    def _is_over(self, key: str, held: Held, stream_time: int) -> bool:
        """Tell whether nothing can be added any more to what the store has under a key."""

    def end_batch(self, store: Store[Held], context: Context) -> None:
        """Forward the results that have changed, and forget what has closed."""
        super().end_batch(store, context)
        if store.stream_time < store.sweep_at:
            return
        store.sweep_at = store.stream_time + self._sweep_ms
        over = [key for key, held in store.items() if self._is_over(key, held, store.stream_time)]
        for key in over:
            store.delete(key)

    def _advance(self, item: Item, store: Store[Held]) -> int:
        """Return the stream time with a new item; after a restart it is that of the store."""
        if store.stream_time == 0:
            store.stream_time = max((held.time for _, held in store.items()), default=0)
        store.stream_time = max(store.stream_time, item.time)
        return store.stream_time


class TimeWindowAggregator(_Closing):
    """Keeps one result a key and window; a store's key is key LF start."""

    def __init__(self, aggregation: Aggregation, windows: TimeWindows) -> None:
        super().__init__(aggregation, windows.advance_ms)
        self._windows = windows

    def take(self, item: Item, store: Store[Held], record: InputRecord, context: Context) -> None:
        """Add a value to the results of all windows that hold its time and are open."""
        stream_time, size_ms = self._advance(item, store), self._windows.size_ms
        for start in self._windows.starts_of(item.time):
            end = start + size_ms
            if self._windows.is_closed(end, stream_time):
                self.late += 1
                continue
            key = f"{item.key}\n{start}"
            value = self._add(key, item, store)
            self._changed[key] = item.key, _Result(item.key, start, end, value)

    def _is_over(self, key: str, held: Held, stream_time: int) -> bool:
        end = int(key.rpartition("\n")[2]) + self._windows.size_ms
        return self._windows.is_closed(end, stream_time)


class SessionAggregator(_Closing):
    """Keeps the open sessions of each key, as arrays of start, end and result."""

    def __init__(self, aggregation: Aggregation, windows: SessionWindows) -> None:
        super().__init__(aggregation, windows.gap_ms)
        self._windows = windows

    def take(self, item: Item, store: Store[Held], record: InputRecord, context: Context) -> None:
        """Add a value to the session of its time, which may join others."""
        stream_time = self._advance(item, store)
        if self._windows.is_closed(item.time, stream_time):
            self.late += 1
            return
        aggregation = self._aggregation
        assert aggregation.merge is not None
        held = store.get(item.key)
        known = [] if held is None else [
            Session(start, end, aggregation.restored(value)) for start, end, value in held.value
        ]  # fmt: skip
        known = [each for each in known if not self._windows.is_closed(each.end, stream_time)]
        joined, gone = add_to_sessions(
            known,
            item.time,
            self._windows.gap_ms,
            aggregation.initial,
            lambda so_far: aggregation.add(so_far, item.value),
            aggregation.merge,
        )
        newest = item.time if held is None else max(held.time, item.time)
        listed = [[each.start, each.end, each.value] for each in known]
        store.put(item.key, Held(newest, listed))
        for each, value in (*((each, None) for each in gone), (joined, joined.value)):
            result = _Result(item.key, each.start, each.end, value)
            self._changed[f"{item.key}\n{each.start}\n{each.end}"] = item.key, result

    def _is_over(self, key: str, held: Held, stream_time: int) -> bool:
        return self._windows.is_closed(held.time, stream_time)
