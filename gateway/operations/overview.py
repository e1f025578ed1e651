"""How the platform does: rates, latency by stage, lag, disks, and the health of every part."""

from __future__ import annotations

import asyncio
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient

from gateway.observability.metrics import LATENCY_BUCKETS_S, GatewayMetrics
from gateway.observability.readiness import Readiness
from gateway.operations.brokers import Cluster, describe_cluster
from gateway.operations.log_console import LogConsole
from gateway.views.address_view import AddressView
from gateway.views.location_view import LocationView
from waylog.administration.extents import partition_ends
from waylog.cli import CommandError
from waylog.history.newest_file import newest_file_ms
from waylog.kafka.errors import error_text
from waylog.kafka.protocol.cluster_requests import Place
from waylog.kafka.topics import ADDRESS, LOCATION
from waylog.malformed import MALFORMED
from waylog.messages import decode_address
from waylog.observability.telemetry import now_ms

#: Seconds for which a sample, and what is known of the brokers, is good.
SAMPLE_S: Final = 2.0
_CLUSTER_S: Final = 10.0
_REQUEST_S: Final = 5.0
#: Partitions whose ends are sampled; of topics that would go beyond nothing is counted.
_PLACES_MAX: Final = 4_000
_GROUPS_MAX: Final = 100
_TOPIC_PLACES_MAX: Final = 1_000
#: Addresses whose way is timed: the last ones, so many a second at most.
_TIMED_MAX: Final = 500
_TIMED_EVERY_S: Final = 0.05
_TIMED_S: Final = 120.0
_GEOCODER_S: Final = 2.0


class Stage(msgspec.Struct, frozen=True):
    """A stage of a fix's way; what is not known is None.

    `append`: from the gateway to the log's acknowledgement. `location` and `address`: from the
    log back into the gateway. `resolve`: from the fix's arrival to its address, all included.
    """

    name: str
    per_second: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None


class GroupLag(msgspec.Struct, frozen=True):
    """The lag of a group, and the records that it takes a second."""

    group: str
    #: As Kafka names it; `empty` is that of a group whose program does not run.
    state: str
    topics: list[str]
    lag: int
    per_second: float | None


class Part(msgspec.Struct, frozen=True):
    """A part of the platform: in order, or what is wrong; None if that is not known."""

    name: str
    healthy: bool | None
    detail: str = ""


class TopicRate(msgspec.Struct, frozen=True):
    """Records that a topic gets a second."""

    topic: str
    per_second: float


class OverviewAnswer(msgspec.Struct, frozen=True):
    """The state of the platform."""

    time: int  # ms
    uptime_s: float
    devices: int
    #: Records a second into the log, and those that groups have taken; None at first.
    records_in_per_second: float | None
    records_out_per_second: float | None
    topics: list[TopicRate]
    stages: list[Stage]
    groups: list[GroupLag]
    cluster: Cluster | None
    parts: list[Part]
    #: When the newest file of the history was written (ms); None if that is not known.
    history_written: int | None
    #: What could not be learnt, and what is left out.
    unknown: list[str]


class _Sample(msgspec.Struct, frozen=True):
    at: float
    ends: dict[Place, int]
    committed: dict[str, dict[Place, int]]
    states: dict[str, str]
    unknown: list[str]


