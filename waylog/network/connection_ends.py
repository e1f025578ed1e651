"""How a TCP connection ends: what its peer has done so far, and ending it by a reset."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from enum import Enum, auto
from typing import Final

from waylog.network.local_peers.connection_ends import CLOSE, CLOSE_WAIT

_LOOK: Final = int(socket.MSG_PEEK | socket.MSG_DONTWAIT)
#: SO_LINGER with no time: close(2) sends a reset.
_NO_LINGER: Final = struct.pack("ii", 1, 0)


class PeerSide(Enum):
    """What the peer of a connection can still do."""

    #: It may send and receive.
    OPEN = auto()
    #: It has closed its side and may still read: what it has sent before waits here.
    CLOSED = auto()
    #: Nothing can be sent to it, or it has asked for nothing.
    GONE = auto()


def tcp_state(connection: socket.socket) -> int:
    """Return the state of our end; raises OSError, and AttributeError where there is no TCP_INFO.

    It is the first byte of TCP_INFO (tcp(7)).
    """
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]


def peer_side(connection: socket.socket) -> PeerSide:
    """Return what the peer of a TCP connection from which nothing has been read can still do.

    It is OPEN where the system does not tell.
    """
    try:
        state = tcp_state(connection)
        if state == CLOSE:
            return PeerSide.GONE
        if state != CLOSE_WAIT:
            return PeerSide.OPEN
        asked = connection.recv(1, _LOOK)
    except ConnectionError:
        return PeerSide.GONE
    except (AttributeError, OSError):
        return PeerSide.OPEN
    return PeerSide.CLOSED if asked else PeerSide.GONE


def reset(transport: asyncio.WriteTransport) -> None:
    """End the connection of a client that does not read, and discard what is on its way.

    After an ordinary close the kernel would keep for minutes what the client has not read.
    """
    connection = transport.get_extra_info("socket")
    if connection is not None:
        with suppress(OSError, ValueError):  # closed, or no TCP
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()
