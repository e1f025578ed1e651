"""One run of an import: waits for its turn, reads the files in a process, stores what comes."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from gateway.imports.import_process import END, FIXES, LENGTH_BYTES
from gateway.imports.import_store import ImportRefused, ImportStore
from gateway.imports.records import Import, ReadingPlan, ReadingProgress
from gateway.imports.storing import Storing
from gateway.users.auth import Identity
from waylog.malformed import MALFORMED
from waylog.messages import Fix
from waylog.observability.telemetry import now_ms
from waylog.process.machine_lock import MachineLock

logger = logging.getLogger(__name__)

#: Imports whose files are read at the same time on this machine, and those that are stored: these
#: take little of it, and long where their users have quotas.
_READING_MAX: Final = 2
_STORING_MAX: Final = 16
_LOOK_S: Final = 0.25
_WATCH_S: Final = 1.0
#: The whole content, in relation to what may be uploaded: tracks pack well.
_CONTENT_RATIO: Final = 8
_FIXES_MAX: Final = 20_000_000
_MEMORY_BYTES_MAX: Final = 1024**3
_FRAME_BYTES_MAX: Final = 64 * 1024**2

_decode_fixes: Final = msgspec.json.Decoder(list[Fix]).decode
_decode_progress: Final = msgspec.json.Decoder(ReadingProgress).decode


class ImportStopped(Exception):
    """Its owner has stopped the import, or it has been removed."""


@dataclass
class ImportRun:
    """One run; `sender` returns its user with the rights of now, None once revoked."""

    found: Import
    store: ImportStore
    storing: Storing
    sender: Callable[[], Identity | None]
    lock: MachineLock
    _looked: float = 0.0
    #: What others wait for while this one works.
    _place: MachineLock | None = None
    _times: int = 0
    _newest_time: int | None = None

    async def run(self, is_new_device: Callable[[], Awaitable[bool]]) -> None:
        """Read and store; the record says how it ended. Never raises but to be cancelled."""
        found = self.found
        scratch = self.store.path(found) / "scratch"
        try:
            async with self._turn():
                if found.is_new_device is None:
                    found.is_new_device = await is_new_device()
                found.state = "reading"
                found.found = found.stored = found.read_bytes = 0
                scratch.mkdir(exist_ok=True)
                await self._write()
                await self._read()
                found.state, found.reason = "done", None
        except ImportStopped:
            found.state, found.reason = "interrupted", None
        except ImportRefused as error:
            found.state, found.reason = "failed", str(error)
        except (OSError, *MALFORMED) as error:
            logger.warning("an import of %s has failed: %s", found.user, error)
            found.state, found.reason = "failed", "the platform could not read the files now"
        finally:
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
        found.finished = now_ms()
        with suppress(OSError):
            if found.state == "done":
                await asyncio.to_thread(self.store.drop_files, found)
            await self._write()

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait until no other import of the user runs, and few on the machine.

        Raises ImportStopped.
        """
        own = MachineLock(self.store.path(self.found).parent / "running")
        try:
            while not own.held():
                await self._look()
                await asyncio.sleep(_LOOK_S)
            self._place = await self._free_place("reading", _READING_MAX)
            yield
        finally:
            own.close()
            if self._place is not None:
                self._place.close()

    async def _free_place(self, kind: str, count: int) -> MachineLock:
        """Wait for one of some places of the machine. Raises ImportStopped."""
        places = [MachineLock(self.store.folder / f"{kind}-{each}") for each in range(count)]
        found: MachineLock | None = None
        try:
            while (found := next((each for each in places if each.held()), None)) is None:
                await self._look()
                await asyncio.sleep(_LOOK_S)
            return found
        finally:
            for each in places:
                if each is not found:
                    each.close()

    async def _read(self) -> None:
        found = self.found
        limit = self.store.bytes_max * _CONTENT_RATIO
        plan = ReadingPlan(
            folder=str(self.store.path(found)),
            user=found.user,
            device=found.device,
            names=[file.name for file in found.files],
            content_bytes_max=limit,
            fixes_max=_FIXES_MAX,
            memory_bytes_max=_MEMORY_BYTES_MAX,
        )
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway.imports.import_process"),
            stdin=pipe,
            stdout=pipe,
            env={**os.environ, "TMPDIR": str(self.store.path(found) / "scratch")},
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(msgspec.json.encode(plan) + b"\n")
            await process.stdin.drain()
            await self._take_frames(process.stdout)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            # Its end is noticed only once what is left in its pipe has been read.
            await process.communicate()

    async def _take_frames(self, frames: asyncio.StreamReader) -> None:
        while True:
            try:
                async with asyncio.timeout(_LOOK_S * 2):
                    kind = await frames.readexactly(1)
            except TimeoutError:
                await self._look()
                continue
            except asyncio.IncompleteReadError:
                raise ImportRefused(
                    422,
                    "the process that reads the files has ended: they need more than it may have",
                ) from None
            size = int.from_bytes(await frames.readexactly(LENGTH_BYTES))
            if size > _FRAME_BYTES_MAX:
                raise ImportRefused(422, "the files have positions of more bytes than can be taken")
            content = await frames.readexactly(size)
            if kind == FIXES:
                await self._store(_decode_fixes(content))
            else:
                progress = _decode_progress(content)
                self._take(progress)
                if kind == END:
                    if progress.error is not None:
                        raise ImportRefused(422, progress.error)
                    return
            await self._look()

    async def _store(self, fixes: list[Fix]) -> None:
        found = self.found
        if found.state == "reading":
            reading, self._place = self._place, await self._free_place("storing", _STORING_MAX)
            if reading is not None:
                reading.close()
        found.state, found.has_begun_to_store = "storing", True
        for fix in fixes:
            # They come by time.
            if fix.time != self._newest_time:
                self._newest_time = fix.time
                self._times += 1
        # An earlier run may have come further.
        found.times = max(found.times, self._times)
        # Before they are stored: however it ends, an undo does not take them for somebody else's.
        await self._write()
        await self._watched(self.storing.store(fixes, self.sender, self._waits, self._stored))

    async def _watched(self, storing: Coroutine[Any, Any, None]) -> None:
        """Store, and stop waiting for the log or a quota when the import is to stop."""
        task = asyncio.ensure_future(storing)
        try:
            while not (await asyncio.wait({task}, timeout=_LOOK_S * 2))[0]:
                await self._look()
            await task
        finally:
            task.cancel()

    def _stored(self, count: int) -> None:
        self.found.stored += count
        self.found.reason = None

    def _waits(self, reason: str) -> None:
        self.found.reason = reason

    def _take(self, progress: ReadingProgress) -> None:
        found = self.found
        found.read_bytes, found.of_bytes = progress.read_bytes, progress.of_bytes
        found.found, found.refused = progress.found, progress.refused
        found.first, found.last = progress.first, progress.last
        for own, read in zip(found.files, progress.files, strict=False):
            own.fixes, own.skipped, own.damage = read.fixes, read.skipped, read.damage

    async def _look(self) -> None:
        """Stop if that is asked for, or the disk is full; write how far it is now and then.

        Raises ImportStopped, ImportRefused.
        """
        if time.monotonic() - self._looked < _WATCH_S:
            return
        self._looked = time.monotonic()
        if await asyncio.to_thread(self.store.is_to_stop, self.found):
            raise ImportStopped
        trouble = await asyncio.to_thread(self.store.room_trouble)
        if trouble is not None:
            raise ImportRefused(507, trouble)
        await self._write()

    async def _write(self) -> None:
        await asyncio.to_thread(self.store.write, self.found)
