"""Turns of the event loop for connections that have sent more requests than fit into one.

A client may send thousands of small requests at once. Handled in one go they would keep all other
connections waiting for seconds: in a cluster the broker would count as dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from waylog.network.party_queues import PartyQueues

#: Seconds for the requests of one connection in a turn, and for all that wait in an iteration.
_CONNECTION_S: Final = 0.001
_TURN_S: Final = 0.004
#: Seconds above which an iteration's end matters.
_COUNTED_S: Final = _TURN_S / 4


class NextTurn:
    """The next turn of something that may be woken many times before it comes."""

    __slots__ = ("_party", "_take_turn", "_turns", "is_due")

    def __init__(self, turns: RequestTurns, party: str, take_turn: Callable[[], None]) -> None:
        self._turns = turns
        self._party = party
        self._take_turn: Callable[[], None] | None = take_turn
        #: True while it comes.
        self.is_due = False

    def ask(self) -> None:
        """Have the turn come, if it does not yet."""
        if not self.is_due:
            self.is_due = True
            self._turns.wait(self._party, self._come)

    def take(self) -> None:
        """Take the turn now, unless others wait for theirs or it comes already.

        What a turn answers leaves in the iteration after it; a turn that was asked for from a timer
        would add one in which other connections' requests are handled first.
        """
        turns = self._turns
        if turns.must_wait or self.is_due:
            self.ask()
        else:
            end = turns.end_of_turn()
            self._come()
            turns.ended(end)

    def cancel(self) -> None:
        """Take no turn any more."""
        self._take_turn = None

    def _come(self) -> None:
        self.is_due = False
        if self._take_turn is not None:
            self._take_turn()


class RequestTurns:
    """Decides when connections handle requests: parties in turn, a connection a millisecond."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> None:
        """`clock` returns seconds, and goes on within an iteration of the loop."""
        self._loop = loop
        self._clock = clock
        self._waiting: PartyQueues[Callable[[], None]] = PartyQueues()
        self._is_due = False
        # Seconds that connections have taken in this iteration of the loop, without waiting.
        # Little of it may be of earlier iterations: to be told of their ends costs a callback.
        self._taken_s = 0.0
        self._is_counted = False

    @property
    def are_taken(self) -> bool:
        """Tell whether connections wait, behind which new requests have to wait too."""
        return self._waiting.size > 0

    @property
    def must_wait(self) -> bool:
        """Tell whether a connection has to wait before it begins.

        Others wait, or others have had what fits into one turn of the loop: many connections with
        one dear request each would take as long as one connection with many.
        """
        return self._waiting.size > 0 or self._taken_s > _TURN_S

    def ended(self, end: float) -> None:
        """Take note that a connection has had a turn without waiting, which was to end at `end`."""
        taken_s = self._taken_s = self._taken_s + self._clock() - (end - _CONNECTION_S)
        if taken_s > _COUNTED_S and not self._is_counted:
            self._is_counted = True
            self._loop.call_soon(self._next_iteration)

    def _next_iteration(self) -> None:
        self._is_counted = False
        self._taken_s = 0.0

    def end_of_turn(self) -> float:
        """Return when a connection that begins now has to pause, by the clock of `is_over`."""
        return self._clock() + _CONNECTION_S

    def is_over(self, end: float) -> bool:
        """Tell whether that time has come."""
        return self._clock() > end

    def wait(self, party: str, take_turn: Callable[[], None]) -> None:
        """Call `take_turn` when it is the party's turn, not before the next iteration."""
        self._waiting.add(party, take_turn)
        self._come()

    def _come(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        self._is_due = False
        end = self._clock() + _TURN_S
        # Those that wait again come in the next iteration, behind what others have sent meanwhile.
        for _ in range(len(self._waiting)):
            _, take_turn = self._waiting.next()
            try:
                take_turn()
            finally:
                if self._waiting:
                    self._come()
            if self._clock() > end:
                break
