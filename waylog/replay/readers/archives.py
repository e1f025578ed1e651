"""Finds the track files of what a person has exported: a file, a folder, an archive of many.

Strava, Garmin, Polarsteps and Google give zip archives, some with further archives in them. All
tracks of one archive or folder are of one device, unless they say otherwise.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Final

from waylog.replay.readers.source import (
    ZIP_MAGIC,
    Source,
    UnreadableTrack,
    damage_told,
    one_track_of,
)

#: Archives in archives, and files in all of them together: more is no person's export.
_DEPTH_MAX: Final = 3
_FILES_MAX: Final = 1_000_000
#: Bytes of an archive in an archive, which is unpacked into a temporary file.
_INNER_BYTES_MAX: Final = 64 * 1024**3
_COPIED_AT_ONCE: Final = 1024 * 1024


def sources(
    path: Path, *, shown: str | None = None, count: Callable[[int], object] | None = None
) -> Iterator[Source]:
    """Yield the files that may be tracks, by name; each until the next one is asked for.

    `shown` is what a file is called, where that is not the name under which it is kept. `count` is
    called with the numbers of unpacked bytes as they are read. Raises OSError, and UnreadableTrack
    for a damaged archive.
    """
    if path.is_dir():
        for folder, folders, names in os.walk(path):
            folders.sort()
            for name in sorted(names):
                for source in _of_file(Path(folder) / name, None, count):
                    source.collection = path.resolve().name
                    yield source
        return
    yield from _of_file(path, shown, count)


def _of_file(
    path: Path, shown: str | None, count: Callable[[int], object] | None
) -> Iterator[Source]:
    single = Source(path, shown=shown, count=count)
    if shown is not None:
        single.file_name = PurePosixPath(shown).name
    with path.open("rb") as file:
        is_archive = file.read(len(ZIP_MAGIC)) == ZIP_MAGIC
    if not is_archive:
        yield single
        return
    with damage_told(single), zipfile.ZipFile(path) as archive:
        if one_track_of(archive) is not None:
            yield single
            return
        yield from _members(single, archive, str(single), 1, count)


def _members(
    outer: Source,
    archive: zipfile.ZipFile,
    shown: str,
    depth: int,
    count: Callable[[int], object] | None,
) -> Iterator[Source]:
    members = sorted(
        (each for each in archive.infolist() if not each.is_dir()), key=lambda each: each.filename
    )
    if len(members) > _FILES_MAX:
        raise UnreadableTrack(f"{shown}: more than {_FILES_MAX} files")
    for member in members:
        name = f"{shown}/{member.filename}"
        if _is_archive(archive, member) and not member.filename.lower().endswith(".kmz"):
            if depth == _DEPTH_MAX:
                raise UnreadableTrack(f"{name}: archives in archives in archives")
            if member.file_size > _INNER_BYTES_MAX:
                raise UnreadableTrack(f"{name}: an archive of {member.file_size} bytes")
            with (
                _extracted(archive, member, count) as file,
                damage_told(name),
                zipfile.ZipFile(file) as inner,
            ):
                yield from _members(outer, inner, name, depth + 1, count)
            continue
        opener = partial(archive.open, member)
        source = Source(outer.path, shown=name, opener=opener, count=count)
        source.collection = outer.name
        source.file_name = PurePosixPath(member.filename).name
        yield source


def _is_archive(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bool:
    with archive.open(member) as file:
        return file.read(len(ZIP_MAGIC)) == ZIP_MAGIC


@contextmanager
def _extracted(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, count: Callable[[int], object] | None
) -> Iterator[IO[bytes]]:
    """Yield a member as a file of its own: going back in a packed one unpacks it anew."""
    with tempfile.TemporaryFile(prefix="waylog-replay-") as file:
        with archive.open(member) as packed:
            while piece := packed.read(_COPIED_AT_ONCE):
                if count is not None:
                    count(len(piece))
                file.write(piece)
        file.seek(0)
        yield file
