"""The platform's topics and their settings."""

from __future__ import annotations

from dataclasses import dataclass, field

LOCATION = "location"
ADDRESS = "address"
ERROR = "error"
PERFORMANCE = "performance"
PARAMETER = "parameter"
LOG = "log"
MQTT_STATE = "mqtt-state"
EVENT = "event"
PLACE = "place"
PLACE_EDIT = "place-edit"
VALUE_KEY = "value-key"
ERASURE = "erasure"

_DAY_MS = 24 * 60 * 60 * 1000

#: A segment leaves a log when its newest record is too old, so that its oldest is older by as much
#: as the segment lasted: by the 24th part of the retention at most.
_SEGMENTS_OF_RETENTION = 24
_SEGMENT_MS_MIN = 60_000

#: What newer records replace, or an erasure ends, is out of the files within a day.
_SOON_COMPACTED = {"max.compaction.lag.ms": str(_DAY_MS), "segment.ms": str(_DAY_MS)}

#: Few partitions keep batches large, which is what the cost of a broker and of a producer depends
#: on; four leave room for four resolvers.
KEYED_PARTITIONS = 4


@dataclass(frozen=True)
class Topic:
    """A topic as it is created when it does not exist yet. `config` has Kafka's property names."""

    name: str
    partitions: int
    config: dict[str, str] = field(default_factory=dict)


def segment_ms(retention_ms: int) -> int:
    """How long a segment may be written, so that a reader finds what `retention.ms` promises."""
    return max(_SEGMENT_MS_MIN, retention_ms // _SEGMENTS_OF_RETENTION)


def kept_for(days: int) -> dict[str, str]:
    """The settings of a topic whose records go after some days."""
    retention_ms = days * _DAY_MS
    return {"retention.ms": str(retention_ms), "segment.ms": str(segment_ms(retention_ms))}


# `location`, `address` and `event` have the same key (the device) and the same number of
# partitions: partition n of one holds the same devices as partition n of the others.
TOPICS = (
    Topic(LOCATION, KEYED_PARTITIONS, kept_for(7)),
    Topic(
        ADDRESS,
        KEYED_PARTITIONS,
        {
            "cleanup.policy": "compact,delete",
            "retention.ms": str(30 * _DAY_MS),
            **_SOON_COMPACTED,
            # Of a device that was erased, as long as `location` may have its fixes: a view that
            # is built again must not show them.
            "delete.retention.ms": str(8 * _DAY_MS),
            # Compaction works on closed segments: small ones keep it near one record a device.
            "segment.bytes": str(64 * 1024 * 1024),
        },
    ),
    Topic(EVENT, KEYED_PARTITIONS, kept_for(30)),
    # What the places job found, key = device, and what users say of it, key = device LF place.
    Topic(PLACE, KEYED_PARTITIONS, {"cleanup.policy": "compact", **_SOON_COMPACTED}),
    Topic(PLACE_EDIT, 1, {"cleanup.policy": "compact", **_SOON_COMPACTED}),
    # Sessions of MQTT clients, and retained messages that are no fixes or addresses.
    Topic(
        MQTT_STATE,
        1,
        {
            "cleanup.policy": "compact",
            "segment.bytes": str(16 * 1024 * 1024),
            **_SOON_COMPACTED,
        },
    ),
    # Which devices were erased, and when (waylog.history.erasures): whoever writes or reads honours it.
    Topic(ERASURE, 1, {"cleanup.policy": "compact", **_SOON_COMPACTED}),
    Topic(ERROR, 1, kept_for(30)),
    Topic(PERFORMANCE, 1, kept_for(1)),
    Topic(PARAMETER, 1, kept_for(1)),
    Topic(LOG, 1, kept_for(7)),
)

#: The keys of sealed values (docs/decisions/0010); made where values are sealed. A key that is
#: destroyed leaves the files when its segment is compacted, so segments end soon.
VALUE_KEY_TOPIC = Topic(
    VALUE_KEY,
    1,
    {
        "cleanup.policy": "compact",
        "segment.ms": "1000",
        "max.compaction.lag.ms": "10000",
        "min.cleanable.dirty.ratio": "0.01",
    },
)
