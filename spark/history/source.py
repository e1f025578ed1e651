"""Spark streaming sources in pure Python: the log's topic `location` as rows.

Two sources share one reader. `waylog` yields the fixes. `waylog-landing`, which the history job
uses, writes them to staged files in the process that decodes them and yields one row per file, so
that the fixes never pass through the JVM.

Spark keeps the offsets in its write-ahead log, as {"<partition>": next offset}. A batch is one
range of offsets per partition, so a repeated batch reads the same records.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from spark.fixes.log_fixes import next_ends, read_fixes
from spark.fixes.log_source import OffsetRange, open_log
from spark.fixes.staging import STAGED_SCHEMA, land
from waylog.history.row_layout import HISTORY_SCHEMA
from waylog.history.storage import Storage
from waylog.kafka.clients import LogUnreachable
from waylog.kafka.ranges.log_ranges import LogRanges, Watermarks
from waylog.kafka.topics import LOCATION

logger = logging.getLogger(__name__)

#: Limit of the records of a batch, which bounds its time and memory.
MAX_ROWS: Final = 250_000

#: Seconds that a start waits for a log that does not answer or has no topic yet.
_PATIENCE_S: Final = 60.0

# Seconds that a trigger waits for the log; the next trigger asks again.
_TRIGGER_PATIENCE_S: Final = 2.0


class LocationSource(DataSource):
    """Format `waylog`: the fixes of topic `location`, as rows of HISTORY_SCHEMA.

    Options: `bootstrapServers`, `topic`, `maxRows` (of a batch).
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name for `readStream.format`."""
        return "waylog"

    def schema(self) -> StructType:
        """Return the schema of the rows."""
        return from_arrow_schema(HISTORY_SCHEMA)

    def streamReader(self, schema: StructType) -> LocationReader:  # noqa: N802
        """Return the reader; called by Spark."""
        return LocationReader(dict(self.options))


class LandingSource(LocationSource):
    """Format `waylog-landing`: writes staged files, with one row of STAGED_SCHEMA per file.

    Further option: `out`, the history's folder.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name for `readStream.format`."""
        return "waylog-landing"

    def schema(self) -> StructType:
        """Return the schema of the rows."""
        return from_arrow_schema(STAGED_SCHEMA)

    def streamReader(self, schema: StructType) -> LandingReader:  # noqa: N802
        """Return the reader; called by Spark."""
        return LandingReader(dict(self.options))


class RangePartition(InputPartition):
    """The range of offsets that one task reads."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(tuple(wanted))

    @property
    def wanted(self) -> OffsetRange:
        """The range; it is transferred as a plain tuple, so that Spark can show it."""
        return OffsetRange(*self.value)


class LocationReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader that plans batches in one long-lived process, and reads them in tasks."""

    def __init__(self, options: Mapping[str, str]) -> None:
        # Spark passes option names in lower case.
        self._servers = options["bootstrapservers"]
        self._topic = options.get("topic", LOCATION)
        self._max_rows = int(options.get("maxrows", MAX_ROWS))
        self._target: dict[int, int] | None = None
        self._offsets: LogRanges | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_offsets": None}

    def _watermarks(self, patience_s: float) -> dict[int, Watermarks]:
        if self._offsets is None:
            self._offsets = open_log(self._servers)
        return self._offsets.watermarks(self._topic, patience_s)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Return the start of a history without a checkpoint: the oldest records."""
        deadline = time.monotonic() + _PATIENCE_S
        while not (watermarks := self._watermarks(_PATIENCE_S)):
            if time.monotonic() > deadline:
                raise LogUnreachable(f"there is no topic {self._topic}")
            time.sleep(0.2)
        return {str(partition): marks.low for partition, marks in watermarks.items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a batch."""
        return ReadMaxRows(self._max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Record the current end of the log, where the run ends."""
        self._target = {
            partition: marks.high for partition, marks in self._watermarks(_PATIENCE_S).items()
        }

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Return the end of the next batch."""
        if self._target is not None:
            ends = self._target
        else:
            try:
                watermarks = self._watermarks(_TRIGGER_PATIENCE_S)
            except LogUnreachable as error:
                logger.info("%s; the history waits", error)
                return start
            ends = {partition: marks.high for partition, marks in watermarks.items()}
        rows = None if isinstance(limit, ReadAllAvailable) else self._max_rows
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        starts = {int(partition): offset for partition, offset in start.items()}
        return {
            str(partition): offset for partition, offset in next_ends(starts, ends, rows).items()
        }

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[RangePartition]:
        """Return one range for each partition with new records."""
        ranges = [
            OffsetRange(int(partition), start.get(partition, 0), offset)
            for partition, offset in end.items()
        ]
        return [RangePartition(wanted) for wanted in ranges if wanted.end > wanted.start]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range; runs in a task."""
        assert isinstance(partition, RangePartition)
        return read_fixes(self._servers, self._topic, partition.wanted)

    def stop(self) -> None:
        """Close the connections; also called when an error ends this process."""
        if self._offsets is not None:
            self._offsets.close()
            self._offsets = None
        if isinstance(sys.exception(), (BrokenPipeError, ConnectionResetError, EOFError)):
            # Spark closes its connection when a query is stopped. pyspark would answer with an
            # error, on the closed connection, and print the traceback of that.
            os._exit(0)


class LandingReader(LocationReader):
    """A reader that writes the fixes to staged files."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._storage = Storage(options["out"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range and write it to staged files; runs in a task."""
        assert isinstance(partition, RangePartition)
        wanted = partition.wanted
        fixes = read_fixes(self._servers, self._topic, wanted)
        return land(fixes, self._storage, wanted.start, wanted.end)
