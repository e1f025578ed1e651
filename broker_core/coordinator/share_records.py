"""What a share group has of a partition as a record of `__share_group_state`, in Kafka's format."""

from __future__ import annotations

from typing import Final, NamedTuple

from broker_core.coordinator.share_partition import DeliveryState, SharePartition, StateBatch
from broker_core.coordinator.stored import decode_stored, encode_stored, stored_version
from broker_core.protocol.schema import StoredMessage

STATE_TOPIC: Final = "__share_group_state"

_KEY: Final = StoredMessage(
    name="ShareSnapshotKey",
    versions=(0, 0),
    flexible_from=None,
    fields="""
    group_id string 0+
    topic_id uuid 0+
    partition int32 0+
""",
)
_VALUE: Final = StoredMessage(
    name="ShareSnapshotValue",
    versions=(0, 0),
    flexible_from=0,
    fields="""
    snapshot_epoch int32 0+
    state_epoch int32 0+
    leader_epoch int32 0+
    start_offset int64 0+
    delivery_complete_count int32 0+ tag 0 default -1
    create_timestamp int64 0+
    write_timestamp int64 0+
    state_batches [] 0+
        first_offset int64 0+
        last_offset int64 0+
        delivery_state int8 0+
        delivery_count int16 0+
""",
)


class SharePlace(NamedTuple):
    """One partition for one group."""

    group_id: str
    topic_id: bytes
    partition: int


class StoredState(NamedTuple):
    """What a record says."""

    start_offset: int
    batches: list[StateBatch]


def encode_key(place: SharePlace) -> bytes:
    """A record key."""
    return encode_stored(_KEY, 0, place._asdict())


def decode_key(key: bytes) -> SharePlace | None:
    """Read a key; None for kinds that this version does not know. Raises RemoteProtocolError."""
    if stored_version(key) != 0:
        return None
    return SharePlace(**decode_stored(_KEY, key))


def encode_value(share: SharePartition, now_ms: int) -> bytes:
    """A record value; `now_ms` is wall time."""
    return encode_stored(
        _VALUE,
        0,
        {
            "snapshot_epoch": 0,
            "state_epoch": 0,
            "leader_epoch": 0,
            "start_offset": share.start_offset,
            "create_timestamp": now_ms,
            "write_timestamp": now_ms,
            "state_batches": [
                {
                    "first_offset": each.first_offset,
                    "last_offset": each.last_offset,
                    "delivery_state": each.state,
                    "delivery_count": each.delivery_count,
                }
                for each in share.batches()
            ],
        },
    )


def decode_value(value: bytes) -> StoredState:
    """Read a value; raises RemoteProtocolError."""
    fields = decode_stored(_VALUE, value)
    return StoredState(
        fields["start_offset"],
        [
            StateBatch(
                each["first_offset"],
                each["last_offset"],
                DeliveryState(each["delivery_state"]),
                each["delivery_count"],
            )
            for each in fields["state_batches"]
        ],
    )
