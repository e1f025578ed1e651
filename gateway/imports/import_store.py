"""The imports of all users, in a folder: their uploaded files, and what is known of them.

    USER/ID/import.json    what is known (gateway.imports.records), replaced as a whole
    USER/ID/0, 1, ...      the uploaded files; their names are only in import.json
    USER/ID/lock           locked by the process that works on it
    USER/ID/stop           made by who wants that to end

USER is a hash: no name of a user, a file or a device becomes a part of a path. The gateway workers
of a machine share the folder. Methods block for a moment, in any thread.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

import msgspec

from gateway.imports.records import RUNNING, Import, ImportedFile
from waylog.malformed import MALFORMED
from waylog.process.machine_lock import MachineLock
from waylog.process.storage_trouble import room_trouble

#: Imports that a user's list has at most, and those of them whose files are kept.
IMPORTS_PER_USER_MAX: Final = 100
UNFINISHED_PER_USER_MAX: Final = 10
FILES_MAX: Final = 1_000
#: Bytes that an upload leaves free on the disk, for the log and the databases beside it.
ROOM_BYTES: Final = 1024**3
#: Files of an import on which nobody goes on are removed after so long.
KEPT_MS: Final = 7 * 86_400_000

_ID: Final = re.compile(r"[0-9a-f]{32}")
_RECORD: Final = "import.json"
_decode: Final = msgspec.json.Decoder(Import).decode


class ImportRefused(Exception):
    """What was asked for cannot be done; the text says why. `status` is that of HTTP."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class WrongOffset(Exception):
    """A part of a file does not begin where the file ends: at `received`."""

    def __init__(self, received: int) -> None:
        super().__init__(f"the file has {received} bytes so far")
        self.received = received


