"""Favourite places, as the job `waylog places run` leaves them: one Parquet file."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

FILE_NAME: Final = "places.parquet"
_COLUMNS: Final = (
    *("user", "device", "place_id", "lat", "lon", "label", "name"),
    *("visits", "dwell_s", "address"),
)


class PlacesUnavailable(Exception):
    """The places exist and cannot be read now; the text says why."""


class Places:
    """Reads places; keeps them until the file changes.

    `url` is a folder or a file URL of one; None if no places are kept.
    """

    def __init__(self, url: str | None) -> None:
        self._path = None if url is None else _local_path(url)
        self._lock = threading.Lock()
        self._version: tuple[int, int] | None = None
        self._by_user: dict[str, list[dict[str, Any]]] = {}

    async def of_device(self, device: str) -> list[dict[str, Any]]:
        """Places of a device, the most visited first. Raises PlacesUnavailable."""
        user = device.partition("/")[0]
        places = await asyncio.get_running_loop().run_in_executor(None, self._of_user, user)
        name = device.partition("/")[2]
        # A place found over all devices of a user has no device of its own.
        return [place for place in places if place["device"] in (device, name, None)]

    def _of_user(self, user: str) -> list[dict[str, Any]]:
        if self._path is None:
            return []
        with self._lock:
            try:
                status = self._path.stat()
            except FileNotFoundError:
                return []
            except OSError as error:
                raise PlacesUnavailable(f"places cannot be read: {error.strerror}") from error
            version = (status.st_mtime_ns, status.st_ino)
            if version != self._version:
                self._by_user = _read(self._path)
                self._version = version
            return self._by_user.get(user, [])


def _local_path(url: str) -> Path | None:
    parts = urlsplit(url)
    if parts.scheme not in ("", "file"):
        # HDFS and S3 need their own readers; the page then has no places, and says so.
        return None
    path = Path(unquote(parts.path) if parts.scheme else url)
    return path if path.suffix == ".parquet" else path / FILE_NAME


def _read(path: Path) -> dict[str, list[dict[str, Any]]]:
    import pyarrow
    from pyarrow import parquet

    try:
        # Not memory-mapped: the job replaces the file.
        with path.open("rb") as file:
            rows = parquet.read_table(file).to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise PlacesUnavailable(f"places cannot be read: {error}") from error
    by_user: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        place = {name: row.get(name) for name in _COLUMNS}
        by_user.setdefault(str(place["user"]), []).append(place)
    for places in by_user.values():
        places.sort(key=lambda place: (-(place["dwell_s"] or 0), str(place["place_id"])))
    return by_user
