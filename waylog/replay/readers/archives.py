"""Finds the track files of what a person has exported: a file, a folder, an archive of many.

Strava, Garmin, Polarsteps and Google give zip archives, some with further archives in them. All
tracks of one archive or folder are of one device, unless they say otherwise.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
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


def sources(path: Path) -> Iterator[Source]:
    """Yield the files that may be tracks, by name; each until the next one is asked for.

    Raises OSError, and UnreadableTrack for a damaged archive.
    """
    if path.is_dir():
        for folder, folders, names in os.walk(path):
            folders.sort()
            for name in sorted(names):
                for source in _of_file(Path(folder) / name):
                    source.collection = path.resolve().name
                    yield source
        return
    yield from _of_file(path)


def _of_file(path: Path) -> Iterator[Source]:
    with path.open("rb") as file:
        is_archive = file.read(len(ZIP_MAGIC)) == ZIP_MAGIC
    if not is_archive:
        yield Source(path)
        return
    with damage_told(path), zipfile.ZipFile(path) as archive:
        if one_track_of(archive) is not None:
            yield Source(path)
            return
        yield from _members(path, archive, str(path), Source(path).name, 1)


def _members(
    path: Path, archive: zipfile.ZipFile, shown: str, collection: str, depth: int
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
                _extracted(archive, member) as file,
                damage_told(name),
                zipfile.ZipFile(file) as inner,
            ):
                yield from _members(path, inner, name, collection, depth + 1)
            continue
        source = Source(path, shown=name, opener=partial(archive.open, member))
        source.collection = collection
        source.file_name = PurePosixPath(member.filename).name
        yield source


def _is_archive(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bool:
    with archive.open(member) as file:
        return file.read(len(ZIP_MAGIC)) == ZIP_MAGIC


@contextmanager
def _extracted(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[IO[bytes]]:
    """Yield a member as a file of its own: going back in a packed one unpacks it anew."""
    with tempfile.TemporaryFile(prefix="waylog-replay-") as file:
        with archive.open(member) as packed:
            shutil.copyfileobj(packed, file)
        file.seek(0)
        yield file
