"""Large bodies are parsed by a separate process, which returns the result in pieces.

A phone's message takes a fraction of a millisecond to parse; a body of 8 MiB takes half a second,
which would block the event loop for everybody else. Users take turns with their large bodies. The
process starts with the first large body and ends when none has come for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from gateway.bodies.parts import Body
from gateway.bodies.rest_records import Produced, RecordsRefused
from gateway.formats import LISTS, Context, Parsed
from gateway.limits.pools import Turns
from waylog.network.shares import ShareExceeded
from waylog.process.helper_process import IDLE_S, HelperProcess

#: A body of at most this size and this number of commas is parsed in the gateway's own process.
READ_HERE_BYTES_MAX: Final = 16 * 1024
READ_HERE_COMMAS_MAX: Final = 160

#: The first byte of a frame from the process: a piece, the end, a failure, or a refusal.
PIECE, END, FAILED, REFUSED = b"P", b"E", b"F", b"R"
#: Prefix of a format name when records of gateway.bodies.rest_records are wanted.
REST: Final = "rest "
SIZE_BYTES: Final = 4

_ANSWER_S: Final = 30.0
_FREED_AT_ONCE: Final = 1_000
#: Bodies of one user that may wait for their turn.
_WAITING_EACH: Final = 8

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.json.Decoder(Parsed).decode
_decode_records = msgspec.msgpack.Decoder(list[Produced]).decode
_decode_refusal = msgspec.msgpack.Decoder(tuple[int, str]).decode


class Question(msgspec.Struct, array_like=True):
    """The head of a question: how to parse the body that follows, and what is known about it."""

    format: str
    body_bytes: int
    context: Context | None = None


class ParsingUnavailable(Exception):
    """The body cannot be parsed now; the text says why."""


class ParsingBusy(ParsingUnavailable):
    """Too many bodies of one user are already waiting; the request can be repeated later."""


class ParsingFailed(Exception):
    """The parser failed on this body; the text is the type of its exception."""


def is_read_here(body: bytes) -> bool:
    """Tell whether a body is parsed in a few milliseconds at most: it is small and has few items.

    Rejecting an item takes 25 microseconds, and an item may be as small as two bytes.
    """
    return len(body) <= READ_HERE_BYTES_MAX and body.count(b",") <= READ_HERE_COMMAS_MAX


def over_mqtt(source: str) -> str:
    """Return the name of a format for messages from MQTT, where only that format is expected."""
    return f"mqtt {source}"


class Parsing:
    """The client of the parsing process; sends it one body at a time."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._turns = Turns(1, 1, _WAITING_EACH)
        self._process = HelperProcess("gateway.bodies.parsing_process", idle_s=idle_s)

    async def parse(
        self, format_name: str, body: bytes | Body, context: Context, party: str
    ) -> Parsed:
        """Parse a body in the named format (gateway.http.ingest.paths) and return the result.

        `party` is the user whose turn is taken. Raises ParsingBusy, ParsingUnavailable,
        ParsingFailed.
        """
        parsed: Parsed | None = None

        def take(piece: memoryview) -> None:
            nonlocal parsed
            decoded = _decode(piece)
            if parsed is None:
                parsed = decoded
            else:
                for name in LISTS:
                    getattr(parsed, name).extend(getattr(decoded, name))

        await self._ask(Question(format_name, len(body), context), body, party, take)
        assert parsed is not None
        return parsed

    async def records(self, body: bytes | Body, format_: str, party: str) -> list[Produced]:
        """Parse a body as gateway.bodies.rest_records.read_records does.

        Raises RecordsRefused, and the same errors as `parse`.
        """
        records: list[Produced] = []

        def take(piece: memoryview) -> None:
            records.extend(_decode_records(piece))

        await self._ask(Question(REST + format_, len(body)), body, party, take)
        return records

    async def _ask(
        self,
        question: Question,
        body: bytes | Body,
        party: str,
        take: Callable[[memoryview], None],
    ) -> None:
        try:
            async with self._turns.turn(party):
                try:
                    async with asyncio.timeout(_ANSWER_S):
                        await self._exchange(question, body, take)
                except BaseException as error:
                    if not isinstance(error, ParsingFailed | RecordsRefused):
                        # The answer may still arrive, and must not be taken for that of the next
                        # question.
                        await self._process.end()
                    if isinstance(error, TimeoutError | OSError | EOFError):
                        raise ParsingUnavailable("what reads large bodies has failed") from error
                    raise
        except ShareExceeded:
            raise ParsingBusy("too many large bodies of yours wait to be read") from None

    async def close(self) -> None:
        """End the process, if there is one."""
        await self._process.close()

    async def _exchange(
        self, question: Question, body: bytes | Body, take: Callable[[memoryview], None]
    ) -> None:
        async with self._process.asked() as (questions, answers):
            asked = _encode(question)
            questions.write(len(asked).to_bytes(SIZE_BYTES, "big") + asked)
            # The body is sent without encoding it: encoding 8 MiB copies them, which blocks the
            # event loop noticeably.
            for part in (body if isinstance(body, Body) else Body(body)).slices():
                questions.write(part)
                await questions.drain()
            while True:
                size = int.from_bytes(await answers.readexactly(SIZE_BYTES), "big")
                frame = await answers.readexactly(size)
                if frame[:1] == FAILED:
                    raise ParsingFailed(frame[1:].decode())
                if frame[:1] == REFUSED:
                    raise RecordsRefused(*_decode_refusal(memoryview(frame)[1:]))
                if frame[:1] == END:
                    return
                take(memoryview(frame)[1:])
                # If the next piece has already arrived, readexactly does not yield to the event
                # loop.
                await asyncio.sleep(0)


async def let_go(parsed: Parsed) -> None:
    """Free the parsed items in steps: freeing ten thousand fixes at once takes milliseconds."""
    for name in LISTS:
        items = getattr(parsed, name)
        while len(items) > _FREED_AT_ONCE:
            del items[-_FREED_AT_ONCE:]
            await asyncio.sleep(0)
