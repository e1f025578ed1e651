"""The broker's metrics for Prometheus, collected on each scrape.

Events that happen thousands of times a second only increment plain numbers. Labels come from
topics, groups and APIs; at most `LABELS_MAX` topics and groups are named, the others share the
label `other`.

A broker has thousands of partitions and commits. They are looked at some at a time, beside its
other work, so each value is a true one of some moment of the scrape.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Protocol

from broker_core.coordinator.offsets import CommittedOffset
from broker_core.pieces import in_pieces
from broker_core.security.failures import LoginFailures
from broker_core.server.cluster.membership import Cluster
from broker_core.server.cluster.replication import Replication
from broker_core.server.coordination.groups import Groups
from broker_core.server.network.network import Network
from broker_core.server.network.request_metrics import BUCKETS_S, RequestMetrics
from broker_core.server.partitions.flusher import Flusher
from broker_core.server.partitions.topics import TopicRegistry

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


def renderer(broker: MeasuredParts) -> Callable[[], Coroutine[None, None, tuple[str, bytes]]]:
    """Return a function that renders the broker's metrics in Prometheus' text format."""
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

    collection = _Collection(broker)

    async def render() -> tuple[str, bytes]:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collected([each async for each in collection.collect()]))
        ProcessCollector(registry=registry)
        return CONTENT_TYPE_PLAIN_0_0_4, await asyncio.to_thread(generate_latest, registry)

    return render


class _Collected:
    """A collector of metrics that are there already."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        return self._metrics


class _Collection:
    def __init__(self, broker: MeasuredParts) -> None:
        self._broker = broker

    async def collect(self) -> AsyncIterator[Metric]:
        for of_many in (self._topics(), self._cluster(), self._groups(), self._replicas()):
            async for metric in of_many:
                yield metric
                await asyncio.sleep(0)
        for metric in (*self._connections(), *self._flushes()):
            yield metric
        if self._broker.network.metrics is not None:
            for metric in _requests(self._broker.network.metrics):
                yield metric

    async def _topics(self) -> AsyncIterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        topics = [
            (_label(topic.name, number), topic) for number, topic in enumerate(self._broker.topics)
        ]
        of_topic = {label: [0] * 4 for label, _ in topics}
        partitions = [(label, each) for label, topic in topics for each in topic.partitions]
        async for piece in in_pieces(partitions):
            for label, partition in piece:
                sums = of_topic[label]
                sums[0] += partition.messages_in
                sums[1] += partition.bytes_in
                sums[2] += partition.bytes_out
                sums[3] += partition.log.size_bytes
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
        yield GaugeMetricFamily(_PREFIX + "partitions", "Partitions here.", value=len(partitions))

    async def _groups(self) -> AsyncIterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        lags: dict[tuple[str, str], int] = {}
        members: dict[str, int] = {}
        groups = [
            (_label(group_id, number), group)
            for number, (group_id, group) in enumerate(
                self._broker.groups.coordinator.groups.items()
            )
        ]
        async for some in in_pieces(groups):
            for label, group in some:
                members[label] = members.get(label, 0) + len(group.members)
                async for piece in in_pieces(list(group.offsets.items())):
                    self._add_lags(label, piece, lags)
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

    def _add_lags(
        self,
        label: str,
        offsets: Iterable[tuple[tuple[str, int], CommittedOffset]],
        lags: dict[tuple[str, str], int],
    ) -> None:
        for (topic, index), committed in offsets:
            partition = self._broker.topics.partition(topic, index)
            if partition is not None:
                key = label, topic if len(lags) < LABELS_MAX else _OTHER
                lag = max(partition.high_watermark - committed.offset, 0)
                lags[key] = lags.get(key, 0) + lag

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

    async def _replicas(self) -> AsyncIterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        led = self._broker.replication.replicas.led
        under_replicated = under_min_isr = 0
        async for piece in in_pieces(led):
            under_replicated += sum(each.image.is_under_replicated for each in piece)
            under_min_isr += sum(each.is_under_min_isr for each in piece)
        # Without contact to the controller this broker does not know which replicas are in sync.
        is_known = "controller" not in self._broker.problems()
        for name, text, value in (
            ("led_partitions", "Partitions that this broker leads.", len(led)),
            (
                "under_replicated_partitions",
                "Led partitions with a replica that is not in sync.",
                under_replicated if is_known else math.nan,
            ),
            (
                "under_min_isr_partitions",
                "Led partitions with too few replicas in sync to take records with acks=all.",
                under_min_isr if is_known else math.nan,
            ),
        ):
            yield GaugeMetricFamily(_PREFIX + name, text, value=value)

    async def _cluster(self) -> AsyncIterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        cluster = self._broker.cluster
        image = cluster.image
        offline = not_preferred = 0
        async for piece in in_pieces([partition for _, _, partition in image.partitions()]):
            led = [each for each in piece if image.is_active(each.leader)]
            offline += len(piece) - len(led)
            not_preferred += sum(each.leader != each.replicas[0] for each in led)
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
                offline,
            ),
            (
                "not_preferred_leaders",
                "Partitions of the cluster that another leads than the preferred replica.",
                not_preferred,
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
