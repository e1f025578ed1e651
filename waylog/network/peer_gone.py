"""Tells whether a peer has closed its connection, also while nothing is read from it."""

from __future__ import annotations

import asyncio
import select


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
