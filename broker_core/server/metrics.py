"""The broker's metrics for Prometheus, collected on each scrape.

Events that happen thousands of times a second only increment plain numbers. Labels come from
topics, groups and APIs; at most `LABELS_MAX` topics and groups are named, the others share the
label `other`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Protocol

from broker_core.security.failures import LoginFailures
from broker_core.server.cluster.membership import Cluster
from broker_core.server.cluster.replication import Replication
from broker_core.server.coordination.groups import Groups
from broker_core.server.network.network import Network
from broker_core.server.network.request_metrics import BUCKETS_S, RequestMetrics
from broker_core.server.partitions.flusher import Flusher
from broker_core.server.partitions.topics import Topic, TopicRegistry

if TYPE_CHECKING:
    from prometheus_client import Metric

LABELS_MAX: Final = 1000
_OTHER: Final = "other"
_PREFIX: Final = "waylog_broker_"


class MeasuredParts(Protocol):
    """The parts of a broker that are measured."""

    topics: TopicRegistry
    groups: Groups
    flusher: Flusher
    cluster: Cluster
    replication: Replication
    network: Network
    login_failures: LoginFailures

    @property
    def networks(self) -> tuple[Network, ...]:
        """The network of the clients' listeners, and that of the controllers' if there is one."""

    def problems(self) -> dict[str, str]:
        """Return what keeps the broker from serving, by part."""


def renderer(broker: MeasuredParts) -> Callable[[], tuple[str, bytes]]:
    """Return a function that renders the broker's metrics in Prometheus' text format."""
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(broker))
    ProcessCollector(registry=registry)
    return lambda: (CONTENT_TYPE_PLAIN_0_0_4, generate_latest(registry))


class _Collector:
    def __init__(self, broker: MeasuredParts) -> None:
        self._broker = broker

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        yield from self._topics()
        yield from self._cluster()
        yield from self._groups()
        yield from self._connections()
        yield from self._flushes()
        yield from self._replicas()
        if self._broker.network.metrics is not None:
            yield from _requests(self._broker.network.metrics)

    def _topics(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        of_topic: dict[str, list[int]] = {}
        partitions = 0
        for number, topic in enumerate(self._broker.topics):
            partitions += len(topic.partitions)
            sums = of_topic.setdefault(_label(topic.name, number), [0] * 4)
            for index, amount in enumerate(_amounts(topic)):
                sums[index] += amount
        for index, (name, text, family) in enumerate(
            (
                ("topic_messages_in", "Records appended since the start.", CounterMetricFamily),
                ("topic_bytes_in", "Bytes appended since the start.", CounterMetricFamily),
                ("topic_bytes_out", "Bytes fetched since the start.", CounterMetricFamily),
                ("log_size_bytes", "Size of the logs.", GaugeMetricFamily),
            )
        ):
            metric = family(_PREFIX + name, text, labels=["topic"])
            for label, sums in of_topic.items():
                metric.add_metric([label], sums[index])
            yield metric
        yield GaugeMetricFamily(_PREFIX + "partitions", "Partitions here.", value=partitions)

    def _groups(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        lags: dict[tuple[str, str], int] = {}
        members: dict[str, int] = {}
        groups = self._broker.groups.coordinator.groups
        for number, (group_id, group) in enumerate(groups.items()):
            label = _label(group_id, number)
            members[label] = members.get(label, 0) + len(group.members)
            for (topic, index), committed in group.offsets.items():
                partition = self._broker.topics.partition(topic, index)
                if partition is not None:
                    key = label, topic if len(lags) < LABELS_MAX else _OTHER
                    lag = max(partition.high_watermark - committed.offset, 0)
                    lags[key] = lags.get(key, 0) + lag
        lag_metric = GaugeMetricFamily(
            _PREFIX + "group_lag",
            "Records that a group has not committed.",
            labels=["group", "topic"],
        )
        for key, lag in lags.items():
            lag_metric.add_metric(key, lag)
        yield lag_metric
        member_metric = GaugeMetricFamily(
            _PREFIX + "group_members", "Members of a group.", labels=["group"]
        )
        for label, count in members.items():
            member_metric.add_metric([label], count)
        yield member_metric

    def _connections(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        broker = self._broker
        limits = broker.network.limits
        open_now = GaugeMetricFamily(
            _PREFIX + "connections", "Open connections.", labels=["listener"]
        )
        for name, listener in broker.network.listeners.items():
            open_now.add_metric([name], listener.connections)
        yield open_now
        yield CounterMetricFamily(
            _PREFIX + "connections_refused",
            "Refused by a limit or local.accounts.",
            value=limits.refused,
        )
        yield CounterMetricFamily(
            _PREFIX + "failed_logins",
            "Logins that were refused.",
            value=broker.login_failures.total,
        )
        expiries = GaugeMetricFamily(
            _PREFIX + "certificate_expiry_seconds",
            "When the certificates of a TLS listener expire, in seconds since 1970.",
            labels=["listener"],
        )
        for network in broker.networks:
            for name, moment_s in network.certificate_expiries().items():
                expiries.add_metric([name], moment_s)
        yield expiries
        yield GaugeMetricFamily(
            _PREFIX + "incomplete_request_bytes",
            "Memory of requests that have not arrived completely.",
            value=limits.incomplete.bytes,
        )

    def _replicas(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        replicas = self._broker.replication.replicas
        # Without contact to the controller this broker does not know which replicas are in sync.
        is_known = "controller" not in self._broker.problems()
        for name, text, value in (
            ("led_partitions", "Partitions that this broker leads.", replicas.led),
            (
                "under_replicated_partitions",
                "Led partitions with a replica that is not in sync.",
                replicas.under_replicated if is_known else math.nan,
            ),
            (
                "under_min_isr_partitions",
                "Led partitions with too few replicas in sync to take records with acks=all.",
                replicas.under_min_isr if is_known else math.nan,
            ),
        ):
            yield GaugeMetricFamily(_PREFIX + name, text, value=value)

    def _cluster(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        cluster = self._broker.cluster
        image = cluster.image
        partitions = [partition for _, _, partition in image.partitions()]
        led = [each for each in partitions if image.is_active(each.leader)]
        for name, text, value in (
            ("active_controller", "Whether this node's controller is active.", cluster.is_active),
            (
                "fenced_brokers",
                "Brokers that have registered and do not serve.",
                sum(each.fenced for each in image.brokers.values()),
            ),
            (
                "offline_partitions",
                "Partitions of the cluster that nobody leads.",
                len(partitions) - len(led),
            ),
            (
                "not_preferred_leaders",
                "Partitions of the cluster that another leads than the preferred replica.",
                sum(each.leader != each.replicas[0] for each in led),
            ),
            ("metadata_offset", "Entries of the metadata log that hold here.", image.offset),
            (
                "quorum_leader",
                "The node that leads the metadata quorum, -1 if nobody is known to.",
                cluster.controller_id,
            ),
            ("quorum_epoch", "Epoch of the metadata quorum.", cluster.quorum.node.replica.epoch),
            ("quorum_voters", "Nodes that vote.", len(cluster.quorum.node.replica.voters)),
        ):
            yield GaugeMetricFamily(_PREFIX + name, text, value=value)
        yield self._quorum_lag(cluster)

    @staticmethod
    def _quorum_lag(cluster: Cluster) -> Metric:
        from prometheus_client.core import GaugeMetricFamily

        lag = GaugeMetricFamily(
            _PREFIX + "quorum_lag",
            "Entries that a voter lacks, as the quorum's leader knows it.",
            labels=["voter"],
        )
        for voter, entries in cluster.quorum_lag().items():
            lag.add_metric([str(voter)], entries)
        return lag

    def _flushes(self) -> Iterator[Metric]:
        from prometheus_client.core import HistogramMetricFamily

        times = self._broker.flusher.times
        yield HistogramMetricFamily(
            _PREFIX + "flush_seconds",
            "Time to make a partition's records durable (fdatasync included).",
            buckets=_cumulative(times.buckets),
            sum_value=times.total_s,
        )


def _label(name: str, number: int) -> str:
    return name if number < LABELS_MAX else _OTHER


def _amounts(topic: Topic) -> tuple[int, int, int, int]:
    partitions = topic.partitions
    return (
        sum(partition.messages_in for partition in partitions),
        sum(partition.bytes_in for partition in partitions),
        sum(partition.bytes_out for partition in partitions),
        sum(partition.log.size_bytes for partition in partitions),
    )


def _cumulative(counts: Sequence[int]) -> list[tuple[str, float]]:
    bounds = [*(str(bound) for bound in BUCKETS_S), "+Inf"]
    return list(zip(bounds, accumulate(counts), strict=True))


def _requests(metrics: RequestMetrics) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

    total = HistogramMetricFamily(
        _PREFIX + "request_seconds", "Time from a request's arrival to its answer.", labels=["api"]
    )
    parts = CounterMetricFamily(
        _PREFIX + "request_part_seconds", "Where that time went.", labels=["api", "part"]
    )
    received = CounterMetricFamily(_PREFIX + "request_bytes", "Bytes of requests.", labels=["api"])
    for name, times in metrics.by_api.items():
        total.add_metric([name], _cumulative(times.total.buckets), times.total.total_s)
        received.add_metric([name], times.bytes_in)
        for part in ("queue", "local", "remote", "response"):
            parts.add_metric([name, part], getattr(times, part))
    yield from (total, parts, received)
