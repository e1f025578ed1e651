"""The page /metrics: measures as Prometheus reads them.

`sink-record-read-total` of the MBean `kafka.connect:type=sink-task-metrics` is
`kafka_connect_sink_task_metrics_sink_record_read_total`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from consumers.connect.observability.measures import Measure

if TYPE_CHECKING:
    from prometheus_client import Metric

_PREFIX: Final = "kafka_connect"
_TOTAL: Final = "_total"


class Exposition:
    """The page of one worker."""

    def __init__(self, measures: Callable[[], Iterable[Measure]]) -> None:
        from prometheus_client import CollectorRegistry, ProcessCollector

        self._measures: Final = measures
        self._registry: Final = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; called by prometheus_client's registry."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for each in self._measures():
            name = f"{_PREFIX}_{each.type}_{each.attribute}".replace("-", "_")
            labels = sorted(each.labels)
            family = families.get(name)
            if family is None:
                make = CounterMetricFamily if name.endswith(_TOTAL) else GaugeMetricFamily
                text = f"{each.attribute} of kafka.connect:type={each.type}"
                family = families[name] = make(name.removesuffix(_TOTAL), text, labels=labels)
            family.add_metric([each.labels[label] for label in labels], each.value)
        yield from families.values()

    def page(self) -> tuple[bytes, str]:
        """Return the page, and its content type."""
        from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

        return generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4


def labelled(measures: Iterable[Measure], labels: Mapping[str, str]) -> Iterator[Measure]:
    """Yield measures with more labels."""
    for each in measures:
        yield each._replace(labels={**each.labels, **labels})
