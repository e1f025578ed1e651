"""What a sink task asks of the worker, kept until its thread looks at it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from consumers.connect.plugins.sink_task import ErrantRecordReporter, TopicPartition


class TaskSinkContext:
    """The context of one task (`SinkTaskContext`), in the task's thread."""

    def __init__(
        self,
        properties: Mapping[str, str],
        assignment: Callable[[], set[TopicPartition]],
        on_paused: Callable[[], None],
        reporter: ErrantRecordReporter | None,
    ) -> None:
        """`on_paused` is called when `paused` has changed."""
        self._properties: Final = properties
        self._assignment: Final = assignment
        self._on_paused: Final = on_paused
        self._reporter: Final = reporter
        self.paused: Final[set[TopicPartition]] = set()
        self.offsets: Final[dict[TopicPartition, int]] = {}
        self.timeout_ms: int | None = None
        self.commit_requested = False

    def configs(self) -> Mapping[str, str]:
        """See SinkTaskContext."""
        return self._properties

    def assignment(self) -> set[TopicPartition]:
        """See SinkTaskContext."""
        return self._assignment()

    def offset(self, partition: TopicPartition, offset: int) -> None:
        """See SinkTaskContext."""
        self.offsets[TopicPartition(*partition)] = offset

    def timeout(self, timeout_ms: int) -> None:
        """See SinkTaskContext."""
        self.timeout_ms = timeout_ms

    def pause(self, *partitions: TopicPartition) -> None:
        """See SinkTaskContext."""
        self.paused.update(TopicPartition(*each) for each in partitions)
        self._on_paused()

    def resume(self, *partitions: TopicPartition) -> None:
        """See SinkTaskContext."""
        self.paused.difference_update(TopicPartition(*each) for each in partitions)
        self._on_paused()

    def request_commit(self) -> None:
        """See SinkTaskContext."""
        self.commit_requested = True

    def errant_record_reporter(self) -> ErrantRecordReporter | None:
        """See SinkTaskContext."""
        return self._reporter
