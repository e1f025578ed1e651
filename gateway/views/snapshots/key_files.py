"""Files of the keys of fixes, in the format of gateway.fixes.stored_keys.

They are written, merged while they are small and when their day is over, and removed when none of
their fixes is in the log any more. The snapshot names the valid ones
(gateway.views.snapshots.view_snapshot).
"""

from __future__ import annotations

import logging
import mmap
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Final

from gateway.fixes.stored_keys import (
    HEAD,
    HEAD_BYTES,
    KEY_SIZE,
    StoredKeys,
    key_count,
    merge,
    sorted_keys,
)
from gateway.views.snapshots.view_snapshot import KeyFileEntry
from waylog.folders import sync_folder

logger = logging.getLogger(__name__)

_SUFFIX: Final = ".keys"
#: Number of files of about the same size that are merged into one.
_FAN_IN: Final = 4
#: Files with fewer keys than this count as equal in size.
_SMALL_KEYS: Final = 64 * 1024


class KeyFiles:
    """The key files of one folder. Methods that write block; one thread at a time calls them."""

    def __init__(self, folder: Path, stored: StoredKeys) -> None:
        self._folder = folder
        self._stored = stored
        self._mapped: dict[str, mmap.mmap] = {}
        self._last = 0

    def open(self, entries: Iterable[KeyFileEntry]) -> list[KeyFileEntry]:
        """Map the listed files; return those that exist and are complete."""
        found = []
        for entry in entries:
            self._last = max(self._last, _number(entry.name))
            try:
                self._map(entry)
                self._mapped[entry.name].madvise(mmap.MADV_WILLNEED)
            except (OSError, ValueError) as error:
                logger.warning("%s: %s; its fixes are stored again if repeated", entry.name, error)
            else:
                found.append(entry)
        return found

    def write(self, keys: bytes, day: int, covers: Mapping[int, int]) -> KeyFileEntry:
        """Write a new file of keys (64 bits each, in any order). Raises OSError."""
        content = sorted_keys(keys)

        def fill(descriptor: int) -> int:
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(content)
            return len(content) // KEY_SIZE

        return self._create(fill, day, dict(covers))

    def merged(self, entries: Sequence[KeyFileEntry], today: int) -> list[KeyFileEntry]:
        """Merge files where it is due; return the resulting entries. Raises OSError."""
        result: list[KeyFileEntry] = []
        for day, of_day in groupby(entries, key=_day):
            runs = list(of_day)
            if day != today and len(runs) > 1:
                runs = [self._merge(runs)]
            while len(runs) >= _FAN_IN and _tier(runs[-_FAN_IN]) <= _tier(runs[-1]):
                runs[-_FAN_IN:] = [self._merge(runs[-_FAN_IN:])]
            result += runs
        return result

    def use(self, entries: Sequence[KeyFileEntry]) -> None:
        """Look up keys in these files from now on, and remove all others.

        Called on the thread that looks up keys.
        """
        self._stored.use([self._mapped[entry.name] for entry in entries])
        names = {entry.name for entry in entries}
        for name in list(self._mapped):
            if name not in names:
                # A mapping lives until its last user drops it.
                del self._mapped[name]
        for path in self._folder.glob(f"*{_SUFFIX}*"):
            if path.name not in names:
                with suppress(OSError):
                    path.unlink()

    def _merge(self, entries: Sequence[KeyFileEntry]) -> KeyFileEntry:
        covers: dict[int, int] = {}
        for entry in entries:
            for partition, offset in entry.covers.items():
                covers[partition] = max(offset, covers.get(partition, 0))
        sources = [self._mapped[entry.name] for entry in entries]
        return self._create(lambda file: merge(sources, file), entries[0].day, covers)

    def _create(self, fill: Callable[[int], int], day: int, covers: dict[int, int]) -> KeyFileEntry:
        self._last += 1
        name = f"{self._last:08d}{_SUFFIX}"
        path = self._folder / name
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(descriptor, HEAD.ljust(HEAD_BYTES, b"\0"))
            count = fill(descriptor)
            os.pwrite(descriptor, count.to_bytes(HEAD_BYTES - len(HEAD), "little"), len(HEAD))
            os.fsync(descriptor)
        except BaseException:
            path.unlink()
            raise
        finally:
            os.close(descriptor)
        sync_folder(self._folder)
        entry = KeyFileEntry(name, count, day, covers)
        self._map(entry)
        return entry

    def _map(self, entry: KeyFileEntry) -> None:
        """Map a file and check its size. Raises OSError, ValueError."""
        with (self._folder / entry.name).open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        if key_count(mapped, len(mapped)) != entry.keys:
            raise ValueError("not the file of keys that it was")
        mapped.madvise(mmap.MADV_RANDOM)
        self._mapped[entry.name] = mapped


def alive(entries: Iterable[KeyFileEntry], first: Mapping[int, int]) -> list[KeyFileEntry]:
    """Return the files of which the log may still have a fix.

    `first` is the first offset of each partition.
    """
    return [
        entry
        for entry in entries
        if any(offset > first.get(partition, 0) for partition, offset in entry.covers.items())
    ]


def size_of(entries: Iterable[KeyFileEntry]) -> int:
    """Return the bytes on disk."""
    return sum(HEAD_BYTES + KEY_SIZE * entry.keys for entry in entries)


def _day(entry: KeyFileEntry) -> int:
    return entry.day


def _tier(entry: KeyFileEntry) -> int:
    return (max(entry.keys, _SMALL_KEYS) // _SMALL_KEYS).bit_length() // 2


def _number(name: str) -> int:
    digits = name.removesuffix(_SUFFIX)
    return int(digits) if digits.isdecimal() else 0
