"""Appending, and storing a repeated fix once."""

from __future__ import annotations

import asyncio
import re

import msgspec
import pytest

from gateway.fixes.known_fixes import KnownFixes, fix_key
from gateway.fixes.receipts import RECORD_BYTES_MAX
from gateway.fixes.submit import Submitter
from gateway.fixes.traceparent import TraceSource
from gateway.limits.error_bytes import CUT, ErrorBytes
from gateway.limits.token_buckets import TokenBuckets
from tests.gateway.records import MemoryLog, MemoryTelemetry, StoredRecord, fix
from waylog.history.erasures import Erasure
from waylog.kafka.clients import AppendError, AppendQueueFull
from waylog.messages import Event, Fix, Rejected, decode_fix, decode_rejected


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


@pytest.fixture
def telemetry() -> MemoryTelemetry:
    return MemoryTelemetry()


@pytest.fixture
async def submitter(log: MemoryLog, telemetry: MemoryTelemetry) -> Submitter:
    return Submitter(log, telemetry, asyncio.get_running_loop())


def appended(submitter: Submitter, fix: Fix) -> asyncio.Future[None]:
    return submitter.all_stored([submitter.submit_location(fix)])


async def test_a_fix_goes_to_its_device_key_with_a_trace(
    submitter: Submitter, log: MemoryLog
) -> None:
    future = appended(submitter, fix())
    ((topic, key, value, headers),) = log.appended
    assert (topic, key, decode_fix(value)) == ("location", b"ada/phone", fix())
    assert headers is not None
    ((name, trace),) = headers
    assert name == "traceparent" and isinstance(trace, bytes)
    assert re.fullmatch(rb"00-[0-9a-f]{32}-[0-9a-f]{16}-00", trace)
    assert not future.done()
    log.acknowledge()
    await future


async def test_several_are_stored_when_all_are_and_the_first_error_is_told(
    submitter: Submitter, log: MemoryLog
) -> None:
    receipts = [submitter.submit_location(fix(id=name)) for name in "abc"]
    future = submitter.all_stored(receipts)
    others = [log.deliveries.pop(0), log.deliveries.pop(1)]
    log.fail()
    assert not future.done()
    log.deliveries = others
    log.acknowledge()
    with pytest.raises(AppendError):
        await future


async def test_a_repeat_on_the_way_shares_the_future(submitter: Submitter, log: MemoryLog) -> None:
    first = appended(submitter, fix())
    second = appended(submitter, fix())
    assert len(log.appended) == 1
    log.acknowledge()
    await asyncio.gather(first, second)
    assert submitter.metrics.repeated == 1
    assert submitter.in_flight == 0


async def test_a_repeat_of_what_is_stored_is_acknowledged_at_once(
    submitter: Submitter, log: MemoryLog
) -> None:
    stored = appended(submitter, fix())
    log.acknowledge()
    await stored
    await asyncio.sleep(0)
    assert appended(submitter, fix()).done()
    assert len(log.appended) == 1


async def test_a_failed_append_is_tried_again(submitter: Submitter, log: MemoryLog) -> None:
    future = appended(submitter, fix())
    log.fail()
    with pytest.raises(AppendError):
        await future
    await asyncio.sleep(0)
    again = appended(submitter, fix())
    assert len(log.appended) == 2
    log.acknowledge()
    await again


async def test_one_that_gives_up_does_not_make_the_next_one_fail(
    submitter: Submitter, log: MemoryLog
) -> None:
    appended(submitter, fix()).cancel()
    again = appended(submitter, fix())
    log.acknowledge()
    await again


async def test_the_same_id_of_another_device_is_another_fix(
    submitter: Submitter, log: MemoryLog
) -> None:
    appended(submitter, fix("ada/phone", id="x"))
    appended(submitter, fix("eve/phone", id="x"))
    assert len(log.appended) == 2


@pytest.mark.parametrize("error", [AppendQueueFull("full"), AppendError("fatal")])
async def test_a_refused_append_fails_the_future_instead_of_raising(
    submitter: Submitter, log: MemoryLog, error: Exception
) -> None:
    log.refuse_with = error
    future = appended(submitter, fix())
    with pytest.raises(AppendError):
        await future
    log.refuse_with = None
    appended(submitter, fix())
    assert len(log.appended) == 1


async def test_what_no_broker_would_take_is_refused(submitter: Submitter) -> None:
    huge = fix(attributes={"x": "y" * RECORD_BYTES_MAX})
    with pytest.raises(AppendError, match="too large"):
        await appended(submitter, huge)


