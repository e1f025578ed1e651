"""Asks a helper process, one question at a time, in turns between users."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from gateway.limits.pools import Turns
from waylog.network.shares import ShareExceeded
from waylog.process.helper_process import HelperProcess

_ANSWER_S: Final = 60.0
_READ_AT_ONCE: Final = 64 * 1024
#: Questions that wait for earlier ones; more are refused.
_WAITING_MAX: Final = 256
#: Questions of one user that wait.
_WAITING_EACH_MAX: Final = 4


class AnswerUnavailable(Exception):
    """The process cannot answer now; the text says why."""


class AnswerRefused(Exception):
    """The process cannot return what was requested; the text says why."""


class AnswerHead(msgspec.Struct, omit_defaults=True):
    """The line before an answer."""

    bytes: int = 0  # number of bytes that follow
    error: str = ""
    refused: bool = False


_head: Final = msgspec.json.Decoder(AnswerHead)


class Asking:
    """The client of a process `python -m MODULE ARGUMENTS`, which is called `name` in errors.

    A question is a line of JSON on its standard input. The answer is a line of JSON (AnswerHead)
    and the number of bytes given there.
    """

    def __init__(self, name: str, module: str, *arguments: str) -> None:
        self._name = name
        self._process = HelperProcess(module, *arguments)
        self._turns = Turns(1, 1, _WAITING_EACH_MAX)
        self._waiting = 0

    async def ask(
        self,
        question: bytes,
        party: str,
        send: Callable[[asyncio.StreamWriter], Awaitable[None]] | None = None,
    ) -> list[bytes]:
        """Return the answer to a question, in pieces; `send` writes what follows the question.

        Raises AnswerUnavailable and AnswerRefused.
        """
        if self._waiting >= _WAITING_MAX:
            raise AnswerUnavailable(f"too many questions to {self._name} wait already")
        self._waiting += 1
        try:
            async with self._turns.turn(party):
                try:
                    async with asyncio.timeout(_ANSWER_S):
                        return await self._exchange(question, send)
                except (AnswerRefused, AnswerUnavailable):
                    raise  # this was the whole answer
                except BaseException as error:
                    # The answer may still arrive, and must not be taken for that of the next
                    # question.
                    await self._process.end()
                    if isinstance(error, TimeoutError | OSError | EOFError):
                        raise AnswerUnavailable(f"{self._name} does not answer") from error
                    raise
        except ShareExceeded:
            raise AnswerUnavailable(
                f"too many questions of yours to {self._name} wait already"
            ) from None
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """End the process, if it runs."""
        await self._process.close()

    async def _exchange(
        self, question: bytes, send: Callable[[asyncio.StreamWriter], Awaitable[None]] | None
    ) -> list[bytes]:
        async with self._process.asked() as (questions, answers):
            questions.write(question + b"\n")
            if send is not None:
                await send(questions)
            await questions.drain()
            head = _head.decode(await answers.readuntil(b"\n"))
            if head.refused:
                raise AnswerRefused(head.error)
            if head.error:
                raise AnswerUnavailable(head.error)
            # Read in pieces: waiting for all of it would join a large answer here, which takes
            # long.
            pieces: list[bytes] = []
            missing = head.bytes
            while missing:
                pieces.append(await answers.read(min(missing, _READ_AT_ONCE)))
                if not pieces[-1]:
                    raise EOFError
                missing -= len(pieces[-1])
            return pieces
