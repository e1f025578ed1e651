"""Reads what is only in Parquet: tracks that memory does not reach back to, visits to places.

A process of its own reads it (gateway.tracks.archive_process), since what reads Parquet takes as much
memory as a gateway, and a year's track as long to write as many fixes to take. It starts with the
first question and ends when none came for a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gateway.friends.home_blur import Circle
from gateway.limits.pools import ShareExceeded, Turns
from waylog.process.answering_process import AnsweringProcess

logger = logging.getLogger(__name__)

#: A longer track has to be asked for in pieces.
POINTS_MAX: Final = 250_000
#: The same of visits and trips, which are read and written where others wait: years of them.
ROWS_MAX: Final = 5_000

_ANSWER_S: Final = 60.0
_WRITTEN_AT_ONCE: Final = 64 * 1024
_READ_AT_ONCE: Final = 64 * 1024
#: Questions that wait for those before them; more are refused.
_WAITING_MAX: Final = 256
#: Those of one user.
_WAITING_EACH_MAX: Final = 4


class ArchiveUnavailable(Exception):
    """The archive cannot be read now; the text says why."""


class ArchiveRefused(Exception):
    """The archive cannot give what was asked for; the text says why."""


class Question(msgspec.Struct):
    """A question to the reading process, a line of JSON."""

    kind: str  # "track", "visits" or "trips"
    device: str
    from_ms: int
    to_ms: int
    limit: int
    #: Of a track: its format, what is not shown, and how many bytes of points follow the line.
    format: str = ""
    circles: tuple[Circle, ...] | None = None
    recent: int = 0


class AnswerHead(msgspec.Struct, omit_defaults=True):
    """The line before an answer."""

    bytes: int = 0  # that follow
    error: str = ""
    refused: bool = False


_head: Final = msgspec.json.Decoder(AnswerHead)


class Archive:
    """Asks the reading process, one question at a time; `party`, a user, takes turns with others.

    `history` and `places` are URLs, as `waylog history run` and `waylog places run` know them; with
    None there is nothing of that kind.
    """

    def __init__(self, history: str | None, places: str | None) -> None:
        self._urls = (history or "", places or "")
        self._process = AnsweringProcess("gateway.tracks.archive_process", *self._urls)
        self._turns = Turns(1, 1, _WAITING_EACH_MAX)
        self._waiting = 0

    async def track(
        self,
        device: str,
        from_ms: int,
        to_ms: int,
        *,
        recent: bytes,
        circles: Sequence[Circle] | None,
        name: str,
        party: str = "",
    ) -> list[bytes]:
        """The way of a device with from_ms <= time <= to_ms, in the format of that name, in pieces.

        `recent` are packed points that memory has; where there is no history they are all. Homes
        within the circles are hidden, unless its owner asks (None). Raises ArchiveUnavailable, and
        ArchiveRefused for more than POINTS_MAX.
        """
        if not self._urls[0]:
            return [await asyncio.to_thread(_encode, name, device, recent, circles)]
        question = Question(
            *("track", device, from_ms, to_ms, POINTS_MAX, name, _tuple(circles), len(recent))
        )
        return await self._ask(question, party, recent)

    async def visits(
        self, device: str, from_ms: int, to_ms: int, party: str = ""
    ) -> list[dict[str, Any]]:
        """Visits of a device that touch a time, by time; raises as `track` does."""
        return await self._rows("visits", device, from_ms, to_ms, party)

    async def trips(
        self, device: str, from_ms: int, to_ms: int, party: str = ""
    ) -> list[dict[str, Any]]:
        """Trips between places that touch a time, by time; raises as `track` does."""
        return await self._rows("trips", device, from_ms, to_ms, party)

    async def _rows(
        self, kind: str, device: str, from_ms: int, to_ms: int, party: str
    ) -> list[dict[str, Any]]:
        if not self._urls[1]:
            return []
        question = Question(kind, device, from_ms, to_ms, ROWS_MAX)
        answer = b"".join(await self._ask(question, party))
        rows: list[dict[str, Any]] = msgspec.json.decode(answer)
        return rows

    async def close(self) -> None:
        """End the process, if there is one."""
        await self._process.close()

    async def _ask(self, question: Question, party: str, more: bytes = b"") -> list[bytes]:
        if self._waiting >= _WAITING_MAX:
            raise ArchiveUnavailable("too many questions to the archive wait already")
        self._waiting += 1
        try:
            async with self._turns.turn(party):
                try:
                    async with asyncio.timeout(_ANSWER_S):
                        return await self._exchange(question, more)
                except BaseException as error:
                    if not isinstance(error, ArchiveRefused):
                        # Its answer may still come: the next question must not get that one.
                        await self._process.end()
                    if isinstance(error, TimeoutError | OSError | EOFError):
                        raise ArchiveUnavailable("the archive does not answer") from error
                    raise
        except ShareExceeded:
            raise ArchiveUnavailable(
                "too many questions of yours to the archive wait already"
            ) from None
        finally:
            self._waiting -= 1

    async def _exchange(self, question: Question, more: bytes) -> list[bytes]:
        async with self._process.asked() as (questions, answers):
            questions.write(msgspec.json.encode(question) + b"\n")
            view = memoryview(more)
            for start in range(0, len(more), _WRITTEN_AT_ONCE):
                questions.write(view[start : start + _WRITTEN_AT_ONCE])
                await questions.drain()
            await questions.drain()
            head = _head.decode(await answers.readuntil(b"\n"))
            if head.refused:
                raise ArchiveRefused(head.error)
            if head.error:
                raise ArchiveUnavailable(head.error)
            # To wait for all of it would put it together here, which takes long where it is much.
            pieces: list[bytes] = []
            missing = head.bytes
            while missing:
                pieces.append(await answers.read(min(missing, _READ_AT_ONCE)))
                if not pieces[-1]:
                    raise EOFError
                missing -= len(pieces[-1])
            return pieces


def _tuple(circles: Sequence[Circle] | None) -> tuple[Circle, ...] | None:
    return None if circles is None else tuple(circles)


def _encode(name: str, device: str, recent: bytes, circles: Sequence[Circle] | None) -> bytes:
    # Only with the first track does a gateway without a history need what encodes it.
    from gateway.tracks.track_encoders import encode_track
    from gateway.tracks.track_points import unpacked

    return encode_track(name, device, [unpacked(recent)], circles)
