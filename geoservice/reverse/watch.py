"""A geocoder that follows its index file: a replaced file is opened without a restart.

A thread checks the file once a second. It opens and verifies a new file before it hands the new
geocoder out; until then callers use the previous one, and they may keep using it. An unusable file
is reported in one log line, and the last good index stays in use. The file is tried again, after
pauses that grow: a file that cannot be opened now, for lack of file descriptors for example, may
well be whole.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from geoservice.index.store import WORLD_PATH, IndexUnavailable
from geoservice.reverse.geocoder import Geocoder
from waylog.process.threads import Rounds, start_thread

logger = logging.getLogger(__name__)

CHECK_INTERVAL_S: Final = 1.0
_CLOSE_S: Final = 5.0
#: Seconds between two attempts at one file at most; each reads all of it.
_PAUSE_MAX_S: Final = 60.0


class GeocoderSource(Protocol):
    """The source of a long-running process's geocoder."""

    @property
    def current(self) -> Geocoder:
        """The geocoder to use now. Read it once for each batch."""


class FixedGeocoder:
    """A source whose geocoder never changes."""

    def __init__(self, geocoder: Geocoder) -> None:
        self._geocoder = geocoder

    @property
    def current(self) -> Geocoder:
        """The geocoder, always the same."""
        return self._geocoder


class _Signature(NamedTuple):
    """The properties that tell two files of the same name apart."""

    device: int
    inode: int
    size: int
    changed_ns: int


class WatchedGeocoder:
    """The geocoder of the file that is now at a path. Thread-safe."""

    def __init__(
        self,
        path: Path | None = None,
        *,
        check_interval_s: float = CHECK_INTERVAL_S,
        on_change: Callable[[Geocoder], None] = lambda _geocoder: None,
    ) -> None:
        """Open the index, by default the embedded world; raises IndexUnavailable.

        `on_change` is called in the watching thread, after a new file came into use.
        """
        self._argument = path
        self._path = path if path is not None else WORLD_PATH
        self._interval_s = check_interval_s
        self._on_change = on_change
        # That of the file in use. Taken before the file is opened, so that the first check finds a
        # change in between.
        self._taken = _signature(self._path)
        # The file that could not be taken last, and when it is tried again.
        self._tried: _Signature | None = None
        self._pause_s = self._try_at = 0.0
        self._current = Geocoder.open(path)
        self.refused: str | None = None  # why the file at the path is not in use, or None
        self._stopping = threading.Event()
        self._thread = start_thread(self._run, "index-watch", may_end=self._stopping.is_set)

    @property
    def current(self) -> Geocoder:
        """The newest usable geocoder."""
        return self._current

    def close(self) -> None:
        """Stop checking; the current geocoder stays usable."""
        self._stopping.set()
        # A file system that hangs must not keep the process from ending.
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        # Anything but an unusable file is a bug, but no reason to stop following.
        rounds = Rounds(f"opening the new index {self._path}")
        while not self._stopping.wait(self._interval_s):
            rounds.once(self._look)

    def _look(self) -> None:
        signature = _signature(self._path)
        if signature is None:
            self._refuse(f"{self._path} is gone")
            return
        if signature == self._taken:
            self.refused = None
            return
        if not self._is_due(signature):
            return
        try:
            geocoder = Geocoder.open(self._argument)
        except IndexUnavailable as error:
            self._refuse(str(error))
            if self._taken is not None and self._taken.inode == signature.inode:
                # The file was overwritten in place, so the mapped memory has changed and is not
                # valid.
                self._taken = None
                self._leave_current()
            return
        self.refused = None
        replaced, self._current = self._current.index_version, geocoder
        logger.info("index %s replaces %s: %s", geocoder.index_version, replaced, self._path)
        self._on_change(geocoder)
        # Only now: what fails before is tried again.
        self._taken = signature

    def _is_due(self, signature: _Signature) -> bool:
        """Return whether to try a file now, and plan the next attempt."""
        now = time.monotonic()
        if signature != self._tried:
            self._tried, self._pause_s = signature, self._interval_s
        elif now < self._try_at:
            return False
        self._try_at = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, _PAUSE_MAX_S)
        return True

    def _refuse(self, reason: str) -> None:
        if reason != self.refused:
            logger.error("going on with index %s: %s", self._current.index_version, reason)
        self.refused = reason

    def _leave_current(self) -> None:
        """Switch to the embedded world, unless it is the file in question."""
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
