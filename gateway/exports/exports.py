"""Makes exports by processes, a few at a time, and passes on what they write as it is taken."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from gateway.exports.questions import LENGTH_BYTES, ExportQuestion
from gateway.limits.pools import Turns

#: Exports that are made at the same time, and of one user; others wait, of a user one.
RUNNING_MAX: Final = 4
_EACH_MAX: Final = 1
_WAITING_EACH_MAX: Final = 1
_READ_AT_ONCE: Final = 64 * 1024


class ExportFailed(Exception):
    """The export is not whole; the gateway's log has the reason."""


class Exports:
    """The exports of one gateway; `history` and `places` are URLs, None if there are none."""

    def __init__(self, history: str | None, places: str | None) -> None:
        self._urls: Final = (history or "", places or "")
        self.turns: Final = Turns(RUNNING_MAX, _EACH_MAX, _WAITING_EACH_MAX)

    async def made(
        self, question: ExportQuestion, recent: Sequence[Iterable[bytes]]
    ) -> AsyncGenerator[bytes, None]:
        """Yield the export in pieces, within a turn of `turns`.

        `recent` yields the packed points in memory of each of the question's devices. Close the
        generator to end the process. Raises ExportFailed, OSError.
        """
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway.exports.export_process", *self._urls),
            stdin=pipe,
            stdout=pipe,
        )
        assert process.stdin is not None and process.stdout is not None
        asking = asyncio.create_task(_ask(process.stdin, question, recent))
        try:
            while piece := await process.stdout.read(_READ_AT_ONCE):
                yield piece
            if await process.wait() != 0:
                raise ExportFailed("the export broke off; the gateway's log has the details")
        finally:
            asking.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await asking
            with suppress(ProcessLookupError):
                process.kill()
            # Its end is noticed only once what is left in its pipe has been read.
            await process.communicate()


async def _ask(
    questions: asyncio.StreamWriter, question: ExportQuestion, recent: Sequence[Iterable[bytes]]
) -> None:
    with suppress(ConnectionError):
        questions.write(msgspec.json.encode(question) + b"\n")
        for pieces in recent:
            for piece in pieces:
                questions.write(len(piece).to_bytes(LENGTH_BYTES) + piece)
                await questions.drain()
                await asyncio.sleep(0)
            questions.write(bytes(LENGTH_BYTES))
        await questions.drain()
        questions.close()