class AddressTimes:
    """Times the way of some addresses: from the arrival of a fix to its address in this process."""

    def __init__(self, locations: LocationView, clock: Callable[[], float] = time.monotonic):
        self._locations = locations
        self._clock = clock
        self._took: deque[tuple[float, float]] = deque(maxlen=_TIMED_MAX)
        self._next = float("-inf")

    def address_changed(self, device: str, value: bytes) -> None:
        """Take an address of the view; most are passed over at once."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + _TIMED_EVERY_S
        try:
            address, fix = decode_address(value), self._locations.latest(device)
        except MALFORMED:
            return
        if fix is not None and fix.id == address.fix_id:
            self._took.append((now, max(0.0, float(now_ms() - fix.received))))

    def newest(self) -> list[float]:
        """Return the milliseconds of the last two minutes, sorted."""
        since = self._clock() - _TIMED_S
        return sorted(took for at, took in self._took if at >= since)


class Overview:
    """Answers how the platform does; samples the log every two seconds at most, while asked."""

    def __init__(
        self,
        console: LogConsole,
        locations: LocationView,
        addresses: AddressView,
        metrics: GatewayMetrics,
        readiness: Readiness,
        geo_url: str | None,
        history: str | None,
    ) -> None:
        self._console = console
        self._locations = locations
        self._addresses = addresses
        self._metrics = metrics
        self._readiness = readiness
        self._geo_url = geo_url
        self._history = history
        self._times = AddressTimes(locations)
        addresses.on_address(self._times.address_changed)
        self._started = time.monotonic()
        self._sampling = asyncio.Lock()
        self._before: _Sample | None = None
        self._sample: _Sample | None = None
        self._cluster: Cluster | None = None
        self._cluster_at = float("-inf")
        self._cluster_trouble = ""
        self._geocoder: str | None = None
        self._written: int | None = None
        self._counts: deque[tuple[float, list[int], float]] = deque(maxlen=60)

    async def ask(self) -> OverviewAnswer:
        """Return the state now; what cannot be learnt is named in it."""
        async with self._sampling:
            await self._look()
        return self._answer()

    async def _look(self) -> None:
        if self._sample is not None and time.monotonic() - self._sample.at < SAMPLE_S:
            return
        sample = await self._console.beside(self._sampled)
        if sample.ends or self._sample is None:
            self._before, self._sample = self._sample, sample
        else:
            # What is known stays; what is unknown is told.
            self._sample = msgspec.structs.replace(self._sample, unknown=sample.unknown)
        metrics = self._metrics
        self._counts.append((time.monotonic(), list(metrics.latency_counts), metrics.latency_sum))

    # Runs in a thread.
    def _sampled(self) -> _Sample:
        unknown: list[str] = []
        ends: dict[Place, int] = {}
        committed: dict[str, dict[Place, int]] = {}
        states: dict[str, str] = {}
        admin = self._console.admin()
        try:
            ends = self._ends(admin, unknown)
            states = _states(admin, unknown)
            committed = _committed(admin, list(states))
        except (KafkaException, TimeoutError) as error:
            unknown.append(f"the log: {error_text(error) or 'it does not answer in time'}")
        if time.monotonic() - self._cluster_at >= _CLUSTER_S:
            try:
                self._cluster = describe_cluster(self._console.access)
                self._cluster_trouble = ""
            except CommandError as error:
                self._cluster, self._cluster_trouble = None, str(error)
            self._cluster_at = time.monotonic()
            self._geocoder = _geocoder_trouble(self._geo_url)
            self._written = self._newest_file()
        return _Sample(time.monotonic(), ends, committed, states, unknown)

    def _newest_file(self) -> int | None:
        history = self._history
        return None if history is None or "://" in history else newest_file_ms(Path(history))

    def _ends(self, admin: AdminClient, unknown: list[str]) -> dict[Place, int]:
        places: list[Place] = []
        left_out = 0
        for name, topic in sorted(admin.list_topics(timeout=_REQUEST_S).topics.items()):
            numbers = [each for each, part in topic.partitions.items() if part.leader >= 0]
            if len(numbers) > _TOPIC_PLACES_MAX or len(places) + len(numbers) > _PLACES_MAX:
                left_out += 1
            else:
                places += [(name, each) for each in numbers]
        if left_out:
            unknown.append(f"rates of {left_out} topics with very many partitions")
        return partition_ends(admin, places, timeout_s=_REQUEST_S)

    def _answer(self) -> OverviewAnswer:
        sample = self._sample
        assert sample is not None
        by_topic = self._topic_rates()
        groups = self._groups()
        taken = [each.per_second for each in groups if each.per_second is not None]
        unknown = list(sample.unknown)
        if self._cluster_trouble:
            unknown.append(self._cluster_trouble)
        elif self._cluster is not None:
            unknown += self._cluster.unknown
        return OverviewAnswer(
            now_ms(),
            round(time.monotonic() - self._started, 1),
            len(self._locations),
            None if by_topic is None else round(sum(by_topic.values()), 1),
            round(sum(taken), 1) if taken else None,
            [
                TopicRate(topic, round(rate, 1))
                for topic, rate in sorted((by_topic or {}).items(), key=lambda each: -each[1])
                if rate > 0
            ][:20],
            self._stages(),
            groups,
            self._cluster,
            self._parts(),
            self._written,
            unknown,
        )

    def _seconds(self) -> float | None:
        if self._before is None or self._sample is None:
            return None
        return max(0.001, self._sample.at - self._before.at)

    def _topic_rates(self) -> dict[str, float] | None:
        seconds, before, sample = self._seconds(), self._before, self._sample
        if seconds is None or before is None or sample is None:
            return None
        rates: dict[str, float] = {}
        for place, end in sample.ends.items():
            grown = max(0, end - before.ends.get(place, end))
            rates[place[0]] = rates.get(place[0], 0.0) + grown / seconds
        return rates

    def _groups(self) -> list[GroupLag]:
        sample, before, seconds = self._sample, self._before, self._seconds()
        assert sample is not None
        found = []
        for name, committed in sorted(sample.committed.items()):
            lag = sum(
                max(0, sample.ends[place] - offset)
                for place, offset in committed.items()
                if place in sample.ends
            )
            rate = None
            if before is not None and seconds is not None and name in before.committed:
                earlier = before.committed[name]
                taken = sum(
                    max(0, offset - earlier.get(place, offset))
                    for place, offset in committed.items()
                )
                rate = round(taken / seconds, 1)
            topics = sorted({topic for topic, _ in committed})
            found.append(GroupLag(name, sample.states.get(name, ""), topics, lag, rate))
        return found

    def _stages(self) -> list[Stage]:
        took = self._times.newest()
        p50, p99 = self._append_ms()
        return [
            Stage("append", round(self._locations.rate.per_second(), 1), p50, p99),
            Stage(LOCATION, round(self._locations.rate.per_second(), 1), _delay(self._locations)),
            Stage(
                "resolve",
                round(self._addresses.rate.per_second(), 1),
                _quantile(took, 0.5),
                _quantile(took, 0.99),
            ),
            Stage(ADDRESS, round(self._addresses.rate.per_second(), 1), _delay(self._addresses)),
        ]

    def _append_ms(self) -> tuple[float | None, float | None]:
        """Return the upper bounds of the buckets of the last two minutes' appends."""
        if not self._counts:
            return None, None
        first = self._counts[0][1] if len(self._counts) > 1 else [0] * len(self._counts[0][1])
        return latency_quantiles(
            [now - then for now, then in zip(self._counts[-1][1], first, strict=True)]
        )

    def _parts(self) -> list[Part]:
        parts = [
            Part(name, trouble is None, trouble or "")
            for name, trouble in self._readiness.states().items()
        ]
        cluster = self._cluster
        if cluster is None:
            parts.append(Part("log", False, self._cluster_trouble))
        else:
            parts += [
                Part(f"broker {each.id}", each.answers, each.address or "")
                for each in cluster.brokers
            ]
            if cluster.quorum:
                leads = any(each.role == "active" for each in cluster.quorum)
                parts.append(Part("controllers", leads))
            behind = cluster.under_replicated
            parts.append(Part("replication", not behind, str(behind) if behind else ""))
        if self._geo_url is not None:
            parts.append(Part("geocoder", self._geocoder is None, self._geocoder or ""))
        return parts