class ImportStore:
    """The folder of imports. `bytes_max` bounds the uploaded files of one user."""

    def __init__(self, folder: Path, bytes_max: int, room_bytes: int = ROOM_BYTES) -> None:
        self.folder: Final = folder
        self.bytes_max: Final = bytes_max
        self._room_bytes: Final = room_bytes

    # --- making ---------------------------------------------------------------------------------

    def create(
        self,
        user: str,
        choose: Callable[[set[str]], str],
        files: Sequence[ImportedFile],
        now_ms: int,
    ) -> Import:
        """Make an import whose files are empty so far. Raises ImportRefused, OSError.

        `choose` returns the device, given those of the user's other imports.
        """
        own = self._of_user(user)
        own.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _locked(own / "making"):
            known = self.of_user(user)
            if len(known) >= IMPORTS_PER_USER_MAX:
                raise ImportRefused(
                    409, f"you have {IMPORTS_PER_USER_MAX} imports: take some off the list"
                )
            unfinished = [each for each in known if each.state != "done"]
            if len(unfinished) >= UNFINISHED_PER_USER_MAX:
                raise ImportRefused(
                    409,
                    f"{UNFINISHED_PER_USER_MAX} of your imports are not finished: finish some, or "
                    "take them off the list",
                )
            size = sum(file.bytes for file in files)
            held = sum(file.bytes for each in unfinished for file in each.files)
            if size + held > self.bytes_max:
                raise ImportRefused(
                    413,
                    f"{size} bytes, and {held} in imports that are not finished: "
                    f"{self.bytes_max} are allowed",
                )
            self._require_room(size)
            found = Import(
                id=secrets.token_hex(16),
                user=user,
                device=choose({each.device for each in known}),
                created=now_ms,
                files=list(files),
            )
            folder = own / found.id
            folder.mkdir(mode=0o700)
            for number in range(len(files)):
                (folder / str(number)).touch(mode=0o600)
            self.write(found)
        return found

    def append(
        self, found: Import, number: int, offset: int, parts: Iterable[bytes | memoryview]
    ) -> int:
        """Add bytes to the end of a file, which has to be at `offset`; return its length now.

        Raises WrongOffset, ImportRefused, OSError.
        """
        path = self.path(found) / str(number)
        with path.open("rb+", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            received = file.seek(0, os.SEEK_END)
            if offset != received:
                raise WrongOffset(received)
            most = found.files[number].bytes
            pieces = [memoryview(part) for part in parts]
            if received + sum(map(len, pieces)) > most:
                raise ImportRefused(413, f"the file was announced with {most} bytes")
            self._require_room(0)
            try:
                for piece in pieces:
                    _write_all(file, piece)
            except OSError:
                # What has a beginning alone would be taken for a part that was sent.
                with suppress(OSError):
                    file.truncate(received)
                raise
            return file.tell()

    def _require_room(self, size: int) -> None:
        trouble = self.room_trouble(size)
        if trouble is not None:
            raise ImportRefused(507, f"there is no room for these files now: {trouble}")

    def room_trouble(self, size: int = 0) -> str | None:
        """Return why so many bytes more would fill the disk; None if they would not."""
        if room_trouble(self.folder, size + self._room_bytes) is None:
            return None
        return "the disk of the platform is nearly full"

    # --- reading --------------------------------------------------------------------------------

    def users(self) -> set[str]:
        """Return the users who have imports."""
        found = set()
        for folder in self._folders(self.folder):
            for each in self._folders(folder):
                with suppress(OSError, *MALFORMED):
                    found.add(_decode((each / _RECORD).read_bytes()).user)
                    break
        return found

    def of_user(self, user: str) -> list[Import]:
        """Return the imports of a user, the newest first."""
        found = []
        for folder in self._folders(self._of_user(user)):
            with suppress(OSError, *MALFORMED):
                found.append(self._settled(_decode((folder / _RECORD).read_bytes())))
        return sorted(found, key=lambda each: (-each.created, each.id))

    def find(self, user: str, import_id: str) -> Import | None:
        """Return an import of a user; None if the user has none of this id."""
        if _ID.fullmatch(import_id) is None:
            return None
        try:
            content = (self._of_user(user) / import_id / _RECORD).read_bytes()
            return self._settled(_decode(content))
        except (OSError, *MALFORMED):
            return None

    def received(self, found: Import) -> list[int]:
        """Return how much of each file has been uploaded; a finished import has no files more."""
        folder = self.path(found)
        sizes = []
        for number, file in enumerate(found.files):
            try:
                sizes.append((folder / str(number)).stat().st_size)
            except OSError:
                sizes.append(file.bytes if found.state == "done" else 0)
        return sizes

    def path(self, found: Import) -> Path:
        """Return the folder of an import."""
        return self._of_user(found.user) / found.id

    def _settled(self, found: Import) -> Import:
        """Tell of an import that was at work whose process has gone."""
        if found.state in RUNNING and not self.is_running(found):
            # It may have ended between the two looks.
            with suppress(OSError, *MALFORMED):
                found = _decode((self.path(found) / _RECORD).read_bytes())
            if found.state in RUNNING:
                found.state = "interrupted"
                found.reason = None
        return found

    # --- working --------------------------------------------------------------------------------

    def write(self, found: Import) -> None:
        """Write what is known of an import. Raises OSError, also if it has been removed."""
        path = self.path(found) / _RECORD
        scratch = path.with_suffix(f".{secrets.token_hex(4)}")
        scratch.write_bytes(msgspec.json.encode(found))
        scratch.replace(path)

    def lock(self, found: Import) -> MachineLock:
        """Return the lock that whoever works on an import holds. Raises OSError."""
        return MachineLock(self.path(found) / "lock")

    def is_running(self, found: Import) -> bool:
        """Tell whether some process works on an import."""
        try:
            lock = self.lock(found)
        except OSError:
            return False
        try:
            return not lock.held()
        finally:
            lock.close()

    def ask_to_stop(self, found: Import) -> None:
        """Let whoever works on an import stop soon. Raises OSError."""
        (self.path(found) / "stop").touch()

    def let_go_on(self, found: Import) -> None:
        """Take back that an import is to stop. Raises OSError."""
        (self.path(found) / "stop").unlink(missing_ok=True)

    def is_to_stop(self, found: Import) -> bool:
        """Tell whether an import is to end, or has been removed."""
        return (self.path(found) / "stop").exists() or not self.path(found).exists()

    # --- ending ---------------------------------------------------------------------------------

    def drop_files(self, found: Import) -> None:
        """Remove the uploaded files of an import."""
        for number in range(len(found.files)):
            (self.path(found) / str(number)).unlink(missing_ok=True)

    def remove(self, found: Import) -> None:
        """Remove all of an import but its fixes."""
        shutil.rmtree(self.path(found), ignore_errors=True)

    def forget(self, user: str, since_ms: int | None) -> None:
        """Remove what was made before the user was added; all of a user who has been revoked."""
        for found in self.of_user(user):
            if since_ms is None or found.created < since_ms:
                with suppress(OSError):
                    self.ask_to_stop(found)
                self.remove(found)
        if since_ms is None:
            shutil.rmtree(self._of_user(user), ignore_errors=True)

    def remove_abandoned(self, now_ms: int) -> None:
        """Remove imports that were begun and not finished long ago; of stored ones the files."""
        for user in self.users():
            for found in self.of_user(user):
                if found.state in RUNNING or now_ms - self._touched_ms(found) < KEPT_MS:
                    continue
                if found.has_begun_to_store:
                    self.drop_files(found)
                else:
                    self.remove(found)

    def _touched_ms(self, found: Import) -> int:
        newest = found.created
        for path in (_RECORD, *map(str, range(len(found.files)))):
            with suppress(OSError):
                newest = max(newest, int((self.path(found) / path).stat().st_mtime * 1000))
        return newest

    def _of_user(self, user: str) -> Path:
        return self.folder / hashlib.sha256(user.encode()).hexdigest()[:32]

    @staticmethod
    def _folders(folder: Path) -> list[Path]:
        try:
            return [each for each in folder.iterdir() if _ID.fullmatch(each.name)]
        except OSError:
            return []


def _write_all(file: IO[bytes], content: memoryview) -> None:
    while content:
        content = content[file.write(content) :]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a file's lock, for as long as it takes to get it."""
    file = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
