"""Reads all segments of a log from its files and checks every batch; changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker_core.environment import Disk, File
from broker_core.log import checkpoints
from broker_core.log.checkpoints import CleanShutdown
from broker_core.log.offset_index import OffsetIndex
from broker_core.log.recovery import offsets_of
from broker_core.log.scanning import Scan
from broker_core.log.segment import LOG_SUFFIX, segment_path
from broker_core.log.segment_indexes import INDEX_SUFFIX
from broker_core.protocol.batch_header import HEADER_BYTES

#: Called with the bytes that have been checked since the last call.
Progress = Callable[[int], None]

_PIECE_BATCHES: Final = 256


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that is wrong with a log, and where."""

    file: Path
    position: int | None  # byte in the file, None if it concerns no single place
    problem: str
    #: A torn end of the newest segment: the next start of the broker cuts it.
    harmless: bool = False


@dataclass(slots=True)
class Verified:
    """The outcome for one partition's log."""

    directory: Path
    segments: int = 0
    batches: int = 0
    bytes: int = 0
    damage: tuple[Damage, ...] = ()


def log_directories(folder: Path) -> list[Path]:
    """Return the folders of partitions at or below a folder, sorted."""
    found = {path.parent for path in folder.rglob(f"{'[0-9]' * 20}{LOG_SUFFIX}")}
    # A log that has lost all of its segments still has its checkpoints.
    found |= {path.parent for path in folder.rglob(checkpoints.RECOVERY_POINT)}
    found |= {path.parent for path in folder.rglob(checkpoints.CLEAN_SHUTDOWN)}
    return sorted(found)


def log_bytes(disk: Disk, directory: Path) -> int:
    """Return the size of a log's segments."""
    bases = offsets_of(disk.names(directory), LOG_SUFFIX)
    return sum(disk.size(segment_path(directory, base)) or 0 for base in bases)


def verify_log(disk: Disk, directory: Path, progress: Progress) -> Verified | None:
    """Check one partition's log; None if it is deleted meanwhile. Raises OSError.

    The log may change meanwhile: it grows, and retention and compaction replace its segments.
    """
    try:
        return _verify(disk, directory, progress)
    except FileNotFoundError:
        if directory.exists():
            raise
        return None


def _verify(disk: Disk, directory: Path, progress: Progress) -> Verified | None:
    outcome = Verified(directory)
    damage: list[Damage] = []
    # Before the segments are listed, which may have more by then.
    stored = _checkpoint(disk, directory, checkpoints.RECOVERY_POINT, damage) or 0
    clean = CleanShutdown.load(disk, directory)
    if clean is not None:
        stored = max(stored, clean.log_end_offset)
    bases = offsets_of(disk.names(directory), LOG_SUFFIX)
    # Retention saves it before it removes segments.
    start = _checkpoint(disk, directory, checkpoints.LOG_START_OFFSET, damage)
    if start is None:
        start = bases[0] if bases else 0
    if bases and bases[0] > start:
        text = f"offsets {start} to {bases[0] - 1} are lost: no file has them"
        damage.append(Damage(segment_path(directory, bases[0]), None, text))
    end = start
    base = bases[0] if bases else None
    while base is not None:
        # Compaction joins segments: which one follows is only known now.
        following = _next_base(disk, directory, base)
        outcome.segments += 1
        end = base
        for found in _verify_segment(disk, directory, base, following, outcome, progress):
            if isinstance(found, Damage):
                damage.append(found)
            else:
                end = found
        base = following
    if end < stored:
        text = f"offsets {end} to {stored - 1} are lost: they were on disk once"
        damage.append(Damage(directory, None, text))
    outcome.damage = tuple(damage)
    return outcome if directory.exists() else None


def _checkpoint(disk: Disk, directory: Path, name: str, damage: list[Damage]) -> int | None:
    stored = checkpoints.load_offset(disk, directory, name)
    if not stored.is_sound:
        text = "is damaged" if stored.offset is None else f"is damaged; it says {stored.offset}"
        damage.append(Damage(directory / name, None, text))
    return stored.offset


def _next_base(disk: Disk, directory: Path, base: int) -> int | None:
    bases = offsets_of(disk.names(directory), LOG_SUFFIX)
    return next((each for each in bases if each > base), None)


def _verify_segment(
    disk: Disk,
    directory: Path,
    base: int,
    following: int | None,
    outcome: Verified,
    progress: Progress,
) -> Iterator[Damage | int]:
    """Yield what is damaged, and at last the offset after the last sound batch."""
    path = segment_path(directory, base)
    try:
        file = disk.open(path)
    except FileNotFoundError:
        yield base  # retention or compaction has removed it
        return
    size = file.size()
    next_offset, position = base, 0
    while position < size:
        scan = Scan(file, size, check_crc=True, start=position)
        since = position
        for header, at, _ in scan:
            if header.base_offset < next_offset or (
                following is not None and header.next_offset > following
            ):
                yield Damage(path, at, f"offset {header.base_offset} is out of order")
            next_offset = max(next_offset, header.next_offset)
            position = at + header.size
            outcome.batches += 1
            if outcome.batches % _PIECE_BATCHES == 0:
                progress(position - since)
                since = position
        progress(position - since)
        if scan.problem is None:
            break
        again = _next_known_batch(disk, directory, base, size, position)
        is_torn = following is None and again is None and _is_cut_short(file, size, position)
        until = size if again is None else again
        text = f"{scan.problem}; {until - position} bytes cannot be read"
        yield Damage(path, position, text, harmless=is_torn)
        progress(until - position)
        position = until
    outcome.bytes += size
    yield next_offset


def _next_known_batch(
    disk: Disk, directory: Path, base: int, size: int, position: int
) -> int | None:
    """Return where the offset index says that a batch begins behind a position."""
    path = segment_path(directory, base, INDEX_SUFFIX)
    if disk.size(path) is None:
        return None
    index = OffsetIndex.from_bytes(disk.read(path), size)
    return None if index is None else index.position_behind(position)


def _is_cut_short(file: File, size: int, position: int) -> bool:
    """Return whether the file ends within the batch that begins here."""
    head = file.pread(min(HEADER_BYTES, size - position), position)
    return len(head) < HEADER_BYTES or int.from_bytes(head[8:12], "big") + 12 > size - position
