"""Reads uploaded files and makes fixes of them, in the order of their time.

The fixes pass the parser of `POST /v1/positions`, so that an import takes what a request would take
and refuses what it would refuse.
"""

from __future__ import annotations

import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from gateway.formats import Context, positions
from gateway.imports.records import SOURCE, ImportedFile, ReadingPlan, ReadingProgress
from waylog.cli import CommandError
from waylog.history.plausible_times import IMPLAUSIBLE, is_plausible_time
from waylog.messages import Fix
from waylog.observability.telemetry import now_ms
from waylog.replay.player import read_file
from waylog.replay.readers.recorded import RecordedFix
from waylog.replay.senders import wire
from waylog.replay.senders.wire import outgoing
from waylog.replay.timeline import Timeline

_BATCH_FIXES: Final = 800
_TELL_S: Final = 0.5
#: Reasons and parts that could not be read, of one file; the rest is counted.
_REASONS_MAX: Final = 30
_DAMAGE_MAX: Final = 20
_TEXT_CHARACTERS_MAX: Final = 300
_MORE: Final = "other reasons"


class TooMuch(Exception):
    """The files have more in them than an import may have; the text says of what."""


class Reading:
    """The reading of the files of one import. `tell` is called with its progress now and then."""

    def __init__(self, plan: ReadingPlan, tell: Callable[[ReadingProgress], object]) -> None:
        self._plan: Final = plan
        self._tell: Final = tell
        folder = Path(plan.folder)
        self._paths: Final = [folder / str(number) for number in range(len(plan.names))]
        sizes = [path.stat().st_size for path in self._paths]
        files = [
            ImportedFile(name=name, bytes=size)
            for name, size in zip(plan.names, sizes, strict=True)
        ]
        self.progress: Final = ReadingProgress(
            files=files, of_bytes=sum(map(_content_bytes, self._paths))
        )
        self._refused: Final = Counter[str]()
        self._told = time.monotonic()

    def batches(self) -> Iterator[list[Fix]]:
        """Yield the fixes by time. Raises TooMuch, OSError."""
        with Timeline(self._recorded()) as timeline:
            self._tell_now()
            fixes = iter(timeline)
            while batch := list(islice(fixes, _BATCH_FIXES)):
                accepted = self._accepted(batch)
                if accepted:
                    yield accepted
                self._tell_if_due()
        self._tell_now()

    def _recorded(self) -> Iterator[RecordedFix]:
        """Yield the fixes of all files as they are found."""
        for file, path in zip(self.progress.files, self._paths, strict=True):
            skipped = Counter[str]()
            damage: list[str] = []
            try:
                for fix in read_file(
                    path,
                    device=self._plan.device,
                    skipped=skipped,
                    damage=damage,
                    shown=file.name,
                    count=self._count,
                ):
                    file.fixes += 1
                    self.progress.found += 1
                    if self.progress.found > self._plan.fixes_max:
                        raise TooMuch(f"more than {self._plan.fixes_max} positions")
                    yield fix
            except CommandError as error:
                damage.append(str(error))
            finally:
                file.skipped = _bounded(skipped)
                file.damage = _shortened(damage, file.name)

    def _accepted(self, batch: Iterable[RecordedFix]) -> list[Fix]:
        user, device = self._plan.user, self._plan.device
        body = wire.positions([outgoing(fix, user, device, "positions") for fix in batch])
        parsed = positions.parse(body, Context(user=user, device=device, received=now_ms()))
        for rejected in parsed.rejected:
            self._refused[rejected.reason[:_TEXT_CHARACTERS_MAX]] += 1
        fixes = [fix for fix in parsed.fixes if is_plausible_time(fix.time, fix.received)]
        if len(fixes) < len(parsed.fixes):
            # The log would take them, and the history would not.
            self._refused[IMPLAUSIBLE] += len(parsed.fixes) - len(fixes)
        self.progress.refused = _bounded(self._refused)
        for fix in fixes:
            fix.source = SOURCE
        if fixes:
            if self.progress.first is None:
                self.progress.first = fixes[0].time
            self.progress.last = fixes[-1].time
        return fixes

    def _count(self, size: int) -> None:
        self.progress.read_bytes += size
        if self.progress.read_bytes > self._plan.content_bytes_max:
            raise TooMuch(f"more than {self._plan.content_bytes_max} bytes when unpacked")
        self._tell_if_due()

    def _tell_if_due(self) -> None:
        if time.monotonic() - self._told > _TELL_S:
            self._tell_now()

    def _tell_now(self) -> None:
        self._told = time.monotonic()
        self._tell(self.progress)


def _content_bytes(path: Path) -> int:
    """Return the bytes of a file's content as far as it says so itself; an archive's unpacked."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                return sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError):
        # zipfile raises NotImplementedError for unusual packing. The archive's reader says so.
        pass
    return path.stat().st_size


def _bounded(reasons: Counter[str]) -> dict[str, int]:
    found = {reason: count for reason, count in reasons.most_common(_REASONS_MAX) if count}
    rest = reasons.total() - sum(found.values())
    return found | ({_MORE: rest} if rest else {})


def _shortened(damage: list[str], name: str) -> list[str]:
    """Return what could not be read, without the name of the file that it is told of."""
    told = [text.removeprefix(f"{name}: ")[:_TEXT_CHARACTERS_MAX] for text in damage[:_DAMAGE_MAX]]
    more = len(damage) - len(told)
    return told + ([f"and {more} more"] if more else [])
