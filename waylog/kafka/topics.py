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
GEOFENCE = "geofence"
PUSH = "push"
TRIP = "trip"
TRIP_DAY = "trip-day"
HEAT_MAP = "heat-map"
FRIENDSHIP = "friendship"
FORWARDING = "forwarding"
FORWARDING_PROGRESS = "forwarding-progress"
FORWARDING_DEAD_LETTER = "forwarding-dead-letter"

_DAY_MS = 24 * 60 * 60 * 1000

#: A segment is deleted when its newest record is too old; its oldest record is then older by the
#: time during which the segment was written. That is at most this fraction of the retention.
_SEGMENTS_OF_RETENTION = 24
_SEGMENT_MS_MIN = 60_000

#: Records that were replaced or erased leave the files within a day.
SOON_COMPACTED = {"max.compaction.lag.ms": str(_DAY_MS), "segment.ms": str(_DAY_MS)}

#: Few partitions keep batches large, on which the cost of a broker and of a producer depends; four
#: leave room for four resolvers.
KEYED_PARTITIONS = 4


@dataclass(frozen=True)
class Topic:
    """A topic to create if it does not exist yet. `config` has Kafka's property names."""

    name: str
    partitions: int
    config: dict[str, str] = field(default_factory=dict)


def segment_ms(retention_ms: int) -> int:
    """Return the time after which a segment ends, so that `retention.ms` is kept closely."""
    return max(_SEGMENT_MS_MIN, retention_ms // _SEGMENTS_OF_RETENTION)


def kept_for(days: int) -> dict[str, str]:
    """Return the settings of a topic whose records are deleted after some days."""
    retention_ms = days * _DAY_MS
    return {"retention.ms": str(retention_ms), "segment.ms": str(segment_ms(retention_ms))}


# `location`, `address` and `event` have the same key (the device) and the same number of
# partitions: partition n of one holds the same devices as partition n of the others.
#: What users say of their places (waylog.history.place_edits).
PLACE_EDIT_TOPIC = Topic(PLACE_EDIT, 1, {"cleanup.policy": "compact", **SOON_COMPACTED})

TOPICS = (
    Topic(LOCATION, KEYED_PARTITIONS, kept_for(7)),
    Topic(
        ADDRESS,
        KEYED_PARTITIONS,
        {
            "cleanup.policy": "compact,delete",
            "retention.ms": str(30 * _DAY_MS),
            **SOON_COMPACTED,
            # Tombstones of erased devices stay as long as `location` may have their fixes: a view
            # that is built again must not show them.
            "delete.retention.ms": str(8 * _DAY_MS),
            # Compaction works on closed segments: small ones keep it near one record a device.
            "segment.bytes": str(64 * 1024 * 1024),
        },
    ),
    Topic(EVENT, KEYED_PARTITIONS, kept_for(30)),
    # Results of the places job, key = device, and what users say of them, key = device LF place.
    Topic(PLACE, KEYED_PARTITIONS, {"cleanup.policy": "compact", **SOON_COMPACTED}),
    PLACE_EDIT_TOPIC,
    # Sessions of MQTT clients, and retained messages other than fixes and addresses.
    Topic(
        MQTT_STATE,
        1,
        {
            "cleanup.policy": "compact",
            "segment.bytes": str(16 * 1024 * 1024),
            **SOON_COMPACTED,
        },
    ),
    # The erasures of devices (waylog.history.erasures), which all writers and readers honour.
    Topic(ERASURE, 1, {"cleanup.policy": "compact", **SOON_COMPACTED}),
    Topic(ERROR, 1, kept_for(30)),
    # How many addresses were sent to which device (waylog.audit.pushes), key = share of devices.
    Topic(PUSH, KEYED_PARTITIONS, kept_for(8)),
    Topic(PERFORMANCE, 1, kept_for(1)),
    Topic(PARAMETER, 1, kept_for(1)),
    Topic(LOG, 1, kept_for(7)),
)

#: Which dead letters `waylog dead-letters replay` has sent again; created when it first does.
DEAD_LETTER_REPLAY_TOPIC = Topic(
    "dead-letter-replay", 1, {"cleanup.policy": "compact", **SOON_COMPACTED}
)

#: The keys of sealed values (docs/decisions/0006); created where values are sealed. A key that is
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

#: Definitions of geofences (waylog.geofences); created where they are used.
GEOFENCE_TOPIC = Topic(GEOFENCE, 1, {"cleanup.policy": "compact", **SOON_COMPACTED})

#: Trips, key = device LF start, and totals of days, key = device LF date (consumers.streams.trips);
#: created where they are used.
TRIP_TOPICS = tuple(
    Topic(
        name,
        KEYED_PARTITIONS,
        {
            "cleanup.policy": "compact,delete",
            "retention.ms": str(366 * _DAY_MS),
            **SOON_COMPACTED,
        },
    )
    for name in (TRIP, TRIP_DAY)
)

#: Fixes and devices by cell and window (consumers.streams.heat_map); created where it is used.
HEAT_MAP_TOPIC = Topic(
    HEAT_MAP,
    KEYED_PARTITIONS,
    {"cleanup.policy": "compact,delete", "retention.ms": str(7 * _DAY_MS), **SOON_COMPACTED},
)

#: Who may see whose devices, key = user LF friend (consumers.streams.meetings); created where it is
#: used.
FRIENDSHIP_TOPIC = Topic(FRIENDSHIP, 1, {"cleanup.policy": "compact", **SOON_COMPACTED})

#: What users have sent on to servers of their own, key = user LF id, and what administrators have
#: paused of it, key = user LF `pause` LF id; how far each forwarding is, key =
#: user LF id LF partition; fixes that servers will never take, key = device (waylog.forwarding).
#: Created where they are used.
FORWARDING_TOPICS = (
    Topic(FORWARDING, 1, {"cleanup.policy": "compact", **SOON_COMPACTED}),
    Topic(
        FORWARDING_PROGRESS,
        1,
        {
            "cleanup.policy": "compact",
            "segment.bytes": str(16 * 1024 * 1024),
            **SOON_COMPACTED,
        },
    ),
    Topic(FORWARDING_DEAD_LETTER, 1, kept_for(7)),
)
