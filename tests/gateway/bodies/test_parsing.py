"""The parsing process for large bodies: each question gets its own answer."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress

import msgspec
import pytest

from gateway.bodies.parsing import Parsing, ParsingBusy, ParsingFailed, ParsingUnavailable
from gateway.bodies.rest_records import RecordsRefused
from gateway.formats import Context, positions
from tests import child_processes
from tests.gateway.mqtt.in_memory import eventually
from tests.gateway.records import NOW

FORMAT = "positions"
CONTEXT = Context("ada", "phone", NOW)


@pytest.fixture
async def parsing(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Parsing]:
    # With this variable the process would not have to flush its output.
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    parsing = Parsing()
    yield parsing
    await parsing.close()
    assert not children()


def children() -> list[int]:
    """Return the parsing processes."""
    return child_processes.children("gateway.bodies.parsing_process")


def body(count: int, lat: float = 47.0) -> bytes:
    return msgspec.json.encode(
        [{"lat": lat, "lon": 9.0, "time": NOW + number} for number in range(count)] + [{"lat": 1}]
    )


async def test_what_comes_back_in_pieces_is_what_the_body_holds(parsing: Parsing) -> None:
    for count in (0, 1, 99, 100, 101, 1000):
        content = body(count)
        expected = positions.parse(content, CONTEXT)
        assert len(expected.fixes) == count
        found = await parsing.parse(FORMAT, content, CONTEXT, "ada")
        assert found == expected
    assert len(children()) == 1


async def test_values_that_few_formats_hold_come_back_as_they_are(parsing: Parsing) -> None:
    integers = [2**63, 2**64, -(2**63) - 1, 10**25, -(10**300)]
    values = [
        *integers,
        *(-0.0, 5e-324, 1.7976931348623157e308, 0.1, None, True, "", "\0\x1f\u2028\U0001f600"),
        *([], {}, [[2**64]], {"": {"a": [None, 10**25]}}),
    ]
    content = msgspec.json.encode(
        [{"lat": 47.0, "lon": 9.0, "time": NOW + n, "odd": each} for n, each in enumerate(values)]
    )
    expected = positions.parse(content, CONTEXT)
    kept = [(fix.attributes or {}).get("odd") for fix in expected.fixes]
    assert kept[: len(integers)] == integers
    found = await parsing.parse(FORMAT, content, CONTEXT, "ada")
    assert found == expected
    assert repr(found) == repr(expected)  # -0.0 and 0.0, 1 and True are equal


async def test_an_answer_that_nobody_waits_for_is_nobody_elses(parsing: Parsing) -> None:
    await parsing.parse(FORMAT, body(1), CONTEXT, "ada")
    for turns in (2, 20):
        asking = asyncio.create_task(parsing.parse(FORMAT, body(5_000), CONTEXT, "ada"))
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        found = await parsing.parse(FORMAT, body(2, lat=48.0), CONTEXT, "ada")
        assert [each.lat for each in found.fixes] == [48.0] * 2


async def test_a_process_that_has_died_is_said_so_and_another_answers(parsing: Parsing) -> None:
    await parsing.parse(FORMAT, body(1), CONTEXT, "ada")
    (process,) = children()
    os.kill(process, signal.SIGSTOP)
    asking = asyncio.create_task(parsing.parse(FORMAT, body(1), CONTEXT, "ada"))
    await asyncio.sleep(0)
    os.kill(process, signal.SIGKILL)
    with pytest.raises(ParsingUnavailable):
        await asking
    found = await parsing.parse(FORMAT, body(1), CONTEXT, "ada")
    assert len(found.fixes) == 1
    assert process not in children()


async def test_a_process_that_has_died_meanwhile_is_not_asked(parsing: Parsing) -> None:
    await parsing.parse(FORMAT, body(1), CONTEXT, "ada")
    (process,) = children()
    os.kill(process, signal.SIGKILL)
    # The event loop has had no turn in which to notice it.
    with suppress(ChildProcessError):
        os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222
    assert len((await parsing.parse(FORMAT, body(1), CONTEXT, "ada")).fixes) == 1


async def test_a_process_ends_when_nobody_has_asked_for_a_while_and_not_within_an_answer() -> None:
    parsing = Parsing(idle_s=0.3)
    await parsing.parse(FORMAT, body(1), CONTEXT, "ada")
    (process,) = children()
    os.kill(process, signal.SIGSTOP)
    # More than a pipe holds: part of the question is not written yet.
    asking = asyncio.create_task(parsing.parse(FORMAT, body(5_000), CONTEXT, "ada"))
    await asyncio.sleep(0.6)  # longer than idle_s
    os.kill(process, signal.SIGCONT)
    assert len((await asking).fixes) == 5_000
    await eventually(lambda: not children())
    assert len((await parsing.parse(FORMAT, body(1), CONTEXT, "ada")).fixes) == 1
    await parsing.close()


async def test_a_process_that_hangs_keeps_nobody_from_stopping() -> None:
    parsing = Parsing()
    await parsing.parse(FORMAT, body(1), CONTEXT, "ada")
    (process,) = children()
    os.kill(process, signal.SIGSTOP)
    async with asyncio.timeout(60):
        await parsing.close()
    assert not children()


async def test_a_question_that_fails_ends_nothing(parsing: Parsing) -> None:
    with pytest.raises(ParsingFailed, match="KeyError"):
        await parsing.parse("no such format", body(1), CONTEXT, "ada")
    (process,) = children()
    with pytest.raises(RecordsRefused):
        await parsing.records(b'{"records": 1}', "json", "ada")
    for count in (1, 100, 101, 300):
        records = b'{"records": [%b]}' % b",".join([b'{"value": 1}'] * count)
        assert len(await parsing.records(records, "json", "ada")) == count
    found = await parsing.parse(FORMAT, body(1), CONTEXT, "ada")
    assert len(found.fixes) == 1
    assert children() == [process]


async def test_what_takes_much_room_comes_back_whole_and_in_its_order(parsing: Parsing) -> None:
    # Of many sizes, so that the gateway reads large pieces in several parts.
    values = [b'"%d%b"' % (n, b"x" * (n * 977 % 90_000)) for n in range(250)]
    records = b'{"records": [%b]}' % b",".join([b'{"value": %b}' % each for each in values])
    found = await parsing.records(records, "json", "ada")
    assert [value for _, value, _ in found] == values
    with pytest.raises(RecordsRefused, match="are allowed"):
        await parsing.records(b'{"records": [{"value": "%b"}]}' % (b"x" * 1_000_000), "json", "ada")


async def test_a_user_has_so_many_bodies_waiting_and_others_theirs(parsing: Parsing) -> None:
    await parsing.parse(FORMAT, body(1), CONTEXT, "ada")
    (process,) = children()
    os.kill(process, signal.SIGSTOP)
    waiting = [
        asyncio.create_task(parsing.parse(FORMAT, body(1), CONTEXT, "ada")) for _ in range(20)
    ]
    await asyncio.sleep(0)
    other = asyncio.create_task(parsing.parse(FORMAT, body(3), CONTEXT, "bob"))
    await eventually(lambda: any(each.done() for each in waiting))
    os.kill(process, signal.SIGCONT)
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    busy = [isinstance(each, ParsingBusy) for each in answers]
    # One is being read, and eight wait.
    assert busy == [False] * 9 + [True] * 11
    assert len((await other).fixes) == 3
