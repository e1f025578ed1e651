"""Answers questions about the past: tracks, and visits and trips, which are only in Parquet.

A separate process answers them (gateway.tracks.archive_process), because reading Parquet takes as
much memory as a whole gateway, and encoding a year's track takes as long as ingesting as many
fixes. The process starts with the first question and ends when none has come for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from gateway.friends.home_blur import Circle, Grid
from gateway.tracks.asking import Asking
from gateway.tracks.battery import BatteryLevel

#: Points from memory, and from the history, in one response; a longer track has to be requested in
#: pieces.
POINTS_MAX: Final = 250_000
#: Visits or trips in one response: some years of them.
ROWS_MAX: Final = 5_000

#: Points that statistics are made from; they take some 5 us of a point.
STATISTICS_POINTS_MAX: Final = 2_000_000
#: Questions that are answered from points, as tracks are.
SUMMARIES: Final = frozenset({"timeline", "days", "statistics"})
#: The question how much there is of a device, which is answered from points, too.
EXTENT: Final = "extent"
#: Points in memory that are counted: all that memory may hold.
_COUNTED_MAX: Final = 10_000_000

#: Bytes of the length before each piece of points; a piece without points is the last.
LENGTH_BYTES: Final = 4


class Question(msgspec.Struct):
    """A question to the reading process, one line of JSON."""

    kind: str  # "track", "visits", "trips", "battery", or one of SUMMARIES
    device: str
    from_ms: int
    to_ms: int
    limit: int
    #: For a track its format; for tracks and SUMMARIES the circles to hide. Pieces of points
    #: follow the line.
    format: str = ""
    circles: tuple[Circle, ...] | None = None
    grid: Grid | None = None
    #: For days and statistics: the time zone of the days, and what is added up.
    zone: str = ""
    span: str = ""
    #: For EXTENT: rows of all other sources are counted.
    source: str = ""


class Extent(msgspec.Struct):
    """How much there is of a device."""

    #: Different times of its points, in the history and in memory.
    times: int
    #: Rows of the history that have another source than the one that was asked about.
    others: int


_decode_row: Final = msgspec.json.Decoder(dict[str, Any]).decode


def rows_of(pieces: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield what a JSON array contains that has a line for each of its objects.

    The array is decoded as the rows are taken: all at once would take several turns of the event
    loop.
    """
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"{"):
                yield _decode_row(line.removesuffix(b","))


class Archive:
    """The client of the reading process. Users (`party`) take turns.

    `history` and `places` are URLs, as for `waylog history run` and
    `waylog places run`; None if there is no such data.
    """

    def __init__(self, history: str | None, places: str | None) -> None:
        self._urls = (history or "", places or "")
        self._asking = Asking("the archive", "gateway.tracks.archive_process", *self._urls)

    async def track(
        self,
        device: str,
        from_ms: int,
        to_ms: int,
        *,
        recent: Iterable[bytes],
        circles: Sequence[Circle] | None,
        name: str,
        grid: Grid | None = None,
        party: str = "",
    ) -> list[bytes]:
        """Return a device's track with from_ms <= time <= to_ms in the named format, in pieces.

        `recent` yields the device's packed points in memory, of any time, and is read when the
        question's turn has come; without a history they are the whole track. Homes within `circles`
        are hidden; None, for the owner, hides nothing. A `grid` hides where in its cells the device
        was. Raises AnswerUnavailable, and AnswerRefused for more than POINTS_MAX points.
        """
        hidden = None if circles is None else tuple(circles)
        question = Question("track", device, from_ms, to_ms, POINTS_MAX, name, hidden, grid)
        return await self._ask(question, party, recent)

    async def summary(
        self,
        kind: str,
        device: str,
        from_ms: int,
        to_ms: int,
        *,
        recent: Iterable[bytes],
        circles: Sequence[Circle] | None,
        grid: Grid | None = None,
        zone: str = "UTC",
        span: str = "day",
        party: str = "",
    ) -> list[bytes]:
        """Return one of SUMMARIES of a device's track as JSON, in pieces.

        `timeline` has stays, trips and gaps (gateway.tracks.timelines), `days` the number of fixes
        of each date in the zone, `statistics` totals by `span` (gateway.tracks.statistics). All
        else is as for `track`.
        """
        hidden = None if circles is None else tuple(circles)
        limit = STATISTICS_POINTS_MAX if kind == "statistics" else POINTS_MAX
        question = Question(
            *(kind, device, from_ms, to_ms, limit),
            circles=hidden,
            grid=grid,
            zone=zone,
            span=span,
        )
        return await self._ask(question, party, recent)

    async def extent(
        self, device: str, *, recent: Iterable[bytes], before_ms: int, source: str, party: str = ""
    ) -> Extent:
        """Return how much there is of a device, whatever its time.

        Of points in memory those count that are before a time. Raises AnswerUnavailable.
        """
        question = Question(*(EXTENT, device, -(2**62), before_ms - 1, _COUNTED_MAX), source=source)
        answer = b"".join(await self._ask(question, party, recent))
        return msgspec.json.decode(answer, type=Extent)

    async def battery(
        self, device: str, from_ms: int, to_ms: int, party: str = ""
    ) -> list[BatteryLevel]:
        """Return the levels of a device's battery in a period, thinned, out of the history.

        Raises AnswerUnavailable.
        """
        if not self._urls[0]:
            return []
        answer = await self._ask(Question("battery", device, from_ms, to_ms, POINTS_MAX), party)
        return msgspec.json.decode(b"".join(answer), type=list[BatteryLevel])

    async def visits(self, device: str, from_ms: int, to_ms: int, party: str = "") -> list[bytes]:
        """Return visits of a device that overlap a period, in order: a JSON array, in pieces.

        Each visit has a line of its own, see `rows_of`. Raises as `track` does.
        """
        return await self._rows("visits", device, from_ms, to_ms, party)

    async def trips(self, device: str, from_ms: int, to_ms: int, party: str = "") -> list[bytes]:
        """Return trips that overlap a period, as `visits` does."""
        return await self._rows("trips", device, from_ms, to_ms, party)

    async def _rows(
        self, kind: str, device: str, from_ms: int, to_ms: int, party: str
    ) -> list[bytes]:
        if not self._urls[1]:
            return [b"[]"]
        return await self._ask(Question(kind, device, from_ms, to_ms, ROWS_MAX), party)

    async def close(self) -> None:
        """End the process, if it runs."""
        await self._asking.close()

    async def _ask(
        self, question: Question, party: str, recent: Iterable[bytes] | None = None
    ) -> list[bytes]:
        return await self._asking.ask(
            msgspec.json.encode(question), party, None if recent is None else partial(_send, recent)
        )


async def _send(recent: Iterable[bytes], questions: asyncio.StreamWriter) -> None:
    """Send the points that follow a question, in pieces after their lengths."""
    for piece in recent:
        questions.write(len(piece).to_bytes(LENGTH_BYTES) + piece)
        await questions.drain()
        # The process may read as fast as this writes, so that nothing has to drain.
        await asyncio.sleep(0)
    questions.write(bytes(LENGTH_BYTES))
