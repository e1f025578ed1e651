"""What parts of a worker measure, by the names of Kafka Connect's MBeans.

Counting is adding to plain numbers; `consumers.connect.observability.exposition` makes a page of
them when it is asked for. A sum and a count stand where an MBean has an average, since Prometheus
computes averages over any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple


class Measure(NamedTuple):
    """A number of an MBean `kafka.connect:type=TYPE`."""

    type: str  # such as sink-task-metrics
    attribute: str  # such as sink-record-read-total; names that end with -total only grow
    value: float
    labels: Mapping[str, str] = {}


class Durations:
    """How long something takes, each time."""

    def __init__(self) -> None:
        self.count = 0
        self.sum_ms = 0.0
        self.max_ms = 0.0

    def add(self, seconds: float) -> None:
        """Take note of one time."""
        ms = 1000 * seconds
        self.count += 1
        self.sum_ms += ms
        self.max_ms = max(self.max_ms, ms)

    def measures(self, type_: str, name: str) -> Iterator[Measure]:
        """Yield sum, count and maximum of `NAME-time-ms`."""
        yield Measure(type_, f"{name}-time-ms-sum-total", self.sum_ms)
        yield Measure(type_, f"{name}-time-ms-count-total", self.count)
        yield Measure(type_, f"{name}-max-time-ms", self.max_ms)


class Startups:
    """How often something was to start, and has."""

    def __init__(self, what: str) -> None:
        """`what` is connector or task."""
        self._what: Final = what
        self.successes = 0
        self.failures = 0

    def measures(self, type_: str) -> Iterator[Measure]:
        """Yield attempts, successes and failures."""
        name = f"{self._what}-startup"
        yield Measure(type_, f"{name}-attempts-total", self.successes + self.failures)
        yield Measure(type_, f"{name}-success-total", self.successes)
        yield Measure(type_, f"{name}-failure-total", self.failures)
