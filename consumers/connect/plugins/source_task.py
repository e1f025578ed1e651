"""What a task of a source connector is, and what the worker does for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from consumers.connect.data.records import SourceRecord


class OffsetReader(Protocol):
    """Tells how far a source connector has read, by the offsets of its records that are stored."""

    def offset(self, partition: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the offset of a source partition, None if there is none."""

    def offsets(
        self, partitions: Sequence[Mapping[str, Any]]
    ) -> list[tuple[Mapping[str, Any], dict[str, Any] | None]]:
        """Return the partitions, each with its offset."""


class RecordMetadata(NamedTuple):
    """Where the log has a record."""

    topic: str
    partition: int
    offset: int


class TransactionContext(Protocol):
    """Ends the transactions of a task with `transaction.boundary=connector` (KIP-618).

    All methods are called in the task's thread.
    """

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        """Commit after a record, or after the batch that `poll` returns next."""

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        """Abort instead: the records are void, and do not come again."""


class SourceTaskContext(Protocol):
    """What the worker does for a task."""

    @property
    def offset_reader(self) -> OffsetReader:
        """The stored offsets."""

    @property
    def transaction_context(self) -> TransactionContext | None:
        """The part that ends transactions if the task does; None if it does not."""

    def configs(self) -> Mapping[str, str]:
        """Return the properties of the task."""


class SourceTask(ABC):
    """Reads records from another system.

    All methods are called in the task's thread, but for `commit` and `commit_record`.
    """

    #: Set before `start`.
    context: SourceTaskContext

    @abstractmethod
    def start(self, properties: Mapping[str, str]) -> None:
        """Begin; the properties are those of `task_configs`."""

    @abstractmethod
    def poll(self) -> Sequence[SourceRecord] | None:
        """Return the next records; wait up to a second for some, then return None.

        A task that blocks for longer cannot be paused or stopped meanwhile. RetriableException:
        `poll` is called again. Any other exception makes the task FAILED.
        """

    def commit(self) -> None:
        """Take note that offsets have been stored; what it raises is logged."""
        return

    def commit_record(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:
        """Take note that a record is in the log; None: that it was left out."""
        return

    @abstractmethod
    def stop(self) -> None:
        """End; called after the last `poll`, whatever has happened."""
