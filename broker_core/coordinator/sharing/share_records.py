"""The stored records of share groups, in Kafka's formats.

The delivery state of a partition is a record of `__share_group_state`; the group itself and the
partitions that it reads are records of `__consumer_offsets`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from broker_core.coordinator.sharing.share_partition import DONE, DeliveryState, StateBatch
from broker_core.coordinator.stored import decode_stored, encode_stored, stored_version
from broker_core.protocol.schema import StoredMessage

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        ReadShareGroupStateResponseStateBatch,
        WriteShareGroupStateRequestStateBatch,
    )

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


class SharePartitionKey(NamedTuple):
    """One partition in one share group."""

    group_id: str
    topic_id: bytes
    partition: int


class StoredState(NamedTuple):
    """The content of a state record."""

    start_offset: int
    batches: list[StateBatch]
    #: Increases when an administrator sets the offset; states read before may not be written then.
    state_epoch: int = 0
    #: Leader epoch of the partition's leader that has last read or written the state.
    leader_epoch: int = 0

    @property
    def delivery_complete_count(self) -> int:
        """The number of done records behind the start offset."""
        return sum(
            each.last_offset - each.first_offset + 1 for each in self.batches if each.state in DONE
        )


def encode_key(place: SharePartitionKey) -> bytes:
    """Encode a record key."""
    return encode_stored(_KEY, 0, place._asdict())


def decode_key(key: bytes) -> SharePartitionKey | None:
    """Decode a key; None for kinds that are not known here. Raises RemoteProtocolError."""
    if stored_version(key) != 0:
        return None
    return SharePartitionKey(**decode_stored(_KEY, key))


def encode_value(state: StoredState, now_ms: int) -> bytes:
    """Encode a record value; `now_ms` is wall time."""
    return encode_stored(
        _VALUE,
        0,
        {
            "snapshot_epoch": 0,
            "state_epoch": state.state_epoch,
            "leader_epoch": state.leader_epoch,
            "start_offset": state.start_offset,
            "create_timestamp": now_ms,
            "write_timestamp": now_ms,
            "state_batches": batch_fields(state.batches),
        },
    )


def decode_value(value: bytes) -> StoredState:
    """Decode a value; raises RemoteProtocolError."""
    fields = decode_stored(_VALUE, value)
    return StoredState(
        fields["start_offset"],
        batches_of(fields["state_batches"]),
        fields["state_epoch"],
        fields["leader_epoch"],
    )


def batch_fields(batches: Iterable[StateBatch]) -> list[ReadShareGroupStateResponseStateBatch]:
    """Return batches as fields of records and requests."""
    return [
        {
            "first_offset": each.first_offset,
            "last_offset": each.last_offset,
            "delivery_state": each.state,
            "delivery_count": each.delivery_count,
        }
        for each in batches
    ]


def batches_of(
    fields: Iterable[ReadShareGroupStateResponseStateBatch | WriteShareGroupStateRequestStateBatch],
) -> list[StateBatch]:
    """Parse what `batch_fields` returned; raises ValueError for an unknown state."""
    return [
        StateBatch(
            each["first_offset"],
            each["last_offset"],
            DeliveryState(each["delivery_state"]),
            each["delivery_count"],
        )
        for each in fields
    ]


# ------------------------------------------------------------------------- in __consumer_offsets

_METADATA: Final = 11
_PARTITIONS: Final = 15

#: Kinds of keys of `__consumer_offsets` that belong to share groups.
KINDS: Final = frozenset({_METADATA, _PARTITIONS})

_GROUP_KEYS: Final = {
    kind: StoredMessage(
        name=f"ShareGroup{name}Key",
        versions=(kind, kind),
        flexible_from=None,
        fields=f"""
    group_id string {kind}+
""",
    )
    for kind, name in ((_METADATA, "Metadata"), (_PARTITIONS, "StatePartitionMetadata"))
}
_METADATA_VALUE: Final = StoredMessage(
    name="ShareGroupMetadataValue",
    versions=(0, 0),
    flexible_from=0,
    fields="""
    epoch int32 0+
    metadata_hash int64 0+
""",
)
_PARTITIONS_VALUE: Final = StoredMessage(
    name="ShareGroupStatePartitionMetadataValue",
    versions=(0, 0),
    flexible_from=0,
    fields="""
    initializing_topics [] 0+
        topic_id uuid 0+
        topic_name string 0+
        partitions []int32 0+
    initialized_topics [] 0+
        topic_id uuid 0+
        topic_name string 0+
        partitions []int32 0+
    deleting_topics [] 0+
        topic_id uuid 0+
        topic_name string 0+
""",
)


class StoredGroup(NamedTuple):
    """The stored part of a group, which every coordinator of it needs."""

    epoch: int
    places: frozenset[tuple[bytes, int]]  # (topic id, partition) pairs assigned to its members


def group_records(
    group_id: str, group: StoredGroup | None, name_of: Mapping[bytes, str]
) -> list[tuple[bytes, bytes | None]]:
    """Return keys and values that store a group, or tombstones if it is None."""
    keys = {
        kind: encode_stored(message, kind, {"group_id": group_id})
        for kind, message in _GROUP_KEYS.items()
    }
    if group is None:
        return [(key, None) for key in keys.values()]
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(group.places):
        topics.setdefault(topic_id, []).append(partition)
    metadata = encode_stored(_METADATA_VALUE, 0, {"epoch": group.epoch, "metadata_hash": 0})
    partitions = encode_stored(
        _PARTITIONS_VALUE,
        0,
        {
            "initializing_topics": [],
            "initialized_topics": [
                {"topic_id": each, "topic_name": name_of.get(each, ""), "partitions": numbers}
                for each, numbers in topics.items()
            ],
            "deleting_topics": [],
        },
    )
    return [(keys[_METADATA], metadata), (keys[_PARTITIONS], partitions)]


def read_group_record(
    key: bytes, value: bytes | None, known: Mapping[str, StoredGroup]
) -> tuple[str, StoredGroup | None]:
    """Apply one record, of one of KINDS; return the group after it. Raises RemoteProtocolError."""
    kind = stored_version(key)
    group_id: str = decode_stored(_GROUP_KEYS[kind], key)["group_id"]
    if value is None:
        return group_id, None
    before = known.get(group_id, StoredGroup(0, frozenset()))
    if kind == _METADATA:
        return group_id, before._replace(epoch=decode_stored(_METADATA_VALUE, value)["epoch"])
    fields = decode_stored(_PARTITIONS_VALUE, value)
    places = frozenset(
        (topic["topic_id"], partition)
        for name in ("initializing_topics", "initialized_topics")
        for topic in fields[name]
        for partition in topic["partitions"]
    )
    return group_id, before._replace(places=places)
