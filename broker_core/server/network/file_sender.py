"""Sends a response with records of a file from the page cache, without reading them (sendfile)."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from broker_core.protocol.parts import Part

#: Bytes sent in one iteration of the event loop, however fast the peer receives.
_TURN_BYTES_MAX: Final = 8 * 1024 * 1024


class FileSender:
    """Writes the parts of one response directly to the socket of a transport.

    The transport must have an empty buffer, and must not be used until `on_done` is called.
    """

    __slots__ = (
        "_is_waiting",
        "_loop",
        "_on_done",
        "_on_error",
        "_on_progress",
        "_parts",
        "_sent",
        "_socket",
    )

    def __init__(
        self,
        transport_socket: socket.socket,
        parts: Sequence[Part],
        loop: asyncio.AbstractEventLoop,
        on_progress: Callable[[], None],
        on_done: Callable[[], None],
        on_error: Callable[[OSError], None],
    ) -> None:
        # A duplicate: the event loop refuses to watch a descriptor that a transport uses.
        self._socket = socket.socket(
            transport_socket.family, transport_socket.type, 0, os.dup(transport_socket.fileno())
        )
        self._parts = deque(parts)
        self._sent = 0  # bytes of the first part
        self._loop = loop
        self._on_progress = on_progress
        self._on_done = on_done
        self._on_error = on_error
        self._is_waiting = False

    def send(self) -> bool:
        """Send as much as the socket takes; return whether everything is sent.

        If not, `on_done` is called when it is, or `on_error` if that fails.
        """
        left = _TURN_BYTES_MAX
        try:
            while self._parts and left > 0:
                left -= self._send_some()
        except BlockingIOError:
            pass
        except OSError as error:
            self.close()
            self._on_error(error)
            return False
        if self._parts:
            if not self._is_waiting:
                self._is_waiting = True
                self._loop.add_writer(self._socket, self._go_on)
            return False
        self.close()
        return True

    def _go_on(self) -> None:
        # The socket is writable, so the peer has received something.
        self._on_progress()
        if self.send():
            self._on_done()

    def _send_some(self) -> int:
        part = self._parts[0]
        if isinstance(part, bytes | bytearray | memoryview):
            # MSG_MORE lets the kernel put a short head into one packet with the records behind it.
            more = socket.MSG_MORE if len(self._parts) > 1 else 0
            count = self._socket.send(memoryview(part)[self._sent :], more)
        else:
            count = part.send(self._socket.fileno(), self._sent)
        self._sent += count
        if self._sent == len(part):
            self._parts.popleft()
            self._sent = 0
        return count

    def close(self) -> None:
        """Stop sending."""
        if self._is_waiting:
            self._is_waiting = False
            self._loop.remove_writer(self._socket)
        self._parts.clear()
        self._socket.close()