def _states(admin: AdminClient, unknown: list[str]) -> dict[str, str]:
    listed = admin.list_consumer_groups(request_timeout=_REQUEST_S).result(_REQUEST_S)
    groups = sorted(listed.valid, key=lambda each: each.group_id)
    if len(groups) > _GROUPS_MAX:
        unknown.append(f"lag of {len(groups) - _GROUPS_MAX} groups")
    return {
        each.group_id: each.state.name.lower() if each.state else ""
        for each in groups[:_GROUPS_MAX]
    }


def _committed(admin: AdminClient, names: Sequence[str]) -> dict[str, dict[Place, int]]:
    asked = {
        name: admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(name)], request_timeout=_REQUEST_S
        )[name]
        for name in names
    }
    found: dict[str, dict[Place, int]] = {}
    for name, answer in asked.items():
        try:
            places = answer.result(_REQUEST_S).topic_partitions
        except (KafkaException, TimeoutError):
            continue  # it was deleted meanwhile, or is of another kind
        offsets = {(each.topic, each.partition): each.offset for each in places if each.offset >= 0}
        if offsets:
            found[name] = offsets
    return found


def latency_quantiles(counts: Sequence[int]) -> tuple[float | None, float | None]:
    """Return 50 % and 99 % of a histogram by LATENCY_BUCKETS_S, in ms, rounded up to a bucket."""
    total = sum(counts)
    if total <= 0:
        return None, None
    found = []
    for share in (0.5, 0.99):
        seen = 0
        bound = LATENCY_BUCKETS_S[-1]
        for index, count in enumerate(counts):
            seen += count
            if seen >= share * total:
                bound = LATENCY_BUCKETS_S[min(index, len(LATENCY_BUCKETS_S) - 1)]
                break
        found.append(bound * 1000)
    return found[0], found[1]


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def _delay(view: LocationView | AddressView) -> float | None:
    return round(float(view.delay_ms), 1) if view.records else None


def _geocoder_trouble(geo_url: str | None) -> str | None:
    if geo_url is None:
        return None
    try:
        with urllib.request.urlopen(f"{geo_url.rstrip('/')}/status", timeout=_GEOCODER_S):  # noqa: S310
            return None
    except (OSError, urllib.error.URLError, ValueError) as error:
        return str(getattr(error, "reason", error))
