"""TCP resets: whether a peer has sent one, and ending a connection by one."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Final

#: The state CLOSE in the first byte of TCP_INFO (Linux, include/net/tcp_states.h).
_CLOSED: Final = 7
#: SO_LINGER with no time: close(2) sends a reset.
_NO_LINGER: Final = struct.pack("ii", 1, 0)


def has_reset(connection: socket.socket) -> bool:
    """Tell whether the peer has reset a TCP connection, so that nothing can be sent any more.

    A peer that has only closed its side still reads, perhaps. It is False where the system does not
    tell.
    """
    try:
        state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    except (AttributeError, OSError):
        return False
    return bool(state == _CLOSED)


def reset(transport: asyncio.WriteTransport) -> None:
    """End the connection of a client that does not read, and discard what is on its way.

    After an ordinary close the kernel would keep for minutes what the client has not read.
    """
    connection = transport.get_extra_info("socket")
    if connection is not None:
        with suppress(OSError, ValueError):  # closed, or no TCP
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()
