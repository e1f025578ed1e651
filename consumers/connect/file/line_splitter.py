"""Cuts a stream of bytes into lines, whatever pieces it comes in."""

from __future__ import annotations

import re
from typing import Final

#: The ends of lines that Java knows.
_END: Final = re.compile(rb"\r\n|\n|\r")


class LineSplitter:
    """Keeps the part of a line that has no end yet.

    A line ends with LF, CR LF or CR. A CR at the very end of a piece may be the first half of CR
    LF, so that its line is complete only when more has come.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    @property
    def rest_bytes(self) -> int:
        """The number of bytes behind the last complete line."""
        return sum(map(len, self._parts))

    def feed(self, data: bytes) -> list[tuple[bytes, int]]:
        """Return the lines that are complete now, each with its bytes including its end."""
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

    def take_rest(self) -> tuple[bytes, int] | None:
        """Return what has no end as a line, since nothing will follow; None if there is nothing."""
        rest = b"".join(self._parts)
        self._parts = []
        return (rest.removesuffix(b"\r"), len(rest)) if rest else None

    def clear(self) -> None:
        """Forget what has no end."""
        self._parts = []
