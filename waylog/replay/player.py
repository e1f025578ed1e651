"""Plays recorded fixes: reads the files, and yields each fix when it is due."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, Protocol

from waylog.cli import CommandError
from waylog.replay.readers.detection import reader_of
from waylog.replay.readers.recorded import RecordedFix, Skipped
from waylog.replay.readers.source import Source, UnreadableTrack
from waylog.replay.senders.wire import Outgoing, device_name, outgoing

#: Fixes that may pass before the event loop gets to run other tasks.
_FIXES_A_TURN: Final = 100


class Sender(Protocol):
    """A way of sending fixes into the platform."""

    async def run(self, fixes: AsyncIterator[Outgoing]) -> None:
        """Send all fixes; returns when all are answered."""


def read_files(
    paths: Iterable[Path],
    *,
    device: str | None,
    limit: int | None,
    skipped: Skipped,
    user: str | None = None,
    damage: list[str] | None = None,
) -> Iterator[RecordedFix]:
    """Yield the fixes of all files, at most `limit`, each with the name of its device.

    That is `device` if given, else what the file says, else the file's name. Our exports say
    `user/device`; for the same user that is the device. Raises CommandError. With `damage` a file
    that is damaged behind some fixes ends there, and the list gets the reason.
    """
    fixes = itertools.chain.from_iterable(
        _read_file(path, device, skipped, user, damage) for path in paths
    )
    return itertools.islice(fixes, limit)


def _read_file(
    path: Path,
    device: str | None,
    skipped: Skipped,
    user: str | None,
    damage: list[str] | None,
) -> Iterator[RecordedFix]:
    source = Source(path)
    fixes_read = False
    try:
        for fix in reader_of(source)(source, skipped):
            named = fix.device or ""
            if user is not None:
                named = named.removeprefix(f"{user}/")
            fix.device = device_name(device or named or source.name)
            fixes_read = True
            yield fix
    except UnreadableTrack as error:
        if fixes_read and damage is not None:
            damage.append(str(error))
            return
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error


async def play(
    fixes: Iterable[RecordedFix],
    *,
    user: str,
    wire_format: str,
    speed: float | None = None,
    gap_max_s: float | None = None,
    on_played: Callable[[], None] = lambda: None,
) -> AsyncIterator[Outgoing]:
    """Yield the fixes when they are due.

    The fixes must be sorted by time. The recorded gaps are divided by `speed`, and then cut to
    `gap_max_s`; without `speed` everything is due at once.
    """
    loop = asyncio.get_running_loop()
    due, previous = loop.time(), None
    for index, fix in enumerate(fixes):
        if speed is not None:
            if previous is not None:
                gap_s = max(0, fix.time - previous) / 1000 / speed
                due += gap_s if gap_max_s is None else min(gap_s, gap_max_s)
            previous = fix.time
            wait_s = due - loop.time()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
        if index % _FIXES_A_TURN == 0:
            await asyncio.sleep(0)
        assert fix.device is not None
        yield outgoing(fix, user, fix.device, wire_format)
        on_played()
