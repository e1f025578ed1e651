"""Accepts connections quickly, so that those of many do not wait behind those of one.

The kernel's queue of connections is served first come, first served. uvloop takes one connection of
it in an iteration of the loop, asyncio as many as the queue is long: under a flood of connections
others wait for seconds, or the loop stands still. Here it takes as many as it can in a millisecond;
what they send is served in turns of users afterwards.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from collections.abc import Callable, Sequence
from typing import Final

from waylog.config import Endpoint
from waylog.network.bind_addresses import BACKLOG, bind_addresses
from waylog.network.free_ports import PortTaken, bound_socket
from waylog.network.resets import has_reset
from waylog.process.background import TaskSet
from waylog.process.log_throttle import LogThrottle

logger = logging.getLogger(__name__)

#: Bytes of a connection that the kernel takes before they can be sent; the client's window bounds
#: those that have been sent.
UNSENT_BYTES_MAX: Final = 128 * 1024
#: Seconds of an iteration of the event loop.
_TURN_S: Final = 0.001
#: Seconds without accepting when the process or the system has no more files or memory.
_PAUSE_S: Final = 1.0
_EXHAUSTED: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class Acceptor:
    """Listens, and makes a transport and a protocol of each connection."""

    def __init__(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self._factory = factory
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._made = TaskSet("an accepted connection")
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
            # Its connections inherit the option (tcp(7)); without it the kernel takes megabytes.
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)
            listening.listen(BACKLOG)
        self._resume()

    @property
    def sockets(self) -> Sequence[socket.socket]:
        """The sockets that are bound."""
        return self._sockets

    @property
    def port(self) -> int:
        """The port, which the system may have chosen."""
        return int(self._sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Accept no more; the protocols of all connections that it has accepted have been told."""
        self._pause()
        self._close_sockets()
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
        until = time.monotonic() + _TURN_S
        while time.monotonic() < until:
            try:
                connection, _ = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    continue  # the client's connection has failed meanwhile, see accept(2)
                if self._exhausted.count(self._loop.time()) is not None:
                    logger.warning("no connection can be accepted now: %s", error.strerror)
                self._pause()
                self._resuming = self._loop.call_later(_PAUSE_S, self._resume)
                return
            if has_reset(connection):
                # Nobody reads an answer. Many who connect and vanish at once cost nearly nothing.
                connection.close()
                continue
            connection.setblocking(False)
            self._made.start(self._make(connection))

    async def _make(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._factory, connection)
        except OSError:
            connection.close()  # it has ended meanwhile
        except BaseException:
            connection.close()
            raise
