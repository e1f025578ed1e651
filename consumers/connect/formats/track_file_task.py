"""The task of TrackFileSink: positions wait in memory until the offsets are to be committed."""

from __future__ import annotations

import logging
import zoneinfo
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from consumers.connect.data.exceptions import ConnectException, DataException
from consumers.connect.data.positions import WholePosition, iso_time, position_reader
from consumers.connect.data.records import SinkRecord
from consumers.connect.formats.geojson import GeoJson
from consumers.connect.formats.gpx import Gpx
from consumers.connect.formats.track_file import add_lines, locked, remove_lines
from consumers.connect.formats.track_format import TrackFormat, TrackLine
from consumers.connect.formats.track_paths import TrackPaths
from consumers.connect.plugins.sink_task import SinkTask, TopicPartition

logger = logging.getLogger(__name__)

DIRECTORY: Final = "directory"
FORMAT: Final = "format"
TIMEZONE: Final = "timezone"
DELETE_ENABLED: Final = "delete.enabled"
FORMATS: Final[dict[str, TrackFormat]] = {"gpx": Gpx(), "geojson": GeoJson()}
#: Positions that wait; with more of them offsets are committed before their time.
_WAITING_MAX: Final = 50_000

_read: Final = position_reader(WholePosition)


class TrackFileSinkTask(SinkTask):
    """Adds positions to files when the offsets of their records are committed."""

    def __init__(self) -> None:
        self._lines: defaultdict[tuple[str, Path], list[TrackLine]] = defaultdict(list)
        self._waiting = 0

    def start(self, properties: Mapping[str, str]) -> None:
        """Take the properties of `task_configs`."""
        self._format = FORMATS[properties[FORMAT]]
        self._deletes = properties[DELETE_ENABLED].lower() == "true"
        zone = zoneinfo.ZoneInfo(properties[TIMEZONE])
        self._paths = TrackPaths(Path(properties[DIRECTORY]), self._format.suffix, zone)

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Keep positions until `flush`, and report records that are none."""
        refused: list[tuple[SinkRecord, ConnectException]] = []
        for record in records:
            try:
                if record.value is None:
                    self._delete(record)
                    continue
                position = _read(record)
                path = self._paths.file(position.device, position.time)
                self._lines[position.device, path].append(self._format.line(position))
                self._waiting += 1
            except DataException as error:
                refused.append((record, error))
        if self._waiting > _WAITING_MAX:
            self.context.request_commit()
        self.report(refused)

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Add everything to the files; raises ConnectException.

        What could not be added comes again, since no offset is committed then.
        """
        lines, self._lines = self._lines, defaultdict(list)
        self._waiting = 0
        for (device, path), added in lines.items():
            try:
                with locked(path.parent):
                    add_lines(path, self._format, device, added)
            except OSError as error:
                raise ConnectException(f"{path}: {error.strerror or error}") from error

    def erase(self, erasures: Mapping[str, int]) -> None:
        """Remove the positions of erased devices up to their times; raises ConnectException."""
        for device, before_ms in erasures.items():
            try:
                folder = self._paths.folder(device)
            except DataException:
                continue  # it has never had a file
            until = _time_text(before_ms)
            for each in [each for each in self._lines if each[0] == device]:
                lines = self._lines.pop(each)
                kept = [line for line in lines if line.time > until]
                self._waiting -= len(lines) - len(kept)
                if kept:
                    self._lines[each] = kept
            if not folder.exists():
                continue
            try:
                with locked(folder):
                    for path in self._paths.files(device):
                        remove_lines(path, self._format, device, until)
            except OSError as error:
                raise ConnectException(f"{folder}: {error.strerror or error}") from error
            logger.info("a device was erased: its positions were removed from its files")

    def stop(self) -> None:
        """Forget what was not flushed: its records come again."""
        self._lines.clear()

    def _delete(self, record: SinkRecord) -> None:
        """Remove the files of a device; raises DataException, ConnectException."""
        if not self._deletes:
            raise DataException("the record has no value, and delete.enabled is false")
        device = record.key.decode() if isinstance(record.key, bytes) else record.key
        if not isinstance(device, str):
            raise DataException("the key of the record is not the name of a device")
        for each in [each for each in self._lines if each[0] == device]:
            self._waiting -= len(self._lines.pop(each))
        folder = self._paths.folder(device)
        if not folder.exists():
            return
        try:
            with locked(folder):
                for path in self._paths.files(device):
                    path.unlink(missing_ok=True)
        except OSError as error:
            raise ConnectException(f"{folder}: {error.strerror or error}") from error
        logger.info("the files of a device were removed, since it was erased")


def _time_text(time_ms: int) -> str:
    """Return a time as lines have it; one that no line can have is before or after all of them."""
    try:
        return iso_time(time_ms)
    except DataException:
        return "" if time_ms < 0 else "~"
