"""The gateway's counters in Prometheus' text format.

Imported when a gateway with an HTTP listener starts: importing it at the first scrape would block
the event loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

from gateway.observability.metrics import LATENCY_BUCKETS_S, GatewayMetrics


def exposition(metrics: GatewayMetrics) -> bytes:
    """Return the text that Prometheus scrapes."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(metrics))
    return generate_latest(registry)


class _Collector:
    def __init__(self, metrics: GatewayMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics; called by prometheus_client's registry."""
        counts = self._metrics
        yield _labelled("fixes", "Fixes acknowledged by the log.", "source", counts.fixes)
        yield _labelled("rejected", "Messages kept in topic error.", "source", counts.rejected)
        yield _counter("events", "Events appended.", counts.events)
        yield _counter("notices", "Notices of events that users were sent.", counts.notices)
        yield _counter("messages", "MQTT messages for mapped topics.", counts.messages)
        yield _counter("repeated", "Fixes that the log had already.", counts.repeated)
        yield _counter("erased", "Of before their device was erased, not stored.", counts.erased)
        yield _counter("append_failures", "Appends not acknowledged.", counts.append_failures)
        yield _counter("unauthorized", "Requests with wrong credentials.", counts.unauthorized)
        yield _counter("connections_refused", "Beyond the limit.", counts.connections_refused)
        yield _labelled("pushes", "Messages to devices and viewers.", "channel", counts.pushes)
        yield _labelled("view_records", "Records read by views.", "topic", counts.view_records)
        yield _counter("viewer_events_skipped", "Not sent to slow viewers.", counts.skipped)
        yield _labelled("mqtt", "What the MQTT listener has counted.", "event", counts.mqtt)
        yield _counter(
            "viewers_stalled", "Disconnected: they did not read.", counts.viewers_stalled
        )
        yield _counter(
            "answers_stalled",
            "Disconnected: they did not read a large answer.",
            counts.answers_stalled,
        )
        requests = CounterMetricFamily(
            "waylog_gateway_requests", "HTTP requests.", labels=["route", "status"]
        )
        for (route, status), count in counts.requests.items():
            requests.add_metric([route, str(status)], count)
        yield requests
        buckets: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip(
            (*LATENCY_BUCKETS_S, float("inf")), counts.latency_counts, strict=True
        ):
            total += count
            buckets.append(("+Inf" if bound == float("inf") else str(bound), total))
        yield HistogramMetricFamily(
            "waylog_gateway_ack_seconds",
            "From the submission of a fix to the log's acknowledgement.",
            buckets=buckets,
            sum_value=counts.latency_sum,
        )
        for name, (documentation, read) in counts.gauges.items():
            yield GaugeMetricFamily(f"waylog_gateway_{name}", documentation, value=read())


def _counter(name: str, documentation: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"waylog_gateway_{name}", documentation, value=value)


def _labelled(
    name: str, documentation: str, label: str, values: Mapping[str, int]
) -> CounterMetricFamily:
    family = CounterMetricFamily(f"waylog_gateway_{name}", documentation, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family
