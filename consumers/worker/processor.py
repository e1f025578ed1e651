"""The interface between a consumer group's worker and the logic that it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from consumers.worker.records import InputRecord, OutputRecord, StateRecord

StateT = TypeVar("StateT", bound="State")


class State(Protocol):
    """A processor's memory of one partition."""

    def restore(self, records: Sequence[StateRecord]) -> None:
        """Restore the state from records of the processor's state topic, in log order.

        Called once for each piece of the partition. Must not raise on bad records.
        """


class Processor(Protocol[StateT]):
    """The logic that a worker runs."""

    @property
    def state_topic(self) -> str:
        """The topic that states are restored from.

        It has as many partitions as the topic that is consumed.
        """

    def new_state(self) -> StateT:
        """Return the state of a partition before it is restored."""

    def process(
        self,
        batch: Mapping[int, Sequence[InputRecord]],
        states: Mapping[int, StateT],
        now_ms: int,
    ) -> list[OutputRecord]:
        """Return the records to write for a batch, which is in log order by partition.

        Must not raise on bad records.
        """

    def late_results(self, states: Mapping[int, StateT], now_ms: int) -> list[OutputRecord]:
        """Return more records to write now; `states` has all owned partitions that are restored."""

    def state_changes(self, states: Mapping[int, StateT]) -> Mapping[int, Sequence[StateRecord]]:
        """Return, by partition, the records of the state topic that keep what has changed.

        Called after `process` and `late_results`. The records are written once the results before
        them are stored: a state that was restored must not know of results that were lost. A
        processor whose results are its state has none.
        """
