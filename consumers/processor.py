"""What the logic of a consumer group's member looks like to the worker that runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from consumers.records import InputRecord, OutputRecord

StateT = TypeVar("StateT", bound="State")


class State(Protocol):
    """What a processor remembers of one partition."""

    def restore(self, values: Sequence[bytes | None]) -> None:
        """Take over records of the processor's state topic, in log order."""


class Processor(Protocol[StateT]):
    """The logic that a worker runs."""

    @property
    def state_topic(self) -> str:
        """Where states are restored from: as many partitions as the topic that is consumed."""

    def new_state(self) -> StateT:
        """The state of a partition before it is restored."""

    def process(
        self,
        batch: Mapping[int, Sequence[InputRecord]],
        states: Mapping[int, StateT],
        now_ms: int,
    ) -> list[OutputRecord]:
        """What to write for records in log order by partition. Must not raise on bad records."""

    def late_results(self, states: Mapping[int, StateT], now_ms: int) -> list[OutputRecord]:
        """What to write besides, now; `states` has all partitions that are ours and restored."""
