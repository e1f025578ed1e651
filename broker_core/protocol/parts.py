"""Parts of a response: bytes in memory, and ranges of files that are sent unread."""

from __future__ import annotations

from typing import Protocol

Buffer = bytes | bytearray | memoryview


class FileRange(Protocol):
    """A payload that is sent from where it is stored, without being read first."""

    def __len__(self) -> int:
        """The number of bytes."""

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        """Return `size` bytes from `start` on, or all that follow; raises OSError."""

    def send(self, socket: int, start: int) -> int:
        """Send as many bytes from `start` on as the socket takes; raises OSError."""


Part = Buffer | FileRange
