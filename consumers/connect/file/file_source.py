"""FileStreamSource: makes a record of each line of a file, or of standard input.

It is Kafka's example connector, with the same offsets: {"position": BYTES} of {"filename": FILE}.
Beyond that it goes on where the file is replaced or cut, and its positions are bytes where Kafka's
count characters.
"""

from __future__ import annotations

import logging
import os
import select
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from consumers.connect.configuration.connector_properties import ERRORS_TOLERANCE
from consumers.connect.configuration.definitions import ConfigDef, ConfigKey, ConfigType, Importance
from consumers.connect.configuration.plugins import ExactlyOnceSupport
from consumers.connect.configuration.validators import all_of, at_least, non_empty, topic_name
from consumers.connect.data.exceptions import ConnectException
from consumers.connect.data.records import SourceRecord
from consumers.connect.data.schemas import STRING
from consumers.connect.file.followed_file import FollowedFile
from consumers.connect.file.line_splitter import Line, LineSplitter
from consumers.connect.plugins.connector import SourceConnector
from consumers.connect.plugins.source_task import SourceTask
from waylog.process.log_throttle import LogThrottle, since_last_line

logger = logging.getLogger(__name__)

LINE_BYTES_MAX: Final = "line.bytes.max"
FILENAME: Final = "filename"
POSITION: Final = "position"
_STANDARD_INPUT: Final = 0
_READ_BYTES: Final = 64 * 1024
#: Seconds that `poll` waits for more, and between two looks at a file.
_WAIT_S: Final = 0.2
_LOOK_S: Final = 0.1
_SAY_MISSING_S: Final = 60.0


