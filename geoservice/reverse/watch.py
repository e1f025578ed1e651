"""A geocoder that follows its index file: a file put in its place is opened without a restart.

A thread looks at the file once a second. What it finds is opened and verified there, and only then
given out; whoever asks meanwhile, or holds on to the geocoder he has, goes on with the one before.
A file that cannot be used is refused with one line, and the last good index stays in use.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from geoservice.index.store import WORLD_PATH, IndexUnavailable
from geoservice.reverse.geocoder import Geocoder

logger = logging.getLogger(__name__)

CHECK_INTERVAL_S: Final = 1.0


class GeocoderSource(Protocol):
    """Where a long-running process gets its geocoder from."""

    @property
    def current(self) -> Geocoder:
        """The one to use now. Ask again for each batch, and keep it for that."""


class FixedGeocoder:
    """A geocoder that stays the same."""

    def __init__(self, geocoder: Geocoder) -> None:
        self._geocoder = geocoder

    @property
    def current(self) -> Geocoder:
        """Always the same."""
        return self._geocoder


class _Signature(NamedTuple):
    """What differs between two files that were put under the same name, one after the other."""

    device: int
    inode: int
    size: int
    changed_ns: int


class WatchedGeocoder:
    """The geocoder of the file that now lies at a path. Thread-safe."""

    def __init__(
        self,
        path: Path | None = None,
        *,
        check_interval_s: float = CHECK_INTERVAL_S,
        on_change: Callable[[Geocoder], None] = lambda _geocoder: None,
    ) -> None:
        """Open the index, by default the embedded world; raises IndexUnavailable.

        `on_change` is called in the watching thread, after another file was taken into use.
        """
        self._argument = path
        self._path = path if path is not None else WORLD_PATH
        self._interval_s = check_interval_s
        self._on_change = on_change
        # Before opening: what changes in between is found at the first look.
        self._signature = _signature(self._path)
        self._current = Geocoder.open(path)
        self.refused: str | None = None  # why the file at the path is not in use, if it is not
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="index-watch", daemon=True)
        self._thread.start()

    @property
    def current(self) -> Geocoder:
        """The newest index that could be used."""
        return self._current

    def close(self) -> None:
        """Look no more; the current geocoder stays usable."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_s):
            try:
                self._look()
            except Exception:
                # Anything else than an unusable file is a bug, and no reason to stop following.
                logger.exception("%s: the new index was not opened", self._path)

    def _look(self) -> None:
        signature = _signature(self._path)
        if signature == self._signature:
            return
        before, self._signature = self._signature, signature
        if signature is None:
            self._refuse(f"{self._path} is gone")
            return
        try:
            geocoder = Geocoder.open(self._argument)
        except IndexUnavailable as error:
            self._refuse(str(error))
            if before is not None and before.inode == signature.inode:
                # What is mapped has changed with the file. Nothing true can be read from it.
                self._leave_current()
            return
        self.refused = None
        replaced, self._current = self._current.index_version, geocoder
        logger.info("index %s replaces %s: %s", geocoder.index_version, replaced, self._path)
        self._on_change(geocoder)

    def _refuse(self, reason: str) -> None:
        if reason != self.refused:
            logger.error("going on with index %s: %s", self._current.index_version, reason)
        self.refused = reason

    def _leave_current(self) -> None:
        """Answer from the embedded world, if that is another file."""
        if self._path == WORLD_PATH:
            return
        try:
            self._current = Geocoder.open()
        except IndexUnavailable:
            return
        logger.error(
            "%s was written to while in use: answering from the embedded world until it is whole. "
            "Put a new index beside it and rename it, as `waylog geo import` does",
            self._path,
        )


def _signature(path: Path) -> _Signature | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return _Signature(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
