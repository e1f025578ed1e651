"""Topics as administrators see them: partitions, sizes, settings with defaults told apart."""

from __future__ import annotations

from typing import Final

import msgspec
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigEntry,
    ConfigSource,
)

from gateway.operations.brokers import sizes_of_topic, sizes_of_topics
from waylog.administration.extents import Extent, partition_extents
from waylog.administration.log_access import TIMEOUT_S, LogAccess, topic_metadata
from waylog.administration.topics import owner_of_topic, topic_settings
from waylog.cli import CommandError

#: Topics, and partitions of one topic, of one answer.
TOPICS_MAX: Final = 200
PARTITIONS_MAX: Final = 100


class TopicRow(msgspec.Struct, frozen=True):
    """A topic in the list of all."""

    name: str
    #: `platform`, `kafka` or `other`.
    owner: str
    partitions: int
    replicas: int
    under_replicated: int
    #: Of all replicas; None if no broker tells.
    bytes: int | None


class TopicList(msgspec.Struct, frozen=True):
    """Topics by name; `next` is where the following ones begin."""

    topics: list[TopicRow]
    total: int
    next: str | None


class PartitionRow(msgspec.Struct, frozen=True):
    """A partition of a topic; leader -1 for none, offsets None while nobody leads."""

    partition: int
    leader: int
    replicas: list[int]
    in_sync: list[int]
    first: int | None
    end: int | None
    bytes: int | None


class Setting(msgspec.Struct, frozen=True):
    """A setting of a topic, and where its value comes from."""

    name: str
    value: str | None
    #: `topic`, `broker` or `default`.
    source: str
    sensitive: bool
    read_only: bool


class ShownTopic(msgspec.Struct, frozen=True):
    """A topic with its settings and some of its partitions."""

    name: str
    owner: str
    partitions: int
    rows: list[PartitionRow]
    #: The number of the first partition that is not in `rows`.
    next: int | None
    settings: list[Setting]


def list_topics(access: LogAccess, admin: AdminClient, *, after: str, text: str) -> TopicList:
    """Return the topics whose names have a text, after a name; raises KafkaException."""
    found = admin.list_topics(timeout=TIMEOUT_S).topics
    names = sorted(name for name in found if text.casefold() in name.casefold())
    page = [name for name in names if name > after][: TOPICS_MAX + 1]
    try:
        sizes: dict[str, int] = sizes_of_topics(access)
    except CommandError:
        sizes = {}
    rows = []
    for name in page[:TOPICS_MAX]:
        partitions = found[name].partitions.values()
        rows.append(
            TopicRow(
                name,
                owner_of_topic(name),
                len(partitions),
                max((len(each.replicas) for each in partitions), default=0),
                sum(len(each.isrs) < len(each.replicas) for each in partitions),
                sizes.get(name),
            )
        )
    more = len(page) > TOPICS_MAX
    return TopicList(rows, len(names), page[TOPICS_MAX - 1] if more else None)


def describe_topic(access: LogAccess, admin: AdminClient, name: str, start: int) -> ShownTopic:
    """Return a topic with its partitions from `start` on.

    Raises CommandError for a topic that there is not, KafkaException.
    """
    topic = topic_metadata(admin, name)
    numbers = [each for each in sorted(topic.partitions) if each >= start]
    shown = numbers[:PARTITIONS_MAX]
    led = [(name, each) for each in shown if topic.partitions[each].leader >= 0]
    try:
        extents: dict[tuple[str, int], Extent] = partition_extents(admin, led)
    except KafkaException:
        extents = {}
    try:
        sizes = sizes_of_topic(access, name) or {}
    except CommandError:
        sizes = {}
    rows = []
    for number in shown:
        partition = topic.partitions[number]
        extent = extents.get((name, number))
        rows.append(
            PartitionRow(
                number,
                partition.leader,
                list(partition.replicas),
                list(partition.isrs),
                None if extent is None else extent.first,
                None if extent is None else extent.end,
                sizes.get(number),
            )
        )
    settings = [_setting(entry) for _, entry in sorted(topic_settings(access, admin, name).items())]
    more = numbers[PARTITIONS_MAX : PARTITIONS_MAX + 1]
    return ShownTopic(
        name, owner_of_topic(name), len(topic.partitions), rows, more[0] if more else None, settings
    )


def _setting(entry: ConfigEntry) -> Setting:
    source = ConfigSource(entry.source)
    if source == ConfigSource.DYNAMIC_TOPIC_CONFIG:
        kind = "topic"
    elif source == ConfigSource.DEFAULT_CONFIG:
        kind = "default"
    else:
        kind = "broker"
    value = None if entry.is_sensitive or entry.value is None else str(entry.value)
    return Setting(entry.name, value, kind, bool(entry.is_sensitive), bool(entry.is_read_only))
