"""The gateway's counts, and their form for Prometheus.

The hot path only adds to plain integers: prometheus_client's own counters take a lock for each. A
collector turns them into metrics when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from prometheus_client import Metric

LATENCY_BUCKETS_S: Final = (
    0.005,
    0.01,
    0.02,
    0.03,
    0.05,
    0.075,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)


class GatewayMetrics:
    """Counts of one gateway process."""

    def __init__(self) -> None:
        self.fixes: dict[str, int] = {}  # acknowledged, by device format
        self.rejected: dict[str, int] = {}  # by device format
        self.events = 0
        self.messages = 0  # MQTT messages for topics of an operator's choice
        self.erased = 0  # fixes and events of before their device was erased
        self.repeated = 0  # fixes that were in the log, or on their way, already
        self.append_failures = 0
        self.unauthorized = 0
        self.connections_refused = 0
        self.requests: dict[tuple[str, int], int] = {}  # by format or route, and status
        self.pushes: dict[str, int] = {}  # addresses and fixes sent, by channel
        self.view_records: dict[str, int] = {}  # read from the log, by topic
        self.skipped = 0  # events a slow viewer did not get
        self.viewers_stalled = 0  # and were disconnected
        #: From the submission of a fix to the log's acknowledgement, by LATENCY_BUCKETS_S.
        self.latency_counts = [0] * (len(LATENCY_BUCKETS_S) + 1)
        self.latency_sum = 0.0
        #: What the MQTT listener counts, by event.
        self.mqtt: Mapping[str, int] = {}
        #: Gauges: read when they are asked for.
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}

    def request(self, route: str, status: int) -> None:
        """Count one answered HTTP request."""
        key = (route, status)
        self.requests[key] = self.requests.get(key, 0) + 1

    def pushed(self, channel: str, count: int = 1) -> None:
        """Count what went to a device or a viewer."""
        self.pushes[channel] = self.pushes.get(channel, 0) + count

    def gauge(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        """Add a gauge."""
        self.gauges[name] = (documentation, read)

    def collect(self) -> Iterable[Metric]:
        """For prometheus_client's registry."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        def counter(name: str, documentation: str, value: float) -> CounterMetricFamily:
            return CounterMetricFamily(f"waylog_gateway_{name}", documentation, value=value)

        def labelled(
            name: str, documentation: str, label: str, values: Mapping[str, int]
        ) -> CounterMetricFamily:
            family = CounterMetricFamily(f"waylog_gateway_{name}", documentation, labels=[label])
            for value, count in values.items():
                family.add_metric([value], count)
            return family

        yield labelled("fixes", "Fixes acknowledged by the log.", "source", self.fixes)
        yield labelled("rejected", "Messages kept in topic error.", "source", self.rejected)
        yield counter("events", "Events appended.", self.events)
        yield counter("messages", "MQTT messages for mapped topics.", self.messages)
        yield counter("repeated", "Fixes that the log had already.", self.repeated)
        yield counter("erased", "Of before their device was erased, not stored.", self.erased)
        yield counter("append_failures", "Appends not acknowledged.", self.append_failures)
        yield counter("unauthorized", "Requests with wrong credentials.", self.unauthorized)
        yield counter("connections_refused", "Beyond the limit.", self.connections_refused)
        yield labelled("pushes", "Messages to devices and viewers.", "channel", self.pushes)
        yield labelled("view_records", "Records read by views.", "topic", self.view_records)
        yield counter("viewer_events_skipped", "Not sent to slow viewers.", self.skipped)
        yield labelled("mqtt", "What the MQTT listener has counted.", "event", self.mqtt)
        yield counter("viewers_stalled", "Disconnected: they did not read.", self.viewers_stalled)
        requests = CounterMetricFamily(
            "waylog_gateway_requests", "HTTP requests.", labels=["route", "status"]
        )
        for (route, status), count in self.requests.items():
            requests.add_metric([route, str(status)], count)
        yield requests
        buckets: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip(
            (*LATENCY_BUCKETS_S, float("inf")), self.latency_counts, strict=True
        ):
            total += count
            buckets.append(("+Inf" if bound == float("inf") else str(bound), total))
        yield HistogramMetricFamily(
            "waylog_gateway_ack_seconds",
            "From the submission of a fix to the log's acknowledgement.",
            buckets=buckets,
            sum_value=self.latency_sum,
        )
        for name, (documentation, read) in self.gauges.items():
            yield GaugeMetricFamily(f"waylog_gateway_{name}", documentation, value=read())

    def exposition(self) -> bytes:
        """The text that Prometheus scrapes."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)