async def test_events_and_rejected_messages_have_their_topics(
    submitter: Submitter, log: MemoryLog
) -> None:
    submitter.submit_event(
        Event(id="e", device="ada/phone", user="ada", type="lwt", time=1, received=1)
    )
    submitter.submit_rejected(Rejected(reason="r", source="s", time=1, raw=b"x"))
    submitter.submit_rejected(Rejected(reason="r", source="s", time=1, raw=b"x", device="a/b"))
    assert [(topic, key) for topic, key, _, _ in log.appended] == [
        *(("event", b"ada/phone"), ("error", None), ("error", b"a/b"))
    ]


async def test_the_interceptors_see_the_call(
    submitter: Submitter, log: MemoryLog, telemetry: MemoryTelemetry
) -> None:
    future = appended(submitter, fix())
    log.acknowledge()
    await future
    await asyncio.sleep(0)
    assert {topic for topic, _ in telemetry.records} == {"performance", "parameter"}


def test_known_fixes_forget_the_oldest_and_stay_bounded() -> None:
    known = KnownFixes(100)
    for key in range(1000):
        known.add(key)
        assert len(known) <= 100
        assert all(each in known for each in range(max(0, key - 49), key + 1))
    assert 0 not in known


def test_keys_of_fixes_depend_on_device_and_id() -> None:
    assert fix_key("a/b", "1") == fix_key("a/b", "1")
    assert len({fix_key(device, id_) for device in ("a/b", "a/c") for id_ in ("1", "2")}) == 4


def test_traces_are_unique_and_continue_those_of_requests() -> None:
    traces = TraceSource()
    assert len({traces.start() for _ in range(1000)}) == 1000
    given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    assert traces.continue_from(given) == given.encode()
    for bad in (None, "", "00-" + "0" * 32 + "-00f067aa0ba902b7-01", given + "\n"):
        assert traces.continue_from(bad) != given.encode()


async def test_what_is_from_before_an_erasure_is_acknowledged_and_not_stored(
    submitter: Submitter, log: MemoryLog
) -> None:
    before = fix().time
    erased = msgspec.json.encode(Erasure("ada/phone", before))
    submitter.on_erasures([StoredRecord(b"ada/phone", erased)])
    # The device must not send the fixes that it has kept again and again.
    assert appended(submitter, fix()).done()
    event = Event(
        id="1", device="ada/phone", user="ada", type="enter", time=before, received=before
    )
    assert submitter.submit_event(event).done()
    assert log.appended == []
    assert submitter.metrics.erased == 2
    # Fixes of other devices, and newer ones, are stored.
    appended(submitter, fix(time=before + 1))
    appended(submitter, fix("ada/tablet"))
    assert [key for _, key, _, _ in log.appended] == [b"ada/phone", b"ada/tablet"]


#: So large that one of them uses up what a sender of the tests below may have kept.
JUNK = Rejected(
    reason="r", source="s", time=1, raw=b"x" * 1_000, user="bob", device="bob/phone", headers={}
)


@pytest.fixture
async def bounded(log: MemoryLog, telemetry: MemoryTelemetry) -> Submitter:
    """Return a submitter that keeps one such message of each sender whole."""
    kept = ErrorBytes(TokenBuckets(clock=lambda: 1_000.0), per_minute=100)
    return Submitter(log, telemetry, asyncio.get_running_loop(), error_bytes=kept)


def are_whole(log: MemoryLog) -> list[bool]:
    return [CUT not in (decode_rejected(value).headers or {}) for _, _, value, _ in log.appended]


async def test_what_is_refused_counts_for_its_sender_not_for_the_user_that_it_names(
    bounded: Submitter, log: MemoryLog
) -> None:
    kept = [
        bounded.submit_rejected(JUNK, sender="ada"),
        bounded.submit_rejected(JUNK, sender="ada"),
        bounded.submit_rejected(JUNK),
        bounded.submit_rejected(JUNK, sender="bob"),
    ]
    log.acknowledge()
    await asyncio.gather(*kept)
    assert are_whole(log) == [True, False, True, False]
    assert {key for _, key, _, _ in log.appended} == {b"bob/phone"}


async def test_what_a_stranger_sends_has_no_key_and_counts_for_the_address(
    bounded: Submitter, log: MemoryLog
) -> None:
    kept = [
        bounded.submit_rejected(JUNK, stranger="192.0.2.1"),
        bounded.submit_rejected(JUNK, stranger="192.0.2.1"),
        bounded.submit_rejected(JUNK, stranger="192.0.2.2"),
        bounded.submit_rejected(JUNK),
    ]
    log.acknowledge()
    await asyncio.gather(*kept)
    assert are_whole(log) == [True, False, True, True]
    assert [key for _, key, _, _ in log.appended] == [None, None, None, b"bob/phone"]
