"""Accepts connections quickly, so that those of many do not wait behind those of one.

The kernel's queue of connections is served first come, first served. uvloop takes one connection of
it in an iteration of the loop, asyncio as many as the queue is long: under a flood of connections
others wait for seconds, or the loop stands still. Here the queue is emptied as fast as possible,
which is cheap; transports are made of some connections in each iteration, of each address in turn.
Clients that have left meanwhile are served last, if at all.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from collections.abc import Callable
from typing import Final

from waylog.config import Endpoint
from waylog.network.bind_addresses import BACKLOG, bind_addresses
from waylog.network.connection_ends import PeerSide, peer_side
from waylog.network.departing_clients import DepartingClients
from waylog.network.free_ports import PortTaken, bound_socket
from waylog.network.local_peers.accounts import LocalAccounts
from waylog.network.party_queues import PartyQueues
from waylog.network.peer_parties import party_of
from waylog.process.background import TaskSet
from waylog.process.file_limit import part_of_files
from waylog.process.log_throttle import LogThrottle

logger = logging.getLogger(__name__)

#: Bytes of a connection that the kernel takes before they can be sent; the client's window bounds
#: those that have been sent.
UNSENT_BYTES_MAX: Final = 128 * 1024
#: Seconds of an iteration of the event loop; more, a part of the time since the last one, where
#: iterations are long, so that the kernel's queue does not grow.
_TURN_S: Final = 0.001
_TURN_PART: Final = 0.5
_TURN_S_MAX: Final = 0.02
#: Connections that wait for a transport, those that wait and whose clients have left, and those
#: that get one in an iteration.
_WAITING_MAX: Final = 64
_DEPARTING_MAX: Final = 512
_MADE_MAX: Final = 32
#: Parts of a process's files, at most. They are not among those that `room_for_connections` counts;
#: those of clients that have left are given up when files run out.
_WAITING_PART: Final = 1 / 32
_DEPARTING_PART: Final = 1 / 8
#: Seconds without accepting when the process or the system has no more files or memory.
_PAUSE_S: Final = 1.0
_EXHAUSTED: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class _Accepted:
    """A connection of which a transport is made."""

    __slots__ = ("connection", "is_made", "transport")

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.transport: asyncio.Transport | None = None
        self.is_made = False

    @property
    def has_ended(self) -> bool:
        """Tell whether the connection is closed, or nothing is left but to be read."""
        if self.transport is None:
            return self.is_made
        return self.transport.is_closing() or self.transport.get_write_buffer_size() > 0


class Acceptor:
    """Listens, and makes a transport and a protocol of each connection."""

    def __init__(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        unsent_bytes_max: int | None = UNSENT_BYTES_MAX,
    ) -> None:
        """The kernel takes so many bytes of a connection that cannot be sent yet.

        None leaves it the limit of its own, which is some megabytes.
        """
        self._factory = factory
        self._unsent_bytes_max = unsent_bytes_max
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._made = TaskSet("an accepted connection")
        self._waiting_max = part_of_files(_WAITING_PART, _WAITING_MAX)
        self._waiting: PartyQueues[socket.socket] = PartyQueues()
        self._accounts = LocalAccounts(None)
        self._departing = DepartingClients(
            self._start,
            part_of_files(_DEPARTING_PART, _DEPARTING_MAX),
            self._account_of,
        )
        self._is_next = False
        self._accepted_at = 0.0
        self._resuming: asyncio.TimerHandle | None = None
        self._exhausted = LogThrottle()

    def bind(self, endpoint: Endpoint, *, reuse_port: bool) -> None:
        """Bind all addresses of the endpoint's host. Raises OSError if one cannot be bound.

        With `reuse_port` other sockets of this account that share the port may listen.
        """
        at = endpoint
        try:
            for address in bind_addresses(endpoint):
                at = Endpoint(address, endpoint.port)
                self._sockets.append(bound_socket(at, shared=reuse_port))
                self._sockets[-1].setblocking(False)
        except PortTaken as error:
            self._close_sockets()
            reason = (error.strerror or "").lower()
            raise OSError(error.errno, f"cannot listen on {at}: {reason}") from None

    def listen(self) -> None:
        """Accept from now on. Raises OSError."""
        for listening in self._sockets:
            if (limit := self._unsent_bytes_max) is not None:
                # Its connections inherit the option (tcp(7)).
                listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, limit)
            listening.listen(BACKLOG)
        self._accounts = LocalAccounts.open()
        self._resume()

    @property
    def address(self) -> Endpoint:
        """The first address that is bound, with the port that the system may have chosen."""
        host, port = self._sockets[0].getsockname()[:2]
        return Endpoint(host, port)

    async def close(self) -> None:
        """Accept no more; the protocols of all connections that it has accepted have been told."""
        self._pause()
        self._close_sockets()
        while self._waiting:
            _, connection = self._waiting.next()
            self._start(connection)
        self._departing.serve_all()
        self._accounts.close()
        await self._made.wait()

    def _resume(self) -> None:
        self._resuming = None
        for listening in self._sockets:
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    def _pause(self) -> None:
        if self._resuming is not None:
            self._resuming.cancel()
            self._resuming = None
        for listening in self._sockets:
            self._loop.remove_reader(listening.fileno())

    def _close_sockets(self) -> None:
        for listening in self._sockets:
            listening.close()
        self._sockets.clear()

    def _accept(self, listening: socket.socket) -> None:
        now = time.monotonic()
        until = now + min(max(_TURN_S, _TURN_PART * (now - self._accepted_at)), _TURN_S_MAX)
        self._accepted_at = now
        while time.monotonic() < until and len(self._waiting) < self._waiting_max:
            try:
                connection, peer = listening.accept()
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    continue  # the client's connection has failed meanwhile, see accept(2)
                if self._departing.drop_oldest():
                    continue
                if self._exhausted.count(self._loop.time()) is not None:
                    logger.warning("no connection can be accepted now: %s", error.strerror)
                self._pause()
                self._resuming = self._loop.call_later(_PAUSE_S, self._resume)
                break
            party = party_of(str(peer[0]))
            if not self._has_left(party, connection):
                self._waiting.add(party, connection)
        self._make_some()

    def _has_left(self, party: str, connection: socket.socket) -> bool:
        """Tell whether the client does not wait for its turn; what it still may get, it gets."""
        side = peer_side(connection)
        if side is PeerSide.GONE:
            # Nobody reads an answer. Many who connect and vanish at once cost nearly nothing.
            connection.close()
        elif side is PeerSide.CLOSED:
            self._departing.add(party, connection)
        return side is not PeerSide.OPEN

    def _account_of(self, connection: socket.socket) -> int | None:
        return self._accounts.of_local_client(connection)

    def _make_some(self, waited: bool = False) -> None:
        """Make transports of some connections; those that have waited may have left."""
        if self._is_next:
            return
        made = 0
        while self._waiting and made < _MADE_MAX:
            party, connection = self._waiting.next()
            if not (waited and self._has_left(party, connection)):
                self._start(connection)
                made += 1
        if self._waiting:
            self._is_next = True
            self._loop.call_soon(self._make_more)

    def _make_more(self) -> None:
        self._is_next = False
        self._make_some(waited=True)

    def _start(self, connection: socket.socket) -> _Accepted:
        connection.setblocking(False)
        accepted = _Accepted(connection)
        self._made.start(self._make(accepted))
        return accepted

    async def _make(self, accepted: _Accepted) -> None:
        connection = accepted.connection
        try:
            accepted.transport, _ = await self._loop.connect_accepted_socket(
                self._factory, connection
            )
        except OSError:
            connection.close()  # it has ended meanwhile
        except BaseException:
            connection.close()
            raise
        finally:
            accepted.is_made = True
