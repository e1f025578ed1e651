"""Committed offsets and group metadata as records of the topic `__consumer_offsets`.

Keys and values have Kafka's formats (OffsetCommitKey, OffsetCommitValue, GroupMetadataKey,
GroupMetadataValue), so that Kafka and this broker can read each other's logs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from broker_core.coordinator.stored import decode_stored, encode_stored, stored_version
from broker_core.errors import NONE
from broker_core.protocol.schema import StoredMessage

OFFSETS_TOPIC: Final = "__consumer_offsets"

_OFFSET_KEY_VERSIONS: Final = (0, 1)
_GROUP_KEY_VERSION: Final = 2

_OFFSET_COMMIT_KEY = StoredMessage(
    name="OffsetCommitKey",
    versions=(0, 1),
    flexible_from=None,
    fields="""
    group string 0+
    topic string 0+
    partition int32 0+
""",
)

_OFFSET_COMMIT_VALUE = StoredMessage(
    name="OffsetCommitValue",
    versions=(0, 4),
    flexible_from=4,
    fields="""
    offset int64 0+
    leader_epoch int32 3+ default -1
    metadata string 0+
    commit_timestamp int64 0+
    expire_timestamp int64 1 default -1
    topic_id uuid 4+ tag 0
""",
)

_GROUP_METADATA_KEY = StoredMessage(
    name="GroupMetadataKey",
    versions=(2, 2),
    flexible_from=None,
    fields="""
    group string 2
""",
)

_GROUP_METADATA_VALUE = StoredMessage(
    name="GroupMetadataValue",
    versions=(0, 4),
    flexible_from=4,
    fields="""
    protocol_type string 0+
    generation int32 0+
    protocol string 0+ nullable 0+
    leader string 0+ nullable 0+
    current_state_timestamp int64 2+ default -1
    members [] 0+
        member_id string 0+
        group_instance_id string 3+ nullable 3+ default null
        client_id string 0+
        client_host string 0+
        rebalance_timeout int32 1+
        session_timeout int32 0+
        subscription bytes 0+
        assignment bytes 0+
""",
)

#: Version 3 of both is written by Apache Kafka 2.3 to 3.x and read by every version.
_VALUE_VERSION: Final = 3


class CommittedOffset(NamedTuple):
    """A committed offset of one partition. `commit_timestamp` is in ms since 1970."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int


class OffsetToCommit(NamedTuple):
    """One partition of an OffsetCommit request; `error` is set if it was refused before."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    error: int = NONE


class OffsetKey(NamedTuple):
    """The key of a committed offset."""

    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """The key of a group's metadata."""

    group_id: str


def encode_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """Encode the record key of a committed offset."""
    return encode_stored(
        _OFFSET_COMMIT_KEY, 1, {"group": group_id, "topic": topic, "partition": partition}
    )


def encode_offset_value(committed: CommittedOffset) -> bytes:
    """Encode the record value of a committed offset."""
    return encode_stored(_OFFSET_COMMIT_VALUE, _VALUE_VERSION, committed._asdict())


def decode_offset_value(value: bytes) -> CommittedOffset:
    """Decode a committed offset; raises RemoteProtocolError."""
    fields = decode_stored(_OFFSET_COMMIT_VALUE, value)
    return CommittedOffset(
        fields["offset"],
        fields["leader_epoch"],
        fields["metadata"],
        fields["commit_timestamp"],
    )


def encode_group_key(group_id: str) -> bytes:
    """Encode the record key of a group's metadata."""
    return encode_stored(_GROUP_METADATA_KEY, _GROUP_KEY_VERSION, {"group": group_id})


def encode_group_value(fields: Mapping[str, object]) -> bytes:
    """Encode the record value of a group's metadata."""
    return encode_stored(_GROUP_METADATA_VALUE, _VALUE_VERSION, fields)


def decode_group_value(value: bytes) -> dict[str, Any]:
    """Decode a group's metadata; raises RemoteProtocolError."""
    return decode_stored(_GROUP_METADATA_VALUE, value)


def decode_key(key: bytes) -> OffsetKey | GroupKey | None:
    """Decode a record key; None for other kinds (consumer protocol, share groups)."""
    version = stored_version(key)
    if version in _OFFSET_KEY_VERSIONS:
        fields = decode_stored(_OFFSET_COMMIT_KEY, key)
        return OffsetKey(fields["group"], fields["topic"], fields["partition"])
    if version == _GROUP_KEY_VERSION:
        return GroupKey(decode_stored(_GROUP_METADATA_KEY, key)["group"])
    return None
