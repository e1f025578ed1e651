"""Spark streaming sources in pure Python: the log's topic `location` as rows.

Two of them share one reader. `waylog` yields the fixes themselves. `waylog-landing` writes them
aside right where they were decoded and yields one row a file, so that the rows never travel through
the JVM: that is what the history job uses.

Offsets are kept by Spark in its write-ahead log, as {"<partition>": next offset}. A batch is one
range of offsets a partition, so a repeated batch reads the same records.
"""

from __future__ import annotations

import logging
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

from spark.fixes.landing import LANDED_SCHEMA, land
from spark.fixes.log_fixes import next_ends, read_fixes
from spark.fixes.log_source import LogOffsets, OffsetRange, Watermarks
from spark.fixes.schema import HISTORY_SCHEMA
from waylog.history.storage import Storage
from waylog.kafka.clients import LogUnreachable
from waylog.kafka.topics import LOCATION
from waylog.process.log_contact import LogContact

logger = logging.getLogger(__name__)

#: A batch has at most so many records, so that one batch neither takes long nor much memory.
MAX_ROWS: Final = 250_000

#: How long a start waits for a log that does not answer, or that has no topic yet.
_PATIENCE_S: Final = 60.0

# While the stream runs, a log that is away is asked again at the next trigger.
_TRIGGER_PATIENCE_S: Final = 2.0


class LocationSource(DataSource):
    """Format `waylog`: the fixes of topic `location`, as rows of HISTORY_SCHEMA.

    Options: `bootstrapServers`, `topic`, `maxRows` (of a batch).
    """

    @classmethod
    def name(cls) -> str:
        """The format's name for `readStream.format`."""
        return "waylog"

    def schema(self) -> StructType:
        """The rows' schema."""
        return from_arrow_schema(HISTORY_SCHEMA)

    def streamReader(self, schema: StructType) -> LocationReader:  # noqa: N802
        """Called by Spark."""
        return LocationReader(dict(self.options))


class LandingSource(LocationSource):
    """Format `waylog-landing`: writes the fixes aside, one row of LANDED_SCHEMA a file.

    Further option: `out`, the history's folder.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name for `readStream.format`."""
        return "waylog-landing"

    def schema(self) -> StructType:
        """The rows' schema."""
        return from_arrow_schema(LANDED_SCHEMA)

    def streamReader(self, schema: StructType) -> LandingReader:  # noqa: N802
        """Called by Spark."""
        return LandingReader(dict(self.options))


class RangePartition(InputPartition):
    """What one task reads."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(tuple(wanted))

    @property
    def wanted(self) -> OffsetRange:
        """The range; a plain tuple travels, so that Spark can show it."""
        return OffsetRange(*self.value)


class LocationReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches in one long-lived process, and reads them in tasks."""

    def __init__(self, options: Mapping[str, str]) -> None:
        # Spark hands option names over in lower case.
        self._servers = options["bootstrapservers"]
        self._topic = options.get("topic", LOCATION)
        self._max_rows = int(options.get("maxrows", MAX_ROWS))
        self._target: dict[int, int] | None = None
        self._offsets: LogOffsets | None = None
        self._contact = LogContact()

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_offsets": None}

    def _watermarks(self, patience_s: float) -> dict[int, Watermarks]:
        if self._offsets is None:
            self._offsets = LogOffsets(self._servers, self._topic)
        return self._offsets.watermarks(patience_s)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Where a history without a checkpoint starts: at the oldest records there are."""
        deadline = time.monotonic() + _PATIENCE_S
        while not (watermarks := self._watermarks(_PATIENCE_S)):
            if time.monotonic() > deadline:
                raise LogUnreachable(f"there is no topic {self._topic}")
            time.sleep(0.2)
        return {str(partition): marks.low for partition, marks in watermarks.items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """A batch's limit."""
        return ReadMaxRows(self._max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember where the log ends now: the run is done there."""
        self._target = {
            partition: marks.high for partition, marks in self._watermarks(_PATIENCE_S).items()
        }

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Where the next batch ends."""
        if self._target is not None:
            ends = self._target
        else:
            try:
                watermarks = self._watermarks(_TRIGGER_PATIENCE_S)
            except LogUnreachable as error:
                logger.info("%s; the history waits", error)
                self._contact.silent()
                return start
            self._contact.heard()
            ends = {partition: marks.high for partition, marks in watermarks.items()}
        rows = None if isinstance(limit, ReadAllAvailable) else self._max_rows
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        starts = {int(partition): offset for partition, offset in start.items()}
        return {
            str(partition): offset for partition, offset in next_ends(starts, ends, rows).items()
        }

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[RangePartition]:
        """One range a partition."""
        ranges = [
            OffsetRange(int(partition), start.get(partition, 0), offset)
            for partition, offset in end.items()
        ]
        return [RangePartition(wanted) for wanted in ranges if wanted.end > wanted.start]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range, in a task."""
        assert isinstance(partition, RangePartition)
        return read_fixes(self._servers, self._topic, partition.wanted)

    def stop(self) -> None:
        """Close the connections."""
        if self._offsets is not None:
            self._offsets.close()
            self._offsets = None


class LandingReader(LocationReader):
    """Writes what it reads aside."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._storage = Storage(options["out"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range and write it aside, in a task."""
        assert isinstance(partition, RangePartition)
        wanted = partition.wanted
        fixes = read_fixes(self._servers, self._topic, wanted)
        return land(fixes, self._storage, wanted.start, wanted.end)
