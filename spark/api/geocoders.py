"""Geocoding indexes in Spark's Python workers: each process opens an index once."""

from __future__ import annotations

import socket
from functools import lru_cache
from pathlib import Path
from typing import Final

from geoservice.reverse.geocoder import Geocoder

# A worker serves one query after the other; the pages of a mapped file are shared by all workers.
_OPEN_MAX: Final = 4


def open_geocoder(index: str | None) -> Geocoder:
    """Return the geocoder of an index file, by default of the embedded world.

    A relative path is looked for among the files that Spark has shipped (`addFile`, `addArchive`,
    `--files`, `--archives`), then in the worker's folder. Raises FileNotFoundError that says where
    it was looked for, and IndexUnavailable.
    """
    if index is None:
        return _opened(None, 0, 0)
    path = _found(index)
    # A file that has taken another's place is opened anew.
    status = path.stat()
    return _opened(path, status.st_ino, status.st_mtime_ns)


@lru_cache(maxsize=_OPEN_MAX)
def _opened(path: Path | None, _number: int, _changed_ns: int) -> Geocoder:
    return Geocoder.open(path)


def _found(index: str) -> Path:
    candidates = [Path(index)]
    if not candidates[0].is_absolute():
        from pyspark import SparkFiles

        root = SparkFiles.getRootDirectory()
        if root:
            candidates.insert(0, Path(root) / index)
    for path in candidates:
        if path.is_file():
            return path
    tried = ", ".join(str(path.absolute()) for path in candidates)
    raise FileNotFoundError(
        f"no geocoding index {index} on {socket.gethostname()} (looked for {tried}): give a path "
        "that is the same on all machines, or ship the file with addFile or addArchive and give "
        "its path there"
    )
