"""Divides work into turns of the event loop, of which each party gets one after the other."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

#: Seconds of a turn of the event loop after which others run.
TURN_S: Final = 0.001


class PartyTurns:
    """Lets one callback of each party run in a turn of the loop, in the order of the calls.

    A party is a user or an address. However many connections it has, the loop gives it no more time
    than if it had one.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Callable[[], object]]] = {}

    def call_soon(self, party: str, callback: Callable[[], object]) -> None:
        """Call back when it is the party's turn."""
        waiting = self._waiting.get(party)
        if waiting is None:
            self._waiting[party] = deque((callback,))
            asyncio.get_running_loop().call_soon(self._turn, party)
        else:
            waiting.append(callback)

    async def wait(self, party: str) -> None:
        """Return when it is the party's turn."""
        turn = asyncio.get_running_loop().create_future()
        self.call_soon(party, partial(_begin, turn))
        await turn

    def _turn(self, party: str) -> None:
        waiting = self._waiting[party]
        callback = waiting.popleft()
        if waiting:
            asyncio.get_running_loop().call_soon(self._turn, party)
        else:
            del self._waiting[party]
        callback()


def _begin(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


class TurnClock:
    """Lets others run when a task has worked for a millisecond without waiting for anything.

    Awaiting what is there already, as the next message of a full queue, lets nobody else run.
    """

    __slots__ = ("_asked", "_party", "_turns", "_until")

    def __init__(self, turns: PartyTurns, party: str) -> None:
        self._turns = turns
        self._party = party
        self._asked = self._until = 0.0

    def ask(self) -> None:
        """Take note that the task is about to await what may be there already."""
        self._asked = time.perf_counter()

    async def work(self) -> None:
        """Take note that it is there, and let others run if it is their turn."""
        now = time.perf_counter()
        if now - self._asked > TURN_S:
            # The task has waited, or the turn has just been long.
            self._until = now + TURN_S
        elif now > self._until:
            await self._turns.wait(self._party)
            self._until = time.perf_counter() + TURN_S
