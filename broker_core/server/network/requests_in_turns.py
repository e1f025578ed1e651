"""Requests that are handled in several turns of the event loop, a few steps in each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from broker_core.server.network.request import AnyRequest, client_party
from broker_core.server.network.request_turns import RequestTurns


class InTurns:
    """Goes through the steps of a request; its client sends nothing more until they are taken."""

    def __init__(
        self,
        turns: RequestTurns,
        request: AnyRequest,
        steps: Iterator[None],
        end: Callable[[], None],
    ) -> None:
        """`end` is called after the last step."""
        self._turns = turns
        self._request = request
        self._party = client_party(request.principal, request.host)
        self._steps = steps
        self._end = end

    def begin(self) -> bool:
        """Take the first turn now; return True if it is the last one."""
        if self._take_turn():
            return True
        self._request.hold()
        self._wait()
        return False

    def _wait(self) -> None:
        self._turns.wait(self._party, self._go_on)

    def _go_on(self) -> None:
        if self._request.run(self._take_turn) is False:
            self._wait()
        else:
            self._request.release()

    def _take_turn(self) -> bool:
        end = self._turns.end_of_turn()
        for _ in self._steps:
            if self._turns.is_over(end):
                return False
        self._end()
        return True
