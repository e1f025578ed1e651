"""What a registry counts, and its page for Prometheus. No names of subjects or users."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

from gateway.schema_registry.state import State

_NAME: Final = "waylog_schema_registry"
_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class RegistryMetrics:
    """The counts of one process."""

    def __init__(self, state: State) -> None:
        self._state: Final = state
        #: By route and status.
        self._requests: Final[Counter[tuple[str, int]]] = Counter()
        self._seconds: Final = [0] * (len(_BUCKETS_S) + 1)
        self._seconds_sum = 0.0
        self.changes = 0
        #: Changes that were decided again, because another registry had written.
        self.changes_again = 0
        self.unreadable = 0
        self._pages: Final = CollectorRegistry(auto_describe=False)
        self._pages.register(self)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count an answer."""
        self._requests[route, status] += 1
        self._seconds[bisect_left(_BUCKETS_S, seconds)] += 1
        self._seconds_sum += seconds

    def exposition(self) -> bytes:
        """Return the text that Prometheus scrapes."""
        return generate_latest(self._pages)

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics; called by prometheus_client's registry."""
        requests = CounterMetricFamily(
            f"{_NAME}_requests", "HTTP requests.", labels=["route", "status"]
        )
        for (route, status), count in self._requests.items():
            requests.add_metric([route, str(status)], count)
        yield requests
        total, buckets = 0, []
        for bound, count in zip((*map(str, _BUCKETS_S), "+Inf"), self._seconds, strict=True):
            total += count
            buckets.append((bound, total))
        yield HistogramMetricFamily(
            f"{_NAME}_request_seconds",
            "From a request's head to its answer.",
            buckets=buckets,
            sum_value=self._seconds_sum,
        )
        for name, text, value in (
            ("changes", "Changes that are stored.", self.changes),
            ("changes_again", "Decided again: others wrote meanwhile.", self.changes_again),
            ("unreadable_records", "Records of the topic left out.", self.unreadable),
        ):
            yield CounterMetricFamily(f"{_NAME}_{name}", text, value=value)
        versions = GaugeMetricFamily(f"{_NAME}_versions", "Versions.", labels=["state"])
        versions.add_metric(["living"], self._state.living)
        versions.add_metric(["deleted"], self._state.size - self._state.living)
        yield versions
        for name, text, value in (
            ("subjects", "Subjects.", self._state.subject_count),
            ("schemas", "Different schemas.", self._state.schemas),
            ("schema_bytes", "Bytes of all texts.", self._state.text_bytes),
            ("id_max", "The greatest id that was given.", self._state.id_max),
        ):
            yield GaugeMetricFamily(f"{_NAME}_{name}", text, value=value)
