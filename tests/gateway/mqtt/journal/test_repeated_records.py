"""Records of the journal that the log does not take at first."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.mqtt.journal.repeated_records import Delivered, RepeatedRecords
from waylog.kafka.clients import AppendError, AppendQueueFull


class Log:
    """A log that takes records when the test says so."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, bytes | None, Delivered]] = []
        self.stored: dict[bytes, bytes | None] = {}
        self.raises: AppendError | None = None
        self.timers: list[Callable[[], None]] = []
        self.pauses: list[float] = []
        self.now_ms = 1_000
        self.records = RepeatedRecords(
            self._send, lambda: self.now_ms, lambda: 0.0, self._call_later
        )

    def _call_later(self, pause_s: float, call: Callable[[], None]) -> None:
        self.pauses.append(pause_s)
        self.timers.append(call)

    def _send(self, key: bytes, value: bytes | None, on_delivery: Delivered) -> None:
        if self.raises is not None:
            raise self.raises
        self.sent.append((key, value, on_delivery))

    def answer(self, error: AppendError | None = None) -> None:
        """Answer all that was sent, the oldest first."""
        sent, self.sent = self.sent, []
        for key, value, delivered in sent:
            if error is None:
                self.stored[key] = value
            delivered(error, None)

    def later(self) -> None:
        """Let a second go by."""
        timers, self.timers = self.timers, []
        for call in timers:
            call()


class Read:
    """A record that was read from the log."""

    def __init__(self, key: bytes, at_ms: int) -> None:
        self._key, self._at_ms = key, at_ms

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return b"of another worker"

    def timestamp(self) -> tuple[int, int]:
        return 1, self._at_ms


FULL = AppendError("no room left")


def test_what_is_refused_is_appended_until_it_is_stored(caplog: pytest.LogCaptureFixture) -> None:
    log = Log()
    log.records.append(b"a", b"1")
    log.records.append(b"b", None)
    for _ in range(3):
        log.answer(FULL)
        assert len(log.records) == 2
        assert not log.sent
        log.later()
        assert len(log.sent) == 2
    log.answer()
    assert log.stored == {b"a": b"1", b"b": None}
    assert len(log.records) == 0
    assert not log.timers
    assert caplog.text.count("are appended again: no room left") == 1
    assert log.pauses == [1.0, 2.0, 4.0]
    log.records.append(b"a", b"2")
    log.answer(FULL)
    assert log.pauses[-1] == 1.0


def test_only_the_newest_record_of_a_key_is_appended_again() -> None:
    log = Log()
    log.records.append(b"a", b"old")
    log.records.append(b"a", b"new")
    (old, new), log.sent = log.sent, []
    old[2](FULL, None)
    assert len(log.records) == 0
    new[2](FULL, None)
    log.records.append(b"a", b"newest")
    assert len(log.records) == 0
    log.later()
    assert [value for _, value, _ in log.sent] == [b"newest"]
    log.answer()
    assert log.stored == {b"a": b"newest"}


def test_a_full_queue_is_waited_for_and_what_is_too_large_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = Log()
    log.raises = AppendQueueFull("full")
    log.records.append(b"a", b"1")
    assert len(log.records) == 1
    log.raises = AppendError("a record of 9 bytes is too large")
    log.later()
    assert len(log.records) == 0
    assert "is lost: a record of 9 bytes is too large" in caplog.text


def test_what_another_worker_has_replaced_is_not_appended_again() -> None:
    log = Log()
    for key in (b"replaced", b"older", b"own"):
        log.records.append(key, b"1")
    log.answer(FULL)
    log.records.read([Read(b"replaced", 2_000), Read(b"older", 500), Read(b"unknown", 2_000)])
    log.later()
    assert [key for key, _, _ in log.sent] == [b"older", b"own"]


def test_many_are_appended_again_in_turns() -> None:
    log = Log()
    for number in range(1_000):
        log.records.append(b"%d" % number, b"1")
    log.answer(FULL)
    log.later()
    assert 0 < len(log.sent) < 1_000
    while len(log.stored) < 1_000:
        log.answer()
        log.later()
    assert len(log.records) == 0


def test_a_stop_gets_what_is_left() -> None:
    log = Log()
    log.records.append(b"a", b"1")
    log.answer(FULL)
    log.records.append(b"b", b"on its way")
    assert list(log.records.left()) == [(b"a", b"1")]
    log.answer(FULL)
    log.later()
    assert not log.sent
