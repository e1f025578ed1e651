"""The imports of one gateway process: made, run one at a time for each user, undone."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

from gateway.formats.characters import chosen_name
from gateway.imports.import_run import ImportRun
from gateway.imports.import_store import FILES_MAX, ImportRefused, ImportStore
from gateway.imports.records import SOURCE, Import, ImportedFile, undo_refusal
from gateway.imports.storing import Storing
from gateway.tracks.archive import Archive, Extent
from gateway.tracks.asking import AnswerUnavailable
from gateway.users.auth import Identity
from gateway.users.database import DEVICE_NAME, UserStore
from gateway.users.permissions import Permissions
from gateway.views.location_view import LocationView
from waylog.extras import install_command, is_installed
from waylog.history.erasures import append_erasures
from waylog.kafka.clients import LogUnreachable
from waylog.observability.telemetry import now_ms
from waylog.process.background import TaskSet
from waylog.process.machine_lock import MachineLock

logger = logging.getLogger(__name__)

_NAME_CHARACTERS_MAX: Final = 255
_DEVICE_CHARACTERS_MAX: Final = 128
#: Suffixes that tell a format or a compression, and are no part of a device's name.
_SUFFIXES: Final = frozenset(
    (
        *(".gz", ".zip", ".gpx", ".kml", ".kmz", ".geojson", ".json", ".ndjson", ".csv", ".tcx"),
        *(".fit", ".nmea", ".rec", ".jpg", ".jpeg", ".heic", ".tif", ".tiff", ".txt"),
    )
)
_STOP_S: Final = 60.0
_LOOK_S: Final = 0.1
_TIDY_S: Final = 3600.0


class Imports:
    """What users import through one process; used on its event loop."""

    def __init__(
        self,
        store: ImportStore,
        storing: Storing,
        *,
        bootstrap_servers: str,
        locations: LocationView,
        archive: Archive,
        permissions: Permissions,
        users: UserStore,
    ) -> None:
        self.store: Final = store
        self._storing: Final = storing
        self._bootstrap_servers: Final = bootstrap_servers
        self._locations: Final = locations
        self._archive: Final = archive
        self._permissions: Final = permissions
        self._users: Final = users
        self._running: Final = TaskSet("an import")

    async def create(self, user: str, device: str | None, files: Sequence[ImportedFile]) -> Import:
        """Make an import of files that are then uploaded. Raises ImportRefused, OSError."""
        _check_files(files)
        if not is_installed("replay"):
            raise ImportRefused(
                501, f"the platform lacks what reads files: {install_command('replay')}"
            )
        name = None if device is None else chosen_name(device)
        if name is not None:
            if DEVICE_NAME.fullmatch(name) is None:
                raise ImportRefused(400, "device must have 1 to 128 characters")
            if self._storing.is_erased(f"{user}/{name}"):
                raise ImportRefused(
                    409,
                    f"{user}/{name} has been erased, and its past is not stored again: choose "
                    "another name",
                )

        def choose(taken: set[str]) -> str:
            return name or self._free_name(user, default_name(files), taken)

        return await asyncio.to_thread(self.store.create, user, choose, files, now_ms())

    async def start(self, found: Import, identity: Identity) -> None:
        """Read what has been uploaded, once it is the import's turn. Raises ImportRefused."""
        lock = await asyncio.to_thread(self._locked, found)
        sender = replace(identity, credential=None)
        run = ImportRun(
            *(found, self.store, self._storing, lambda: self._now(sender, found.created), lock)
        )
        self._running.start(self._run(run))

    def _locked(self, found: Import) -> MachineLock:
        """Let an import wait for its turn; return the lock that is held meanwhile.

        Raises ImportRefused, OSError.
        """
        if found.state not in ("uploading", "interrupted", "failed"):
            raise ImportRefused(409, f"this import is {found.state} already")
        if self.store.received(found) != [file.bytes for file in found.files]:
            raise ImportRefused(409, "its files have not been uploaded, or not all of them")
        lock = self.store.lock(found)
        try:
            if not lock.held():
                raise ImportRefused(409, "this import is running already")
            self.store.let_go_on(found)
            found.state, found.reason, found.finished = "waiting", None, None
            self.store.write(found)
        except BaseException:
            lock.close()
            raise
        return lock

    async def undo(self, found: Import) -> None:
        """Erase what an import has brought, and remove it. Raises ImportRefused, OSError."""
        found = await self._stopped(found)
        if found.has_begun_to_store:
            # What comes from now on is none of the import's, and is not erased with it.
            before_ms = now_ms()
            refusal = undo_refusal(found) or await self._others(found)
            if refusal is not None:
                raise ImportRefused(409, refusal)
            device = found.full_device
            try:
                await asyncio.to_thread(
                    append_erasures, self._bootstrap_servers, [device], before_ms
                )
            except LogUnreachable as error:
                raise ImportRefused(503, f"the log does not answer: {error}") from error
            logger.info("%s has undone an import: %s is erased", found.user, device)
        await asyncio.to_thread(self.store.remove, found)

    async def take_off(self, found: Import) -> None:
        """Remove an import from its user's list; its fixes stay. Raises ImportRefused."""
        found = await self._stopped(found)
        await asyncio.to_thread(self.store.remove, found)

    async def close(self) -> None:
        """End what runs: it is told as interrupted, and can be repeated."""
        await self._running.close()

    async def tidy(self) -> None:
        """Remove what nobody has gone on with for long, until cancelled."""
        while True:
            with suppress(OSError):
                await asyncio.to_thread(self.store.remove_abandoned, now_ms())
                for user in await asyncio.to_thread(self.store.users):
                    await self._forget_former(user)
            await asyncio.sleep(_TIDY_S)

    def rights_changed(self, users: Iterable[str]) -> None:
        """Remove the imports of users who were revoked; the callback of Permissions.subscribe."""
        for user in users:
            self._running.start(self._forget_former(user))

    async def _forget_former(self, user: str) -> None:
        try:
            since = await asyncio.to_thread(self._users.user_since, user)
            await asyncio.to_thread(self.store.forget, user, since)
        except (OSError, sqlite3.Error) as error:
            logger.warning("imports of former users may still be there: %s", error)

    async def _run(self, run: ImportRun) -> None:
        try:
            await run.run(lambda: self._is_new(run.found))
        finally:
            run.lock.close()

    async def _stopped(self, found: Import) -> Import:
        """Return an import on which nobody works any more. Raises ImportRefused."""
        try:
            async with asyncio.timeout(_STOP_S):
                while await asyncio.to_thread(self.store.is_running, found):
                    await asyncio.to_thread(self.store.ask_to_stop, found)
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise ImportRefused(503, "the import does not stop: try again later") from None
        newest = await asyncio.to_thread(self.store.find, found.user, found.id)
        if newest is None:
            raise ImportRefused(404, "you have no such import")
        return newest

    async def _is_new(self, found: Import) -> bool:
        """Tell whether nothing is known of an import's device. Of doubt, it is not new."""
        if self._locations.latest(found.full_device) is not None:
            return False
        try:
            extent = await self._extent(found, 2**62)
        except AnswerUnavailable:
            return False
        return extent.times == 0

    async def _others(self, found: Import) -> str | None:
        """Return why an import that has stored something cannot be undone; None: it can."""
        device = found.full_device
        newest = self._locations.latest(device)
        try:
            # A point with an absurd time is in memory under that of its arrival.
            extent = await self._extent(found, found.created)
        except AnswerUnavailable as error:
            raise ImportRefused(503, str(error)) from error
        from_others = newest is not None and newest.source != SOURCE
        if from_others or extent.others or extent.times > found.times:
            return (
                f"{device} has other positions than those of this import, and to undo it would "
                "erase them, too"
            )
        return None

    async def _extent(self, found: Import, before_ms: int) -> Extent:
        device = found.full_device
        recent = self._locations.track_pieces(device)
        return await self._archive.extent(
            device, recent=recent, before_ms=before_ms, source=SOURCE, party=found.user
        )

    def _now(self, sender: Identity, created: int) -> Identity | None:
        """Return the user of an import with the rights of now; None: it has been revoked."""
        since = self._users.user_since(sender.user)
        if since is None or created < since:
            return None
        return replace(sender, rights=self._permissions.rights_of(sender.user))

    def _free_name(self, user: str, name: str, taken: set[str]) -> str:
        number, free = 1, name
        while free in taken or self._is_known(f"{user}/{free}"):
            number += 1
            free = f"{name[: _DEVICE_CHARACTERS_MAX - 6]}-{number}"
        return free

    def _is_known(self, device: str) -> bool:
        return self._storing.is_erased(device) or self._locations.latest(device) is not None


def default_name(files: Sequence[ImportedFile]) -> str:
    """Return a name for the device of files: that of their folder, or of the first file."""
    parts = [PurePosixPath(file.name).parts for file in files]
    if len(files) > 1 and len(parts[0]) > 1:
        name = parts[0][0]
    else:
        path = PurePosixPath(parts[0][-1])
        while path.suffix.lower() in _SUFFIXES and path.stem:
            path = path.with_suffix("")
        name = path.name
    return chosen_name(name)[:_DEVICE_CHARACTERS_MAX] or "import"


def _check_files(files: Sequence[ImportedFile]) -> None:
    if not 0 < len(files) <= FILES_MAX:
        raise ImportRefused(400, f"an import has 1 to {FILES_MAX} files")
    for file in files:
        parts = PurePosixPath(file.name).parts
        if not parts or len(file.name) > _NAME_CHARACTERS_MAX or not file.name.isprintable():
            raise ImportRefused(
                400,
                f"a file's name has 1 to {_NAME_CHARACTERS_MAX} characters, all of which can be "
                "shown",
            )
