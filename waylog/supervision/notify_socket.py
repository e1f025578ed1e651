"""The socket at which a supervised process says how it is, with sd_notify(3)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Callable
from typing import Final

#: The notifications that are handled in one iteration of the event loop.
_MESSAGES_A_TURN: Final = 100
_CREDENTIALS: Final = struct.Struct("3i")  # process, user and group (unix(7))


class NotifySocket:
    """Hands messages of this account's processes, and of root's, to a function."""

    def __init__(self, heard: Callable[[bytes], None]) -> None:
        """Bind it and read it in the running event loop; raises OSError."""
        self._heard = heard
        name = f"waylog-{os.getpid()}-{id(self):x}"
        #: What the process gets as NOTIFY_SOCKET.
        self.address: Final = "@" + name
        self._socket = socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            # An address in Linux's abstract namespace leaves no file behind.
            self._socket.bind("\0" + name)
            asyncio.get_running_loop().add_reader(self._socket, self.read)
        except OSError:
            self._socket.close()
            raise

    def read(self) -> None:
        """Hand on what has arrived."""
        with contextlib.suppress(OSError):
            for _ in range(_MESSAGES_A_TURN):
                message, account = _received(self._socket)
                # Any local account may send to an abstract address.
                if account in (0, os.geteuid()):
                    self._heard(message)

    def close(self) -> None:
        """Close it; nothing is heard any more."""
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()


def _received(notify: socket.socket) -> tuple[bytes, int | None]:
    """Return a message and the uid of its sender according to the kernel; raises OSError."""
    message, ancillary, _, _ = notify.recvmsg(4096, socket.CMSG_SPACE(_CREDENTIALS.size))
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            return message, _CREDENTIALS.unpack_from(data)[1]
    return message, None
