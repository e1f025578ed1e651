"""What a sink task counts (`kafka.connect:type=sink-task-metrics`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from consumers.connect.observability.measures import Durations, Measure

_TYPE: Final = "sink-task-metrics"


class SinkCounts:
    """The counts of one task, which its thread adds to."""

    def __init__(self) -> None:
        self.read = 0  # records out of the log
        self.sent = 0  # records that the task has taken
        self.commits = 0  # of offsets
        self.puts: Final = Durations()

    def measures(self, partitions: int, erased: int) -> Iterator[Measure]:
        """Yield them, with the partitions that the task has and records that were left out."""
        yield Measure(_TYPE, "sink-record-read-total", self.read)
        yield Measure(_TYPE, "sink-record-send-total", self.sent)
        yield Measure(_TYPE, "sink-record-erased-total", erased)
        yield Measure(_TYPE, "offset-commit-completion-total", self.commits)
        yield Measure(_TYPE, "partition-count", partitions)
        yield from self.puts.measures(_TYPE, "put-batch")
