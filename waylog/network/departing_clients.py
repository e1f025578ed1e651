"""Connections whose clients have closed their side before they were accepted.

Nearly all clients keep their side open until they are answered. Somebody who connects, asks and
leaves thousands of times a second causes the work of all these requests without a single connection
that could be counted. So few of them are served at a time, of each party in turn. When there are
too many, the oldest of the party with the most go without an answer, which probably nobody reads.
Where this machine's own processes are the clients they have one address, but not one account: who
would go is looked up then, and waits with its account.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from waylog.network.connection_ends import PeerSide, peer_side
from waylog.network.party_queues import PartyQueues

#: Connections that are served at a time, those that take longer than _LONG_S aside.
_SERVED_MAX: Final = 64
_LONG_S: Final = 0.2
#: Seconds after which those that are served are looked at again.
_LOOK_AGAIN_S: Final = 0.005
#: Accounts that are asked for when one connection has to go: it takes some 20 us each.
_ASKED_MAX: Final = 16


class Service(Protocol):
    """The service of one connection."""

    @property
    def has_ended(self) -> bool:
        """Tell whether the connection is closed, or nothing is left but to be read."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A connection that waits; `is_of_account` if its party is an account, not an address."""

    connection: socket.socket
    is_of_account: bool


class DepartingClients:
    """Serves connections a few at a time."""

    def __init__(
        self,
        serve: Callable[[socket.socket], Service],
        waiting_max: int,
        account_of: Callable[[socket.socket], int | None],
    ) -> None:
        """`account_of` returns the account of this machine that waits for an answer, or None."""
        self._serve = serve
        self._waiting_max = waiting_max
        self._account_of = account_of
        self._loop = asyncio.get_running_loop()
        self._waiting: PartyQueues[_Waiting] = PartyQueues()
        self._served: list[tuple[float, Service]] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, party: str, connection: socket.socket) -> None:
        """Serve a connection when it is its party's turn."""
        self._waiting.add(party, _Waiting(connection, is_of_account=False))
        if len(self._waiting) > self._waiting_max:
            self.drop_oldest()
        if self._timer is None:
            self._serve_some()

    def drop_oldest(self) -> bool:
        """Disconnect the oldest of the party with the most; tell whether there was one.

        An account of this machine that waits for the answer is a party of its own.
        """
        if not self._waiting:
            return False
        oldest = self._waiting.drop()
        for _ in range(_ASKED_MAX):
            account = None if oldest.is_of_account else self._account_of(oldest.connection)
            if account is None:
                break
            self._waiting.add(f"uid {account}", _Waiting(oldest.connection, is_of_account=True))
            oldest = self._waiting.drop()
        oldest.connection.close()
        return True

    def serve_all(self) -> None:
        """Serve all that wait, now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            _, waiting = self._waiting.next()
            self._serve(waiting.connection)

    def _serve_some(self) -> None:
        self._timer = None
        now = self._loop.time()
        if len(self._served) >= _SERVED_MAX:
            self._served = [
                (since, service)
                for since, service in self._served
                if now - since < _LONG_S and not service.has_ended
            ]
        while self._waiting and len(self._served) < _SERVED_MAX:
            _, waiting = self._waiting.next()
            connection = waiting.connection
            if peer_side(connection) is PeerSide.GONE:
                connection.close()
            else:
                self._served.append((now, self._serve(connection)))
        if self._waiting:
            self._timer = self._loop.call_later(_LOOK_AGAIN_S, self._serve_some)
