"""Large bodies are read by a process of their own, and come back in pieces.

What a phone sends takes a fraction of a millisecond to read; a body of eight MiB takes half a
second, in which the gateway would hear nobody else. Whose body it is takes turns with the others.
The process starts with the first large body and ends when none came for a while.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import Final

import msgspec

from gateway.formats import Context, Parsed
from gateway.pools import ShareExceeded, Turns

#: A body up to this size is read where it arrives.
READ_HERE_BYTES_MAX: Final = 16 * 1024

#: The first byte of a frame from the process: a piece, the end, what went wrong.
PIECE, END, FAILED = b"P", b"E", b"F"
SIZE_BYTES: Final = 4

_ANSWER_S: Final = 30.0
_IDLE_S: Final = 60.0
_END_S: Final = 5.0
#: Bodies of one user that wait for their turn.
_WAITING_EACH: Final = 8
_WRITTEN_AT_ONCE: Final = 256 * 1024

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Parsed).decode


class Question(msgspec.Struct, array_like=True):
    """What the process is asked: how to read a body, and what else is known of it."""

    format: str
    context: Context
    body: bytes


class ParsingUnavailable(Exception):
    """The body cannot be read now; the text says why."""


class ParsingFailed(Exception):
    """The parser has failed; the text says how."""


class Parsing:
    """Asks the process, one body at a time."""

    def __init__(self) -> None:
        self._turns = Turns(1, 1, _WAITING_EACH)
        self._process: asyncio.subprocess.Process | None = None
        self._ending: asyncio.TimerHandle | None = None
        self._ended: set[asyncio.Task[None]] = set()

    async def parse(self, format_name: str, body: bytes, context: Context, party: str) -> Parsed:
        """What `gateway.paths` reads by this name. `party` is the user whose turn it is.

        Raises ParsingUnavailable, ParsingFailed.
        """
        try:
            async with self._turns.turn(party):
                if self._ending is not None:
                    self._ending.cancel()
                try:
                    async with asyncio.timeout(_ANSWER_S):
                        return await self._exchange(Question(format_name, context, body))
                except BaseException as error:
                    if not isinstance(error, ParsingFailed):
                        # Its answer may still come: the next question must not get that one.
                        await self._end()
                    if isinstance(error, TimeoutError | OSError | EOFError):
                        raise ParsingUnavailable("what reads large bodies has failed") from error
                    raise
                finally:
                    loop = asyncio.get_running_loop()
                    self._ending = loop.call_later(_IDLE_S, self._end_idle)
        except ShareExceeded:
            raise ParsingUnavailable("too many large bodies of yours wait to be read") from None

    async def close(self) -> None:
        """End the process, if there is one."""
        if self._ending is not None:
            self._ending.cancel()
        await self._end()
        if self._ended:
            await asyncio.wait(self._ended)

    async def _exchange(self, question: Question) -> Parsed:
        process = await self._running()
        assert process.stdin is not None and process.stdout is not None
        asked = _encode(question)
        process.stdin.write(len(asked).to_bytes(SIZE_BYTES, "big"))
        for start in range(0, len(asked), _WRITTEN_AT_ONCE):
            process.stdin.write(asked[start : start + _WRITTEN_AT_ONCE])
            await process.stdin.drain()
        parsed: Parsed | None = None
        while True:
            size = int.from_bytes(await process.stdout.readexactly(SIZE_BYTES), "big")
            frame = await process.stdout.readexactly(size)
            if frame[:1] == FAILED:
                raise ParsingFailed(frame[1:].decode())
            if frame[:1] == END:
                assert parsed is not None
                return parsed
            piece = _decode(memoryview(frame)[1:])
            if parsed is None:
                parsed = piece
            else:
                for name in LISTS:
                    getattr(parsed, name).extend(getattr(piece, name))
            # The next piece may be here already.
            await asyncio.sleep(0)

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            pipe = asyncio.subprocess.PIPE
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "gateway.parsing_process"), stdin=pipe, stdout=pipe
            )
        return self._process

    def _end_idle(self) -> None:
        process, self._process = self._process, None
        task = asyncio.ensure_future(_ended(process))
        self._ended.add(task)
        task.add_done_callback(self._ended.discard)

    async def _end(self) -> None:
        process, self._process = self._process, None
        await _ended(process)


async def _ended(process: asyncio.subprocess.Process | None) -> None:
    if process is None:
        return
    assert process.stdin is not None
    # It ends when nobody can ask any more.
    process.stdin.close()
    try:
        async with asyncio.timeout(_END_S):
            await process.communicate()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


#: The members of Parsed that come in pieces; all others are the same in each.
LISTS: Final = ("fixes", "events", "rejected", "rejected_at", "client_ids")
