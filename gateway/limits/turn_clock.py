"""Divides the turns of the event loop among parties, by the time that their work takes.

A party is a user, or the address of somebody who has not signed in. However many connections a
party has, all of them together work about a millisecond in a turn of the loop. What is left waits
for later turns, in which the parties that wait are served one after the other, users before
strangers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

from gateway.limits import party_turns
from gateway.limits.party_turns import STRANGER, TURN_S

__all__ = ["STRANGER", "TURN_S", "Asker", "PartyTurns"]

_Result = TypeVar("_Result")


class Asker:
    """Whose work a task does. It may turn out later: a request is a stranger's at first."""

    __slots__ = ("party",)

    def __init__(self, party: str) -> None:
        self.party = party


class PartyTurns(party_turns.PartyTurns):
    """The turns of one event loop.

    Work is measured between `begin` and `end`, or in tasks by `run`.
    """

    async def wait(self, party: str) -> None:
        """Return when it is the party's turn."""
        turn = asyncio.get_running_loop().create_future()
        self.call_soon(party, turn)
        await turn
        self.returned(party)

    async def let_others_work(self, party: str) -> None:
        """Wait for the party's next turn if it has no time left in this one."""
        if self.left_s(party) <= 0:
            await self.wait(party)

    async def run(self, asker: Asker, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Begin a coroutine when it is its party's turn, and charge all its steps to the party.

        The later steps do not wait here: the coroutine may hold what others need.
        """
        if not self.may_begin(asker.party):
            try:
                await self.wait(asker.party)
            except BaseException:
                work.close()
                raise
        return await self.charge(asker, work)

    @coroutine
    def charge(
        self, asker: Asker, work: Coroutine[Any, Any, _Result]
    ) -> Generator[Any, Any, _Result]:
        """Await a coroutine at once, and charge all its steps to the asker's party."""
        error: BaseException | None = None
        try:
            while True:
                outer = self.begin(asker.party)
                try:
                    waits_for = work.send(None) if error is None else work.throw(error)
                except StopIteration as end:
                    result: _Result = end.value
                    return result
                finally:
                    self.end(asker.party, outer)
                error = None
                try:
                    yield waits_for
                except GeneratorExit:
                    work.close()
                    raise
                except BaseException as raised:
                    error = raised
        finally:
            # The error's traceback refers to this frame: the two would keep the request.
            del error
