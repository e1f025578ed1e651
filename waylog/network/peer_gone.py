"""Tells whether a peer has closed its connection, also while nothing is read from it."""

from __future__ import annotations

import asyncio
import select
import socket as sockets
from typing import Final

#: The state CLOSE in the first byte of TCP_INFO (Linux, include/net/tcp_states.h).
_CLOSED: Final = 7


def has_gone(transport: asyncio.BaseTransport | None) -> bool:
    """Tell whether the peer of a transport has closed its side, or the connection is lost.

    It is False for transports without a socket.
    """
    socket = None if transport is None else transport.get_extra_info("socket")
    if socket is None or (descriptor := socket.fileno()) < 0:
        return False
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP)
    ended = select.POLLRDHUP | select.POLLHUP | select.POLLERR
    return any(events & ended for _, events in poll.poll(0))


def has_reset(connection: sockets.socket) -> bool:
    """Tell whether the peer has reset a TCP connection, so that nothing can be sent any more.

    A peer that has only closed its side still reads, perhaps. It is False where the system does not
    tell.
    """
    try:
        state = connection.getsockopt(sockets.IPPROTO_TCP, sockets.TCP_INFO, 1)[0]
    except (AttributeError, OSError):
        return False
    return bool(state == _CLOSED)
