"""Sends a response with records of files as fast as the client takes it.

From the page cache to the socket, without reading the records (sendfile); or in pieces through a
transport that encrypts, or that has something to send before.
"""

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
#: Bytes that are read to be written to a transport, and those of an iteration of the loop.
_PIECE_BYTES: Final = 128 * 1024
_PIECES_BYTES_MAX: Final = 1024 * 1024


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

    def go_on(self) -> None:
        """See PieceSender; a FileSender knows by itself when its socket is writable."""

    def close(self) -> None:
        """Stop sending."""
        if self._is_waiting:
            self._is_waiting = False
            self._loop.remove_writer(self._socket)
        self._parts.clear()
        self._socket.close()


class PieceSender:
    """Writes the parts of one response to a transport, no more than the client takes."""

    __slots__ = (
        "_is_due",
        "_is_writing",
        "_loop",
        "_may_write",
        "_on_done",
        "_on_error",
        "_parts",
        "_sent",
        "_to",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        parts: Sequence[Part],
        loop: asyncio.AbstractEventLoop,
        may_write: Callable[[], bool],
        on_done: Callable[[], None],
        on_error: Callable[[OSError], None],
    ) -> None:
        """`may_write` tells whether the transport has not asked to pause; `go_on` ends a pause."""
        self._to = transport
        self._parts = deque(parts)
        self._sent = 0  # bytes of the first part
        self._loop = loop
        self._may_write = may_write
        self._on_done = on_done
        self._on_error = on_error
        self._is_due = False
        self._is_writing = False

    def send(self) -> bool:
        """Write what may be written now; return whether that is everything. See FileSender."""
        left = _PIECES_BYTES_MAX
        self._is_writing = True
        try:
            while self._parts and self._may_write() and left > 0 and not self._to.is_closing():
                left -= self._write_some()
        except OSError as error:
            self.close()
            self._on_error(error)
            return False
        finally:
            self._is_writing = False
        if self._parts and left <= 0 and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._come_again)
        return not self._parts

    def go_on(self) -> None:
        """Write more: the client has taken what was written before."""
        # A transport that encrypts may pause and go on within one write.
        if self._parts and not self._is_writing and self.send():
            self._on_done()

    def _come_again(self) -> None:
        self._is_due = False
        self.go_on()

    def _write_some(self) -> int:
        part = self._parts[0]
        if isinstance(part, bytes | bytearray | memoryview):
            data = part
        else:
            size = min(len(part) - self._sent, _PIECE_BYTES)
            data = part.read(self._sent, size)
            self._sent += size
        if self._sent in (0, len(part)):
            self._parts.popleft()
            self._sent = 0
        self._to.write(data)
        return len(data) or 1

    def close(self) -> None:
        """Stop sending."""
        self._parts.clear()
