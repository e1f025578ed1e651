"""Watches whether a client reads what it is sent."""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from types import TracebackType
from typing import Final, Self

from waylog.network.connection_ends import reset

#: Seconds after which a client that reads nothing is disconnected. What it has not read counts for
#: its party meanwhile. A client that reads slowly may have megabytes in its own buffers, and its
#: system takes more only when a good part of them has been read.
STALLED_S: Final = 300.0
_COUNT: Final = struct.Struct("i")
#: Checks in the time after which a client is disconnected.
_CHECKS: Final = 2


class ReadingWatch:
    """Disconnects a client that has read nothing for `timeout_s`, while the context lasts.

    Waiting for the transport's buffer alone does not tell: the kernel takes megabytes, and takes
    more only when a good part of them has been read, which needs minutes where a phone reads
    slowly.
    """

    def __init__(self, transport: asyncio.WriteTransport | None, timeout_s: float) -> None:
        self._transport = transport
        self._period_s = timeout_s / _CHECKS
        self._quiet = 0
        #: Bytes given to the transport; counted by whoever writes.
        self.written = 0
        self.has_disconnected = False

    def __enter__(self) -> Self:
        self._read = self._read_until_now()
        self._next = asyncio.get_running_loop().call_later(self._period_s, self._check)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._next.cancel()

    def _check(self) -> None:
        read = self._read_until_now()
        self._quiet = self._quiet + 1 if read <= self._read else 0
        self._read = max(read, self._read)
        if self._quiet == _CHECKS:
            self.has_disconnected = True
            if self._transport is not None:
                reset(self._transport)
            return
        self._next = asyncio.get_running_loop().call_later(self._period_s, self._check)

    def _read_until_now(self) -> int:
        return self.written - unread_bytes(self._transport)


def unread_bytes(transport: asyncio.WriteTransport | None) -> int:
    """Return the bytes that the transport and the kernel hold for the peer."""
    if transport is None:
        return 0
    size = transport.get_write_buffer_size()
    socket = transport.get_extra_info("socket")
    if socket is not None:
        try:
            # tcp(7): SIOCOUTQ, which has the number of TIOCOUTQ.
            raw = fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, bytes(_COUNT.size))
        except (OSError, ValueError):
            return size  # closed, or no TCP
        size += _COUNT.unpack(raw)[0]
    return size
