"""What a worker sees of a processor: punctuation, changelog, failures, erasures."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence

import msgspec
import pytest

from consumers.streams.processor import Context, RecordTooLarge, StreamProcessor
from consumers.streams.properties import Properties
from consumers.streams.store import RECORD_BYTES_MAX, Store
from consumers.streams.stream_task import PUNCTUATE_MS
from consumers.worker.records import InputRecord, StateRecord
from tests.consumers.streams.harness import Driven, Record
from waylog.history.erasures import Erasure


class Value(msgspec.Struct):
    """How often a key came, and when it came last."""

    count: int
    time: int


class Counter(StreamProcessor[Value]):
    """Counts keys; writes all of them when time has passed, unless it is to fail."""

    name = "counter"
    value_type = Value
    fails = False

    def process(
        self, records: Sequence[InputRecord], store: Store[Value], context: Context
    ) -> None:
        for record in records:
            key = (record.key() or b"").decode()
            before = store.get(key)
            store.put(
                key, Value(1 if before is None else before.count + 1, int(record.value() or 0))
            )

    def punctuate(self, store: Store[Value], context: Context) -> None:
        if self.fails:
            raise ValueError("a mistake")
        for key, value in store.items():
            context.forward("counts", key, b"%d" % value.count)


def count(driven: Driven, *keys: str, time: int = 1) -> None:
    records = [Record(b"%d" % time, key.encode()) for key in keys]
    driven._take(driven.task.process({0: records}, {0: driven.store}, driven.now_ms))


def test_time_that_passes_is_told_once_a_second() -> None:
    driven = Driven(Counter(Properties()))
    count(driven, "a", "a", "b")
    assert [each.value for each in driven.pass_time()] == [b"2", b"1"]
    assert not driven.pass_time(PUNCTUATE_MS - 1)
    assert len(driven.pass_time(1)) == 2
    # A clock that was set back does not stop it.
    assert len(driven.pass_time(-10 * PUNCTUATE_MS)) == 2


def test_a_mistake_at_its_time_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    processor = Counter(Properties())
    driven = Driven(processor)
    count(driven, "a")
    processor.fails = True
    driven.pass_time()
    driven.pass_time()
    assert caplog.text.count("topology counter failed in punctuate") == 1
    processor.fails = False
    assert len(driven.pass_time()) == 1


def test_the_changelog_has_the_last_value_of_a_batch_and_tombstones() -> None:
    driven = Driven(Counter(Properties()))
    count(driven, "a", "b", "a")
    assert [key for key, _ in driven.changelog] == [b"a", b"b"]
    driven.restart()
    assert {key: value.count for key, value in driven.store.items()} == {"a": 2, "b": 1}
    driven.store.delete("a")
    driven.store.delete("never")
    assert driven.store.take_changes() == [StateRecord(b"a", None)]
    assert driven.store.take_changes() == []
    assert len(driven.store) == 1 and "a" not in driven.store


def test_a_store_is_restored_past_records_that_are_none_of_ours() -> None:
    store: Store[Value] = Store(Value)
    good = StateRecord(b"a", b'{"count":3,"time":4,"added":5}')
    odd = [StateRecord(b"b", value) for value in (b"", b"{", b"[" * 3000, b"\xff", b'{"count":1}')]
    store.restore([*odd, StateRecord(None, b"{}"), StateRecord(b"\xff", b"{}"), good])
    assert dict(store.items()) == {"a": Value(3, 4)}


def test_what_no_record_can_hold_is_refused_or_dropped() -> None:
    context = Context("counter", 0)
    context.forward("x", "key", b"x" * (RECORD_BYTES_MAX - 3))
    with pytest.raises(RecordTooLarge):
        context.forward("x", "key", b"x" * (RECORD_BYTES_MAX - 2))
    store: Store[str] = Store(str)
    store.put("a", "x" * RECORD_BYTES_MAX)
    store.put("b", "x")
    assert store.take_changes() == [StateRecord(b"a", None), StateRecord(b"b", b'"x"')]
    assert store.get("a") is None


def test_erased_devices_are_forgotten_with_all_keys_that_begin_with_them() -> None:
    driven = Driven(Counter(Properties()))
    count(driven, "a/b", "a/b\nmore", "a/c", "b/b", time=5)
    count(driven, "a/b\nnewer", time=6)
    driven.task.erased(Erasure("a/b", 5))
    driven.task.erased(Erasure("b/b", 4))
    driven.pass_time()
    assert [key for key, _ in driven.store.items()] == ["a/c", "b/b", "a/b\nnewer"]
    assert [each for each in driven.changelog if each.value is None] == [
        *[(b"a/b", None), (b"a/b\nmore", None)],
    ]
    # A store that another process has written meanwhile is cleaned before its first record.
    restored = driven.task.new_state()
    restored.restore([StateRecord(b"a/b", b'{"count":1,"time":3}')])
    driven.store = restored
    count(driven, "a/b", time=9)
    assert dict(restored.items()) == {"a/b": Value(1, 9)}


def test_a_store_that_was_given_away_takes_no_memory() -> None:
    driven = Driven(Counter(Properties()))
    given_away = driven.task.new_state()
    record = Record(b"1", b"a")
    driven.task.process({1: [record]}, {0: driven.store, 1: given_away}, driven.now_ms)
    remembered = weakref.ref(given_away)
    del given_away
    driven.task.late_results({0: driven.store}, driven.now_ms)
    gc.collect()
    assert remembered() is None
