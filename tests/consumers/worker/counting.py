"""A processor that counts keys, and what a worker needs beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from consumers.worker.records import InputRecord, OutputRecord, StateRecord

#: Makes a result of a record and of how often its key has come.
ResultOf = Callable[[InputRecord, int], bytes]


class Counts:
    """A state of keys and how often they came."""

    def __init__(self) -> None:
        self.counts: dict[bytes, int] = {}
        self.changed: set[bytes] = set()

    def restore(self, records: Sequence[StateRecord]) -> None:
        self.counts |= {key or b"": int(value or b"0") for key, value in records}


def count_of(_record: InputRecord, count: int) -> bytes:
    """Return the count as text."""
    return b"%d" % count


class Counter:
    """Counts keys of topic `in`, writes results to `out`, and its state to `states`."""

    state_topic = "states"

    def __init__(self, result_of: ResultOf = count_of, *, keeps_state: bool = True) -> None:
        """Without `keeps_state` no changes of states are written, as the resolver writes none."""
        self._result_of = result_of
        self._keeps_state = keeps_state
        #: Set once a partition is assigned whose state is restored.
        self.is_restored = threading.Event()

    def new_state(self) -> Counts:
        return Counts()

    def process(
        self,
        batch: Mapping[int, Sequence[InputRecord]],
        states: Mapping[int, Counts],
        _now_ms: int,
    ) -> list[OutputRecord]:
        outputs = []
        for partition, records in batch.items():
            state = states[partition]
            for record in records:
                key = record.key() or b""
                count = state.counts[key] = state.counts.get(key, 0) + 1
                state.changed.add(key)
                outputs.append(OutputRecord("out", None, key, self._result_of(record, count)))
        return outputs

    def late_results(self, states: Mapping[int, Counts], _now_ms: int) -> list[OutputRecord]:
        if states:
            self.is_restored.set()
        return []

    def state_changes(self, states: Mapping[int, Counts]) -> Mapping[int, Sequence[StateRecord]]:
        if not self._keeps_state:
            return {}
        found = {
            partition: [StateRecord(key, b"%d" % state.counts[key]) for key in state.changed]
            for partition, state in states.items()
        }
        for state in states.values():
            state.changed.clear()
        return {partition: records for partition, records in found.items() if records}


class NoTelemetry:
    def record(self, topic: str, value: bytes) -> None:
        """Drop it."""
