"""Favourite places, as written by the job `waylog places run`: one Parquet file."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from gateway.views.places_file import FILE_NAME

logger = logging.getLogger(__name__)

_LOOK_S: Final = 10.0
#: Seconds between reads of places on HDFS or S3; the job that finds them runs every few minutes.
REMOTE_S: Final = 300.0
_RETRY_S: Final = 30.0
_READING_S: Final = 60.0
_STAT_S: Final = 5.0
#: Seconds that a request waits for them.
_ASKED_S: Final = 10.0
#: Seconds that the start of a gateway waits for places.
START_S: Final = 3.0


class PlacesUnavailable(Exception):
    """The places exist but cannot be read now; the text says why."""


class Places:
    """Reads places and caches them.

    A local file is read again when it changes, a remote one after REMOTE_S. `url` is a folder or
    its URL; None if there are no places. With `homes_only` only the positions of homes are kept.
    """

    def __init__(self, url: str | None, *, homes_only: bool = False) -> None:
        self._homes_only = homes_only
        self._url = url
        self._path = None if url is None else _local_path(url)
        self._read_again_at = 0.0
        self._remote_error: str | None = None
        self._unreadable = False
        self._reading = asyncio.Lock()
        self._asking: asyncio.Future[os.stat_result] | None = None
        # The look that has not begun, which more may ask for.
        self._next: asyncio.Task[None] | None = None
        self._version: tuple[int, int] | None = None
        self._by_user: dict[str, list[dict[str, Any]]] = {}
        #: Places have been looked up; there may be none.
        self.looked_up = url is None
        self._subscribers: list[Callable[[], object]] = []

    async def of_device(self, device: str) -> list[dict[str, Any]]:
        """Return the places of a device, the most visited first. Raises PlacesUnavailable."""
        await self._refreshed()
        return self.known(device)

    async def of_user(self, user: str) -> list[dict[str, Any]]:
        """Return the places of all devices of a user. Raises PlacesUnavailable."""
        await self._refreshed()
        return list(self._by_user.get(user, ()))

    def known(self, device: str) -> list[dict[str, Any]]:
        """Return the places of a device as last read."""
        user, _, name = device.partition("/")
        # A place found over all devices of a user names no device.
        return [
            place
            for place in self._by_user.get(user, ())
            if place["device"] in (device, name, None)
        ]

    def homes(self, user: str) -> list[tuple[float, float]]:
        """Return the homes among a user's places, as (lat, lon) in degrees."""
        return [
            (place["lat"], place["lon"])
            for place in self._by_user.get(user, ())
            if place["label"] == "home"
        ]

    def has(self, user: str) -> bool:
        """Tell whether a user has places."""
        return user in self._by_user

    def on_change(self, subscriber: Callable[[], object]) -> None:
        """Call `subscriber` whenever places have been read, or are known not to exist."""
        self._subscribers.append(subscriber)

    async def look_up(self) -> None:
        """Read places for the first time, if they can be read now."""
        with suppress(PlacesUnavailable):
            await self.refresh()

    async def watch(self) -> None:
        """Read places whenever the file changes, until cancelled."""
        while self._url is not None:
            try:
                await self.refresh()
                self._unreadable = False
            except PlacesUnavailable as error:
                if not self._unreadable:
                    told = "" if self.looked_up else "; until they can, friends see no positions"
                    logger.warning("%s%s", error, told)
                self._unreadable = True
            await asyncio.sleep(_LOOK_S)

    async def _refreshed(self) -> None:
        """Refresh for a request, which waits for a moment at most. Raises PlacesUnavailable."""
        try:
            async with asyncio.timeout(_ASKED_S):
                await self.refresh()
        except TimeoutError:
            raise PlacesUnavailable("places cannot be read: it takes too long") from None

    async def refresh(self) -> None:
        """Read the file if it has changed. Raises PlacesUnavailable.

        All who ask while it is being read share the next look at it: nobody waits for more than
        two, however many there are.
        """
        if self._path is None and self._url is None:
            return
        if self._next is None:
            self._next = asyncio.create_task(self._look())
            self._next.add_done_callback(_retrieve)
        await asyncio.shield(self._next)

    async def _look(self) -> None:
        async with self._reading:
            # Who asks from now on may know of a later change.
            self._next = None
            is_changed = await (self._look_remote() if self._path is None else self._look_local())
        if is_changed:
            for subscriber in self._subscribers:
                subscriber()

    async def _look_local(self) -> bool:
        """Read the file if it has changed; return whether it was read, or is known not to exist."""
        path = self._path
        assert path is not None
        version = await self._version_of(path)
        if self.looked_up and version in (None, self._version):
            return False
        if version is not None:
            self._by_user = await _read(str(path), self._homes_only)
            self._version = version
        self.looked_up = True
        return True

    async def _version_of(self, path: Path) -> tuple[int, int] | None:
        """Return what tells one version of the file from another; None if there is no file."""
        # A question to a file system that hangs holds a thread until it answers: only one may.
        if self._asking is None:
            self._asking = asyncio.ensure_future(asyncio.to_thread(path.stat))
        try:
            async with asyncio.timeout(_STAT_S):
                status = await asyncio.shield(self._asking)
        except TimeoutError:
            raise PlacesUnavailable(
                f"places cannot be read: the file system of {path} does not answer"
            ) from None
        except FileNotFoundError:
            status = None
        except OSError as error:
            raise PlacesUnavailable(f"places cannot be read: {error.strerror}") from error
        finally:
            if self._asking.done():
                self._asking = None
        return None if status is None else (status.st_mtime_ns, status.st_ino)

    async def _look_remote(self) -> bool:
        """Read what cannot be asked for changes, unless that was done recently."""
        assert self._url is not None
        now = asyncio.get_running_loop().time()
        if now < self._read_again_at:
            if self._remote_error is not None:
                raise PlacesUnavailable(self._remote_error)
            return False
        try:
            self._by_user = await _read(self._url, self._homes_only)
        except PlacesUnavailable as error:
            self._read_again_at, self._remote_error = now + _RETRY_S, str(error)
            raise
        self._read_again_at, self._remote_error = now + REMOTE_S, None
        self.looked_up = True
        return True


def _retrieve(look: asyncio.Task[None]) -> None:
    # Whoever has asked may have gone.
    if not look.cancelled():
        look.exception()


def _local_path(url: str) -> Path | None:
    parts = urlsplit(url)
    if parts.scheme not in ("", "file"):
        return None
    path = Path(unquote(parts.path) if parts.scheme else url)
    return path if path.suffix == ".parquet" else path / FILE_NAME


async def _read(where: str, homes_only: bool) -> dict[str, list[dict[str, Any]]]:
    pipe = asyncio.subprocess.PIPE
    try:
        reader = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway.views.places_file", where),
            *(("homes",) if homes_only else ()),
            stdout=pipe,
            stderr=pipe,
        )
    except OSError as error:
        # No more files, processes or memory, at this moment.
        raise PlacesUnavailable(f"places cannot be read: {error.strerror}") from error
    try:
        async with asyncio.timeout(_READING_S):
            printed, said = await reader.communicate()
    except TimeoutError:
        reader.kill()
        # One that waits for a file system that hangs cannot even be killed.
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await reader.wait()
        raise PlacesUnavailable("places cannot be read: it takes too long") from None
    if reader.returncode != 0:
        reason = said.decode("utf-8", "replace").strip()[-300:]
        raise PlacesUnavailable(f"places cannot be read: {reason}")
    return msgspec.json.decode(printed, type=dict[str, list[dict[str, Any]]])
