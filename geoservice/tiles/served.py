"""The archives that a server gives tiles of; a replaced file is opened without a restart."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from geoservice.tiles.archive import Archive, ArchiveUnavailable, StoredTile

logger = logging.getLogger(__name__)

_LOOK_AGAIN_S: Final = 1.0
#: Members of an archive's metadata that a page is told.
_TOLD: Final[tuple[str, ...]] = ("attribution", "data_time", "outline", "vector_layers")


class _Signature(NamedTuple):
    inode: int
    size: int
    changed_ns: int


@dataclass
class _Watched:
    """A path, the archive that was opened there, and what is said of it."""

    path: Path
    signature: _Signature | None = None
    archive: Archive | None = None
    refused: str | None = None

    def look(self) -> None:
        """Open the file if it is another one than before; a damaged one is said to the log."""
        signature = _signature(self.path)
        if signature == self.signature:
            return
        self.signature = signature
        if self.archive is not None:
            self.archive.close()
            self.archive = None
        if signature is None:
            return
        try:
            self.archive = Archive(self.path)
        except ArchiveUnavailable as error:
            self.refuse(error)
        else:
            self.refused = None
            logger.info("map tiles: %s", self.path)

    def refuse(self, error: ArchiveUnavailable) -> None:
        """Say once what is wrong with a file."""
        if str(error) != self.refused:
            logger.error("without map tiles of %s", error)
        self.refused = str(error)


class ServedTiles:
    """Archives by their number, from 0. Thread-safe."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """A file that is missing is looked for again; one that is damaged is left out."""
        self._lock = threading.Lock()
        self._watched = [_Watched(path) for path in paths]
        self._looked: float | None = None

    def tile(self, number: int, z: int, x: int, y: int) -> tuple[str, StoredTile | None]:
        """Return the version of an archive, and a tile of it. Both may be missing."""
        with self._lock:
            self._look()
            watched = self._watched[number] if number < len(self._watched) else None
            if watched is None or watched.archive is None:
                return "", None
            try:
                return watched.archive.version, watched.archive.tile(z, x, y)
            except ArchiveUnavailable as error:
                watched.refuse(error)
                return "", None

    def describe(self) -> list[dict[str, Any]]:
        """Return what each archive has, in the terms of TileJSON 3.0.0 where it has any."""
        with self._lock:
            self._look()
            return [
                _describe(number, watched.archive)
                for number, watched in enumerate(self._watched)
                if watched.archive is not None
            ]

    def _look(self) -> None:
        now = time.monotonic()
        if self._looked is None or now - self._looked >= _LOOK_AGAIN_S:
            self._looked = now
            for watched in self._watched:
                watched.look()


def _signature(path: Path) -> _Signature | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return _Signature(status.st_ino, status.st_size, status.st_mtime_ns)


def _describe(number: int, archive: Archive) -> dict[str, Any]:
    header = archive.header
    told: dict[str, Any] = {
        name: archive.metadata[name] for name in _TOLD if name in archive.metadata
    }
    corners = ("min_lon_e7", "min_lat_e7", "max_lon_e7", "max_lat_e7")
    return {
        "tiles": f"/tiles/{number}/{{z}}/{{x}}/{{y}}.mvt?v={archive.version}",
        "minzoom": header["min_zoom"],
        "maxzoom": header["max_zoom"],
        "bounds": [header[corner] / 1e7 for corner in corners],  # type: ignore[literal-required]
        **told,
    }
