"""The writer's side of the manifest: exchanging files of a history in one step."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO

import msgspec

from spark.history.compaction import CompactionResult, remove_scratch
from waylog.history.history_reader import (
    COMPACTED_NAME,
    MANIFEST,
    MONTH_LENGTH,
    CompactedFile,
    HistoryReader,
    Manifest,
    parse_name,
    read_manifest,
)
from waylog.history.storage import Storage

_LOCK = "_compaction_lock"

# A day that is not over is packed again and again: that has to cost little.
_SMALL_BYTES = 64 << 20


class ManifestWriter:
    """Changes what counts; one at a time (a lock where the storage has locks)."""

    def __init__(self, history: str) -> None:
        """Raises ConfigError when another process is at it."""
        self.storage = Storage(history)
        self._lock: IO[str] | None = self.storage.lock(_LOCK)
        remove_scratch(self.storage)
        self.delete_superseded()

    def close(self) -> None:
        """Let others change the manifest."""
        if self._lock is not None:
            self._lock.close()

    def commit(self, results: Iterable[CompactionResult]) -> None:
        """Let the files of `results` count in place of those they were made from."""
        manifest = read_manifest(self.storage)
        dates = dict(manifest.dates)
        for result in results:
            for date in result.compacted.days:
                # A month takes the place of its dates.
                dates.pop(date, None)
            # Where nothing is left of the period, its spans still say that it was looked at.
            dates[result.period] = result.compacted
        self._replace(Manifest(manifest.version + 1, dict(sorted(dates.items()))))

    def exchange(self, files: Mapping[str, CompactedFile]) -> None:
        """Let other files count in place of the compacted files with some paths."""
        manifest = read_manifest(self.storage)
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
        """Delete files that do not count any more, `grace_s` after they stopped to count."""
        found = superseded(self.storage)
        if found and grace_s:
            sleep(grace_s)
        for path in found:
            self.storage.delete(path)
        return found


def superseded(storage: Storage) -> list[str]:
    """Files of a history that do not count (any more, or yet)."""
    listed = storage.list_files()
    manifest = read_manifest(storage)
    named = {file.path for compacted in manifest.dates.values() for file in compacted.files}
    gone = []
    for path in listed:
        file = parse_name(path)
        if file is not None:
            if file.span is not None and manifest.covers(file.date, file.span):
                gone.append(path)
        elif COMPACTED_NAME.fullmatch(path) and path not in named:
            gone.append(path)
    return gone


def needs_compaction(reader: HistoryReader, before: str) -> Sequence[str]:
    """Periods before a date that have files as they came in: new ones, or late ones."""
    return [
        period
        for period in reader.periods()
        if period < before and any(file.span is not None for file in reader.files(period))
    ]


def settled(reader: HistoryReader, periods: Sequence[str], until_s: float) -> list[str]:
    """Those to which nothing has come since a moment (s since 1970)."""
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
    """Periods from a date on with more files than `files_max` as they came in, small in all."""
    found = []
    for period in reader.periods(since):
        landed = [file for file in reader.files(period) if file.span is not None]
        whole = sum(file.bytes for file in reader.files(period))
        if len(landed) > files_max and whole <= _SMALL_BYTES:
            found.append(period)
    return found


def months_to_pack(reader: HistoryReader, before: str, bytes_max: int) -> Sequence[str]:
    """Months that are over before a date and whose packed days are small enough for one file."""
    sizes: dict[str, list[int]] = defaultdict(list)
    for period in reader.periods():
        month = period[:MONTH_LENGTH]
        if period != month and month < before[:MONTH_LENGTH]:
            sizes[month].append(sum(file.bytes for file in reader.files(period)))
    return [month for month, own in sizes.items() if len(own) > 1 and sum(own) <= bytes_max]
