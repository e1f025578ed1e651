"""What a format of track files does: one line a position, between a beginning and an end."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from consumers.connect.data.positions import WholePosition
from waylog.messages import fix_id


class TrackLine(NamedTuple):
    """A position as a line of a file. Lines are sorted by time, then by id."""

    time: str  # ISO 8601 in UTC with milliseconds
    id: str
    text: str


class TrackFormat(Protocol):
    """A format. It never changes."""

    @property
    def suffix(self) -> str:
        """The end of the names of files."""

    @property
    def separator(self) -> str:
        """What is behind each line but the last, before the line feed."""

    def head(self, device: str) -> str:
        """Return what is before the lines, without a line feed."""

    def tail(self) -> str:
        """Return what is behind the lines, with a line feed at its end."""

    def line(self, position: WholePosition) -> TrackLine:
        """Return the line of a position; raises DataException."""

    def read(self, text: str) -> TrackLine | None:
        """Return a line that was written before, without its separator; None: it is none."""


def id_of(position: WholePosition) -> str:
    """Return what identifies a position, the same whenever its record comes."""
    return position.id or fix_id(
        *(position.device, position.time, position.lat, position.lon, position.trigger)
    )
