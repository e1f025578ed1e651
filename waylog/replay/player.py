"""Plays recorded fixes: reads the files, and yields each fix when it is due."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path, PurePath
from typing import Final, Protocol

from waylog.cli import CommandError
from waylog.replay.readers.archives import sources
from waylog.replay.readers.detection import UnknownFormat, reader_of
from waylog.replay.readers.recorded import RecordedFix, Skipped
from waylog.replay.readers.source import Source, UnreadableTrack
from waylog.replay.senders.wire import Outgoing, device_name, outgoing

#: Fixes that may pass before the event loop gets to run other tasks.
_FIXES_A_TURN: Final = 100
#: Characters of the end of a file's name that is named in a count.
_SUFFIX_MAX: Final = 6


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

    That is `device` if given, else what the file says, else the name of the file, or of the archive
    or folder that it is in. Our exports say `user/device`; for the same user that is the device.
    Raises CommandError. With `damage` a file that is damaged behind some fixes ends there, and one
    of an archive is left out; the list gets the reasons.
    """
    fixes = itertools.chain.from_iterable(
        read_file(path, device=device, skipped=skipped, user=user, damage=damage) for path in paths
    )
    return itertools.islice(fixes, limit)


def read_file(
    path: Path,
    *,
    device: str | None,
    skipped: Skipped,
    user: str | None = None,
    damage: list[str] | None = None,
    shown: str | None = None,
    count: Callable[[int], object] | None = None,
) -> Iterator[RecordedFix]:
    """Yield the fixes of one file, as `read_files` does; `shown` and `count` as for `sources`."""
    try:
        for source in sources(path, shown=shown, count=count):
            yield from _read_source(source, device, skipped, user, damage)
    except UnreadableTrack as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"{shown or path}: {error.strerror or error}") from error


def _read_source(
    source: Source,
    device: str | None,
    skipped: Skipped,
    user: str | None,
    damage: list[str] | None,
) -> Iterator[RecordedFix]:
    # A damaged file does not keep the others of its archive from being read.
    fixes_read = False
    try:
        for fix in reader_of(source)(source, skipped):
            named = fix.device or ""
            if user is not None:
                named = named.removeprefix(f"{user}/")
            fix.device = device_name(device or named or source.name)
            fixes_read = True
            yield fix
    except UnknownFormat:
        if source.collection is None:
            raise
        skipped[f"a file that is no track ({_suffix(source)})"] += 1
    except UnreadableTrack as error:
        if damage is None or not (fixes_read or source.collection):
            raise
        damage.append(f"what follows could not be read: {error}" if fixes_read else str(error))


def _suffix(source: Source) -> str:
    suffix = PurePath(source.file_name).suffix.lower()
    return suffix if 1 < len(suffix) <= _SUFFIX_MAX else "others"


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
