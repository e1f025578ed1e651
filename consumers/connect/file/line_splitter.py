"""Cuts a stream of bytes into lines, whatever pieces it comes in."""

from __future__ import annotations

import re
from typing import Final

#: The ends of lines that Java knows.
_END: Final = re.compile(rb"\r\n|\n|\r")
#: A line, or None for one that is too long, and its bytes including its end.
Line = tuple[bytes | None, int]


class LineSplitter:
    """Keeps the part of a line that has no end yet, unless it is too long.

    A line ends with LF, CR LF or CR. A CR at the very end of a piece may be the first half of CR
    LF, so that its line is complete only when more has come.
    """

    def __init__(self, line_bytes_max: int) -> None:
        """Longer lines are only counted."""
        self._max: Final = line_bytes_max
        self._parts: list[bytes] = []
        #: Bytes of the line without an end that were not kept, because it is too long.
        self._dropped = 0

    @property
    def rest_bytes(self) -> int:
        """The number of bytes behind the last complete line."""
        return self._dropped + sum(map(len, self._parts))

    @property
    def is_too_long(self) -> bool:
        """Tell whether the line that has no end yet is too long already."""
        return self._dropped > 0

    def feed(self, data: bytes) -> list[Line]:
        """Return the lines that are complete now."""
        lines: list[Line] = []
        lines.extend(self._split(data))
        if lines:
            first, size = lines[0]
            if self._dropped:
                lines[0] = (None, self._dropped + size)
                self._dropped = 0
            elif first is not None and len(first) > self._max:
                lines[0] = (None, size)
            if len(data) > self._max:
                # Only then others than the first, which may have begun before, can be too long.
                lines = [
                    (None, size) if line is not None and len(line) > self._max else (line, size)
                    for line, size in lines
                ]
        # A CR may be the first half of the line's end.
        end = [b"\r"] if self._parts and self._parts[-1].endswith(b"\r") else []
        size = self.rest_bytes - len(end)
        if size > self._max:
            self._dropped, self._parts = size, end
        return lines

    def _split(self, data: bytes) -> list[tuple[bytes, int]]:
        if b"\r" not in data and not (self._parts and self._parts[-1].endswith(b"\r")):
            pieces = data.split(b"\n")
            last = pieces.pop()
            if not pieces:
                if last:
                    self._parts.append(last)
                return []
            if self._parts:
                pieces[0] = b"".join((*self._parts, pieces[0]))
            self._parts = [last] if last else []
            return [(line, len(line) + 1) for line in pieces]
        data = b"".join((*self._parts, data))
        lines: list[tuple[bytes, int]] = []
        start = 0
        for match in _END.finditer(data):
            if match.end() == len(data) and match[0] == b"\r":
                break
            lines.append((data[start : match.start()], match.end() - start))
            start = match.end()
        self._parts = [data[start:]] if start < len(data) else []
        return lines

    def take_rest(self) -> Line | None:
        """Return what has no end as a line, since nothing will follow; None if there is nothing."""
        rest, size, is_too_long = b"".join(self._parts), self.rest_bytes, self.is_too_long
        self.clear()
        if not size:
            return None
        return (None if is_too_long else rest.removesuffix(b"\r"), size)

    def clear(self) -> None:
        """Forget what has no end."""
        self._parts = []
        self._dropped = 0
