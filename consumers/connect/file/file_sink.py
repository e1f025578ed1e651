"""FileStreamSink: writes the value of each record as a line of a file, or to standard output.

It is Kafka's example connector, with three differences: a committed offset means that the line is
on the disk, a write that fails is never lost without a word, and a file that is moved away is
followed by a new one of its name.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from consumers.connect.configuration.definitions import ConfigDef, ConfigKey, ConfigType, Importance
from consumers.connect.data.exceptions import ConnectException, RetriableException
from consumers.connect.data.records import SinkRecord
from consumers.connect.data.value_text import java_text
from consumers.connect.plugins.connector import PartitionSink
from consumers.connect.plugins.sink_task import SinkTask, TopicPartition
from waylog.folders import sync_folder
from waylog.process.storage_trouble import is_disk_full

logger = logging.getLogger(__name__)

_STANDARD_OUTPUT: Final = 1
#: Records that a full disk did not take come again after this time.
_FULL_DISK_RETRY_MS: Final = 1000


class FileStreamSinkTask(SinkTask):
    """Appends lines to one file."""

    kafka_name = "org.apache.kafka.connect.file.FileStreamSinkTask"

    def __init__(self) -> None:
        self._name = "standard output"
        self._path: Path | None = None
        self._file: int | None = None
        self._is_regular = False
        self._has_uncommitted = False  # lines since the last flush
        self._has_lost = False  # lines went with a file that was removed

    def start(self, properties: Mapping[str, str]) -> None:
        """Open the file, or create it; raises ConnectException."""
        name = CONFIG.parse(properties)["file"]
        if not name:
            self._file = os.dup(_STANDARD_OUTPUT)
            return
        self._name, self._path = name, Path(name)
        self._open()

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Append a line for each record.

        Raises RetriableException while the disk is full, ConnectException for other errors. Then
        none of the lines is in the file, unless another process appended to it meanwhile.
        """
        if not records:
            return
        self._follow()
        assert self._file is not None
        lines = [
            value if type(value) is str else java_text(value, record.value_schema)
            for record in records
            for value in (record.value,)
        ]
        lines.append("")
        data = "\n".join(lines).encode("utf-8", "replace")
        before = os.fstat(self._file).st_size if self._is_regular else 0
        try:
            _write_all(self._file, data)
        except OSError as error:
            if self._is_regular:
                self._remove_part(before)
            text = f"{self._name}: {error.strerror or error}"
            if is_disk_full(error):
                self.context.timeout(_FULL_DISK_RETRY_MS)
                raise RetriableException(text) from error
            raise ConnectException(text) from error
        self._has_uncommitted = True

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Wait until all lines are on the disk.

        Raises ConnectException for errors, and for lines that went with a file which was removed:
        their records come again.
        """
        if self._file is None or not self._is_regular:
            return
        self._sync()
        self._has_uncommitted = False
        if self._has_lost:
            self._has_lost = False
            raise ConnectException(f"{self._name} was removed with lines that were not committed")

    def stop(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> None:
        assert self._path is not None
        try:
            self._file = _open_for_appending(self._path)
            self._is_regular = stat.S_ISREG(os.fstat(self._file).st_mode)
            if self._is_regular and _ends_within_a_line(self._path):
                # A write that was cut off by a kill; its records come again, on lines of their own.
                _write_all(self._file, b"\n")
        except OSError as error:
            raise ConnectException(
                f"Couldn't find or create file '{self._name}' for FileStreamSinkTask"
            ) from error

    def _follow(self) -> None:
        """Open the file of the name, unless it is the one that is open (log rotation)."""
        if not self._is_regular:
            return
        assert self._path is not None
        assert self._file is not None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(self._path), os.fstat(self._file)):  # noqa: PTH116
                return
        # What was written to the old file is committed with what comes into the new one.
        self._sync()
        self.stop()
        self._open()
        logger.info("%s was moved away or removed: going on with a new file", self._name)

    def _sync(self) -> None:
        assert self._file is not None
        try:
            os.fsync(self._file)
            is_removed = not os.fstat(self._file).st_nlink
        except OSError as error:
            raise ConnectException(f"{self._name}: {error.strerror or error}") from error
        self._has_lost |= is_removed and self._has_uncommitted

    def _remove_part(self, size: int) -> None:
        """Cut off what a failed write has left, so that no line is written in part."""
        assert self._file is not None
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, size)


def _open_for_appending(path: Path) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, flags)
    file = os.open(path, flags | os.O_CREAT, 0o666)
    # The new file's name has to outlast a power cut, as its lines do.
    sync_folder(path.parent)
    return file


def _ends_within_a_line(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            if not file.seek(0, os.SEEK_END):
                return False
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except PermissionError:
        return False  # it may be a file that this account may only write


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


class FileStreamSinkConnector(PartitionSink):
    """Writes topics to a file; with several tasks each appends to the same one."""

    kafka_name = "org.apache.kafka.connect.file.FileStreamSinkConnector"
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="file",
                type=ConfigType.STRING,
                default=None,
                importance=Importance.HIGH,
                documentation="The file to which lines are appended; standard output if it is not "
                "set.",
            )
        ]
    )
    task_class = FileStreamSinkTask

    def start(self, properties: Mapping[str, str]) -> None:
        """Take the properties."""
        self._properties = properties
        name = self.config_def.parse(properties)["file"] or "standard output"
        logger.info("starting file sink connector writing to %s", name)


CONFIG: Final = FileStreamSinkConnector.config_def
