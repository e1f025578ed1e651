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

_DAY_MS = 24 * 60 * 60 * 1000

#: Few partitions keep batches large, which is what the cost of a broker and of a producer depends
#: on; four leave room for four resolvers.
KEYED_PARTITIONS = 4


@dataclass(frozen=True)
class Topic:
    """A topic as it is created when it does not exist yet. `config` has Kafka's property names."""

    name: str
    partitions: int
    config: dict[str, str] = field(default_factory=dict)


# `location`, `address` and `event` have the same key (the device) and the same number of
# partitions: partition n of one holds the same devices as partition n of the others.
TOPICS = (
    Topic(LOCATION, KEYED_PARTITIONS, {"retention.ms": str(7 * _DAY_MS)}),
    Topic(
        ADDRESS,
        KEYED_PARTITIONS,
        {
            "cleanup.policy": "compact,delete",
            "retention.ms": str(30 * _DAY_MS),
            # Of a device that was erased, as long as `location` may have its fixes: a view that
            # is built again must not show them.
            "delete.retention.ms": str(8 * _DAY_MS),
            # Compaction works on closed segments: small ones keep it near one record a device.
            "segment.bytes": str(64 * 1024 * 1024),
        },
    ),
    Topic(EVENT, KEYED_PARTITIONS, {"retention.ms": str(30 * _DAY_MS)}),
    # What the places job found, key = device, and what users say of it, key = device LF place.
    Topic(PLACE, KEYED_PARTITIONS, {"cleanup.policy": "compact"}),
    Topic(PLACE_EDIT, 1, {"cleanup.policy": "compact"}),
    # Sessions of MQTT clients, and retained messages that are no fixes or addresses.
    Topic(MQTT_STATE, 1, {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024)}),
    Topic(ERROR, 1, {"retention.ms": str(30 * _DAY_MS)}),
    Topic(PERFORMANCE, 1, {"retention.ms": str(1 * _DAY_MS)}),
    Topic(PARAMETER, 1, {"retention.ms": str(1 * _DAY_MS)}),
    Topic(LOG, 1, {"retention.ms": str(7 * _DAY_MS)}),
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