class FileStreamSourceTask(SourceTask):
    """Reads one file."""

    kafka_name = "org.apache.kafka.connect.file.FileStreamSourceTask"

    def __init__(self) -> None:
        self._name: str | None = None
        self._topic = ""
        self._batch = 0
        self._file: FollowedFile | None = None
        self._input_ended = False
        #: Lines that were read and did not fit into the last batch.
        self._lines: list[Line] = []
        self._left_out: Final = LogThrottle()
        self._said_missing = -_SAY_MISSING_S

    def start(self, properties: Mapping[str, str]) -> None:
        """Take the properties; the file is opened by `poll`, since it may not exist yet."""
        settings = CONFIG.parse(properties)
        self._name = settings["file"] or None
        self._topic = settings["topic"]
        self._batch = max(settings["batch.size"], 1)
        self._line_bytes_max: int = settings[LINE_BYTES_MAX]
        self._tolerates_all = properties.get(ERRORS_TOLERANCE, "").strip() == "all"
        self._input = LineSplitter(self._line_bytes_max)
        if self._name is None:
            return
        offset = self.context.offset_reader.offset({FILENAME: self._name})
        position = (offset or {}).get(POSITION)
        if position is not None and (not isinstance(position, int) or position < 0):
            raise ConnectException("Offset position is the incorrect type")
        self._file = FollowedFile(Path(self._name), position or 0, self._line_bytes_max)

    def poll(self) -> Sequence[SourceRecord] | None:
        """Return the next lines, or None after a moment without any; raises ConnectException."""
        until = time.monotonic() + _WAIT_S
        while not self._lines:
            try:
                lines = self._read_input() if self._file is None else self._file.read_lines()
            except OSError as error:
                raise ConnectException(f"{self._name}: {error.strerror or error}") from error
            if lines:
                self._lines = lines
                break
            if lines is None:
                self._say_missing()
            elif self._has_begun_too_long:
                self._leave_out()
            if time.monotonic() >= until:
                return None
            time.sleep(_LOOK_S)
        if not self._lines:
            return None
        lines, self._lines = self._next_lines()
        partition, topic = {FILENAME: self._name}, self._topic
        now_ms = round(time.time() * 1000)
        # Standard input cannot be read again: its position is of no use.
        knows_position = self._name is not None
        return [
            SourceRecord(
                source_partition=partition,
                source_offset={POSITION: position if knows_position else None},
                topic=topic,
                value_schema=STRING,
                value=line.decode("utf-8", "replace"),
                timestamp=now_ms,
            )
            for line, position in lines
            if line is not None
        ]

    def _next_lines(self) -> tuple[list[Line], list[Line]]:
        """Return the next batch and the lines behind it; raises ConnectException.

        What is before a line that fails the task is sent.
        """
        batch, rest = self._lines[: self._batch], self._lines[self._batch :]
        for number, (line, _) in enumerate(batch):
            if line is None and (self._tolerates_all or number == 0):
                self._leave_out()
            elif line is None:
                return batch[:number], [*batch[number:], *rest]
        return batch, rest

    @property
    def _has_begun_too_long(self) -> bool:
        return self._input.is_too_long if self._file is None else self._file.is_too_long

    def _leave_out(self) -> None:
        """Log a line that is too long; raises ConnectException if that is not tolerated."""
        text = (
            f"{self._name or 'standard input'}: a line has more than {self._line_bytes_max} bytes "
            f"({LINE_BYTES_MAX})"
        )
        if not self._tolerates_all:
            raise ConnectException(text)
        unsaid = self._left_out.count(time.monotonic())
        if unsaid is not None:
            logger.warning("%s: it is left out%s", text, since_last_line(unsaid))

    def stop(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _read_input(self) -> list[Line]:
        if self._input_ended or not select.select([_STANDARD_INPUT], [], [], _LOOK_S)[0]:
            return []
        data = os.read(_STANDARD_INPUT, _READ_BYTES)
        if data:
            return self._input.feed(data)
        self._input_ended = True
        last = self._input.take_rest()
        return [] if last is None else [last]

    def _say_missing(self) -> None:
        now = time.monotonic()
        if now - self._said_missing >= _SAY_MISSING_S:
            self._said_missing = now
            logger.warning("couldn't find file %s; waiting for it to be created", self._name)


class FileStreamSourceConnector(SourceConnector):
    """Reads a file into a topic, with one task."""

    kafka_name = "org.apache.kafka.connect.file.FileStreamSourceConnector"
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="file",
                type=ConfigType.STRING,
                default=None,
                importance=Importance.HIGH,
                documentation="The file to read; standard input if it is not set.",
            ),
            ConfigKey(
                name="topic",
                type=ConfigType.STRING,
                validator=all_of(non_empty, topic_name),
                importance=Importance.HIGH,
                documentation="The topic that gets the lines.",
            ),
            ConfigKey(
                name="batch.size",
                type=ConfigType.INT,
                default=2000,
                importance=Importance.LOW,
                documentation="The most lines that are read at once.",
            ),
            ConfigKey(
                name=LINE_BYTES_MAX,
                type=ConfigType.INT,
                default=16 * 1024 * 1024,
                validator=at_least(1),
                importance=Importance.LOW,
                documentation="The most bytes of a line. One that is longer fails the task, or is "
                "left out with errors.tolerance=all; it is not kept in memory.",
            ),
        ]
    )
    task_class = FileStreamSourceTask

    def __init__(self) -> None:
        self._properties: Mapping[str, str] = {}

    def start(self, properties: Mapping[str, str]) -> None:
        """Take the properties."""
        self._properties = properties
        name = self.config_def.parse(properties)["file"] or "standard input"
        logger.info("starting file source connector reading from %s", name)

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Return the properties of one task: a file has one reader."""
        return [self._properties]

    def exactly_once_support(self, properties: Mapping[str, str]) -> ExactlyOnceSupport:
        """Return whether the input can be read again."""
        has_file = bool(self.config_def.parse(properties)["file"])
        return ExactlyOnceSupport.SUPPORTED if has_file else ExactlyOnceSupport.UNSUPPORTED

    def alter_offsets(
        self,
        properties: Mapping[str, str],
        offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]],
    ) -> bool:
        """Check offsets; the task sees whether the file has such a position."""
        if not self.config_def.parse(properties)["file"]:
            raise ConnectException(
                "Offsets cannot be modified if the 'file' configuration is unspecified. "
                "This is because stdin is used for input and offsets are not tracked."
            )
        for partition, offset in offsets:
            if offset is None:
                continue  # whatever is there may be removed
            if POSITION not in offset:
                raise ConnectException(
                    f"Offset objects should either be null or contain the key '{POSITION}'"
                )
            position = offset[POSITION]
            if not isinstance(position, int) or isinstance(position, bool):
                raise ConnectException(
                    f"The value for the '{POSITION}' key in the offset is expected to be a "
                    "Long value"
                )
            if position < 0:
                raise ConnectException(
                    f"The value for the '{POSITION}' key in the offset should be a non-negative "
                    "value"
                )
            if FILENAME not in partition:
                raise ConnectException(f"Partition objects should contain the key '{FILENAME}'")
        return True


CONFIG: Final = FileStreamSourceConnector.config_def
