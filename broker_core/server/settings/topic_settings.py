"""The settings of topics as DescribeConfigs describes them."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple


class ConfigType(IntEnum):
    """The type of a setting's value, as Kafka numbers it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class TopicSetting(NamedTuple):
    """One setting: its type, the broker properties that are its default, and its documentation.

    If there are several broker properties, the first one that is set counts.
    """

    type: ConfigType
    broker_properties: tuple[str, ...]
    documentation: str


_BOOLEAN, _STRING, _INT, _LONG, _DOUBLE, _LIST = (
    ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE,
    ConfigType.LIST,
)  # fmt: skip

TOPIC_SETTINGS: Final[dict[str, TopicSetting]] = {
    "cleanup.policy": TopicSetting(
        _LIST,
        ("log.cleanup.policy",),
        "What becomes of old records: 'delete' drops segments by time and size, 'compact' keeps "
        "the newest record of each key; both may be given.",
    ),
    "compression.type": TopicSetting(
        _STRING,
        ("compression.type",),
        "The codec in which batches are stored; 'producer' keeps what the producer has chosen.",
    ),
    "delete.retention.ms": TopicSetting(
        _LONG,
        ("log.cleaner.delete.retention.ms",),
        "How long tombstones of a compacted topic stay.",
    ),
    "file.delete.delay.ms": TopicSetting(
        _LONG, ("log.segment.delete.delay.ms",), "Taken without effect: files are deleted at once."
    ),
    "flush.messages": TopicSetting(
        _LONG,
        ("log.flush.interval.messages",),
        "Records after which the log is written to the medium; 1 acknowledges only what is there.",
    ),
    "flush.ms": TopicSetting(
        _LONG,
        ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        "Time after which records are written to the medium.",
    ),
    "follower.replication.throttled.replicas": TopicSetting(
        _LIST,
        (),
        "Replicas (PARTITION:BROKER,... or *) that catch up at most at the rate of their broker's "
        "follower.replication.throttled.rate.",
    ),
    "index.interval.bytes": TopicSetting(
        _INT, ("log.index.interval.bytes",), "Bytes of the log between two entries of its index."
    ),
    "leader.replication.throttled.replicas": TopicSetting(
        _LIST,
        (),
        "Replicas (PARTITION:BROKER,... or *) that, when they lead, let others catch up at most at "
        "the rate of their broker's leader.replication.throttled.rate.",
    ),
    "max.compaction.lag.ms": TopicSetting(
        _LONG,
        ("log.cleaner.max.compaction.lag.ms",),
        "The longest time that a record of a compacted topic is kept from being compacted.",
    ),
    "max.message.bytes": TopicSetting(
        _INT, ("message.max.bytes",), "The largest batch that is accepted, as it is compressed."
    ),
    "message.timestamp.after.max.ms": TopicSetting(
        _LONG,
        ("log.message.timestamp.after.max.ms",),
        "How far a record's timestamp may be ahead of the broker's clock.",
    ),
    "message.timestamp.before.max.ms": TopicSetting(
        _LONG,
        ("log.message.timestamp.before.max.ms",),
        "How far a record's timestamp may be behind the broker's clock.",
    ),
    "message.timestamp.type": TopicSetting(
        _STRING,
        ("log.message.timestamp.type",),
        "Whose clock a record's timestamp is: 'CreateTime' or 'LogAppendTime'.",
    ),
    "min.cleanable.dirty.ratio": TopicSetting(
        _DOUBLE,
        ("log.cleaner.min.cleanable.ratio",),
        "The share of a log that has not been compacted from which on it is.",
    ),
    "min.compaction.lag.ms": TopicSetting(
        _LONG,
        ("log.cleaner.min.compaction.lag.ms",),
        "The shortest time that a record stays as it was written.",
    ),
    "min.insync.replicas": TopicSetting(
        _INT,
        ("min.insync.replicas",),
        "Replicas that must have a record before one with acks=all is acknowledged.",
    ),
    "preallocate": TopicSetting(
        _BOOLEAN, ("log.preallocate",), "Taken without effect: a segment grows with its records."
    ),
    "retention.bytes": TopicSetting(
        _LONG,
        ("log.retention.bytes",),
        "The size of a partition above which its oldest segments are deleted; -1 is no limit.",
    ),
    "retention.ms": TopicSetting(
        _LONG,
        ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        "How long records are kept at least; -1 is for ever.",
    ),
    "segment.bytes": TopicSetting(_INT, ("log.segment.bytes",), "The largest size of a segment."),
    "segment.index.bytes": TopicSetting(
        _INT, ("log.index.size.max.bytes",), "The largest size of a segment's index."
    ),
    "segment.jitter.ms": TopicSetting(
        _LONG,
        ("log.roll.jitter.ms", "log.roll.jitter.hours"),
        "By how much the time of a segment may be shorter, so that not all end at once.",
    ),
    "segment.ms": TopicSetting(
        _LONG,
        ("log.roll.ms", "log.roll.hours"),
        "The time after which a segment ends even if it is not full.",
    ),
    "unclean.leader.election.enable": TopicSetting(
        _BOOLEAN,
        ("unclean.leader.election.enable",),
        "Whether a replica that is not in sync may lead, at the price of acknowledged records.",
    ),
}

#: The topic setting whose default each broker property is.
BY_BROKER_PROPERTY: Final = {
    broker_property: name
    for name, setting in TOPIC_SETTINGS.items()
    for broker_property in setting.broker_properties
}
