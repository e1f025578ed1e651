"""What a task of a sink connector is, and what the worker does for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple, Protocol

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.data.records import SinkRecord


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ErrantRecordReporter(Protocol):
    """Takes records that the other system cannot take (KIP-610)."""

    def report(self, record: SinkRecord, error: Exception) -> Future[None]:
        """Log the record, or write it to the dead letter topic; done when it is stored there.

        Raises ConnectException if the connector tolerates no errors.
        """


class SinkTaskContext(Protocol):
    """What the worker does for a task; to be called in the task's thread only."""

    def configs(self) -> Mapping[str, str]:
        """Return the properties of the task."""

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that the task has."""

    def offset(self, partition: TopicPartition, offset: int) -> None:
        """Go on at an offset of a partition, for tasks that keep offsets in the other system."""

    def timeout(self, timeout_ms: int) -> None:
        """Have `put` called again after this time: records that a RetriableException was for."""

    def pause(self, *partitions: TopicPartition) -> None:
        """Get no records of these partitions until `resume`."""

    def resume(self, *partitions: TopicPartition) -> None:
        """Get records of these partitions again."""

    def request_commit(self) -> None:
        """Have offsets committed soon."""

    def errant_record_reporter(self) -> ErrantRecordReporter | None:
        """Return who takes bad records; None if the connector has no dead letters and no log."""


class SinkTask(ABC):
    """Writes records to another system. All methods are called in the task's thread."""

    #: Set before `start`.
    context: SinkTaskContext

    @abstractmethod
    def start(self, properties: Mapping[str, str]) -> None:
        """Begin; the properties are those of `task_configs`."""

    def report(self, refused: Sequence[tuple[SinkRecord, ConnectException]]) -> None:
        """Report bad records; raises the first one's error if there is nobody to report to."""
        if not refused:
            return
        reporter = self.context.errant_record_reporter()
        if reporter is None:
            error = refused[0][1]
            error.add_note(
                "Such a record is left out only with errors.tolerance=all and either "
                "errors.deadletterqueue.topic.name or errors.log.enable=true."
            )
            raise error
        for record, error in refused:
            reporter.report(record, error)

    @abstractmethod
    def put(self, records: Sequence[SinkRecord]) -> None:
        """Take records, perhaps none; they need not be stored before `flush`.

        RetriableException: the same records come again. Any other exception makes the task FAILED.
        """

    def erase(self, erasures: Mapping[str, int]) -> None:
        """Remove from the other system what it has of erased devices, if that is possible.

        The erasures are times in ms since 1970 by device: what was sent or received until then is
        erased. Called after `start` with all that are known, and with new ones as they come;
        records that they cover are not put any more. RetriableException: they come again.
        """
        return

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Store everything that was put; the offsets are those after the last records."""
        return

    def pre_commit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return the offsets that may be committed: records before them will not come again.

        An exception: nothing is committed, and records come again from the last committed offset.
        """
        self.flush(offsets)
        return offsets

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Take note of partitions that the task has from now on."""
        return

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Take note of partitions that the task has no longer."""
        return

    @abstractmethod
    def stop(self) -> None:
        """End; called after the last `put`, whatever has happened."""
