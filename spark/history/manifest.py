"""The writer of the manifest, which replaces files of a history atomically."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO

import msgspec

from spark.history.compaction import CompactionResult, name_files, remove_scratch
from waylog.history.file_names import MONTH_LENGTH, is_compacted, is_outdated, parse_name
from waylog.history.history_reader import (
    MANIFEST,
    CompactedFile,
    HistoryReader,
    Manifest,
    read_manifest,
)
from waylog.history.storage import Storage

_LOCK = "_compaction_lock"

# A day that is not over is compacted repeatedly, so this must be cheap.
_SMALL_BYTES = 64 << 20


class ManifestWriter:
    """A writer of the manifest, one at a time (with a lock where the storage supports locks)."""

    def __init__(self, history: str) -> None:
        """Take the lock and clean up; raises ConfigError when another process has the lock."""
        self.storage = Storage(history)
        self._lock: IO[str] | None = self.storage.lock(_LOCK)
        remove_scratch(self.storage)
        self.delete_superseded()

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.close()

    def commit(self, results: Iterable[CompactionResult]) -> None:
        """Make the files of `results` current instead of those they were made from."""
        manifest = read_manifest(self.storage)
        dates = dict(manifest.dates)
        done = list(results)
        name_files(self.storage, [file for result in done for file in result.compacted.files])
        for result in done:
            for date in result.compacted.days:
                # A month replaces its dates.
                dates.pop(date, None)
            # If no row of the period is left, its spans still record that these offsets were read.
            dates[result.period] = result.compacted
        self._replace(Manifest(manifest.version + 1, dict(sorted(dates.items()))))

    def exchange(self, files: Mapping[str, CompactedFile]) -> None:
        """Replace compacted files, given by path, with others."""
        manifest = read_manifest(self.storage)
        name_files(self.storage, list(files.values()))
        dates = {
            period: msgspec.structs.replace(
                compacted, files=[files.get(old.path, old) for old in compacted.files]
            )
            for period, compacted in manifest.dates.items()
        }
        self._replace(Manifest(manifest.version + 1, dates))

    def _replace(self, manifest: Manifest) -> None:
        content = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
        self.storage.replace_bytes(MANIFEST, content)

    def delete_superseded(
        self, grace_s: float = 0.0, sleep: Callable[[float], None] = time.sleep
    ) -> list[str]:
        """Delete files that are no longer current, after waiting `grace_s`; return their paths."""
        found = superseded(self.storage)
        if found and grace_s:
            sleep(grace_s)
        for path in found:
            self.storage.delete(path)
        for folder in {path.rpartition("/")[0] for path in found if is_outdated(path)}:
            self.storage.delete_empty_folder(folder)
        return found


def superseded(storage: Storage) -> list[str]:
    """Return the files of a history that were replaced, or are not yet in the manifest."""
    listed = storage.list_files()
    manifest = read_manifest(storage)
    named = {file.path for compacted in manifest.dates.values() for file in compacted.files}
    gone = []
    for path in listed:
        file = parse_name(path)
        if file is not None:
            if file.span is not None and manifest.covers(file.date, file.span):
                gone.append(path)
        elif is_compacted(path) and path not in named:
            gone.append(path)
    return gone


def needs_compaction(reader: HistoryReader, before: str) -> Sequence[str]:
    """Return the periods before a date that have ingested files, new or late."""
    return [
        period
        for period in reader.periods()
        if period < before and any(file.span is not None for file in reader.files(period))
    ]


def outdated(reader: HistoryReader) -> Sequence[str]:
    """Return the periods that have files in the layout of an earlier version."""
    return [
        period
        for period in reader.periods()
        if any(is_outdated(file.path) for file in reader.files(period))
    ]


def settled(reader: HistoryReader, periods: Sequence[str], until_s: float) -> list[str]:
    """Return the periods that have got no file since a time (s since 1970)."""
    return [
        period
        for period in periods
        if reader.storage.changed_s(
            [
                file.path
                for own in reader.periods()
                if own.startswith(period)
                for file in reader.files(own)
                if file.span is not None
            ]
        )
        <= until_s
    ]


def many_small_files(reader: HistoryReader, since: str, files_max: int) -> Sequence[str]:
    """Return the periods since a date that have more than `files_max` ingested files.

    Only periods that are small in total are returned.
    """
    found = []
    for period in reader.periods(since):
        landed = [file for file in reader.files(period) if file.span is not None]
        whole = sum(file.bytes for file in reader.files(period))
        if len(landed) > files_max and whole <= _SMALL_BYTES:
            found.append(period)
    return found


def months_to_pack(reader: HistoryReader, before: str, bytes_max: int) -> Sequence[str]:
    """Return the months before a date whose compacted days are small enough for one file."""
    sizes: dict[str, list[int]] = defaultdict(list)
    for period in reader.periods():
        month = period[:MONTH_LENGTH]
        if period != month and month < before[:MONTH_LENGTH]:
            sizes[month].append(sum(file.bytes for file in reader.files(period)))
    return [month for month, own in sizes.items() if len(own) > 1 and sum(own) <= bytes_max]
