"""Groups of the consumer protocol as records of `__consumer_offsets`, in Kafka's formats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from broker_core.coordinator.groups.assignors import Assignment, TopicPartition
from broker_core.coordinator.groups.consumer_member import (
    ClassicMetadata,
    ConsumerMember,
    MemberState,
    Places,
)
from broker_core.coordinator.stored import decode_stored, encode_stored, stored_version
from broker_core.protocol.schema import StoredMessage

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        ConsumerGroupHeartbeatRequestTopicPartition,
        ConsumerGroupHeartbeatResponseTopicPartition,
    )

#: Kinds of records: the version number that their key begins with.
GROUP: Final = 3
MEMBER: Final = 5
TARGET: Final = 6
TARGET_OF_MEMBER: Final = 7
CURRENT: Final = 8
KINDS: Final = frozenset({GROUP, MEMBER, TARGET, TARGET_OF_MEMBER, CURRENT})

_NAMES: Final = {
    GROUP: "ConsumerGroupMetadata",
    MEMBER: "ConsumerGroupMemberMetadata",
    TARGET: "ConsumerGroupTargetAssignmentMetadata",
    TARGET_OF_MEMBER: "ConsumerGroupTargetAssignmentMember",
    CURRENT: "ConsumerGroupCurrentMemberAssignment",
}
_OF_MEMBERS: Final = frozenset({MEMBER, TARGET_OF_MEMBER, CURRENT})

_VALUES: Final = {
    GROUP: """
    epoch int32 0+
""",
    MEMBER: """
    instance_id string 0+ nullable 0+
    rack_id string 0+ nullable 0+
    client_id string 0+
    client_host string 0+
    subscribed_topic_names []string 0+
    subscribed_topic_regex string 0+ nullable 0+
    rebalance_timeout_ms int32 0+ default -1
    server_assignor string 0+ nullable 0+
    classic_member_metadata {} 0+ nullable 0+ tag 0
        session_timeout_ms int32 0+
        supported_protocols [] 0+
            name string 0+
            metadata bytes 0+
""",
    TARGET: """
    assignment_epoch int32 0+
""",
    TARGET_OF_MEMBER: """
    topic_partitions [] 0+
        topic_id uuid 0+
        partitions []int32 0+
""",
    CURRENT: """
    member_epoch int32 0+
    previous_member_epoch int32 0+
    state int8 0+
    assigned_partitions [] 0+
        topic_id uuid 0+
        partitions []int32 0+
    partitions_pending_revocation [] 0+
        topic_id uuid 0+
        partitions []int32 0+
""",
}

_KEY_MESSAGES: Final = {
    kind: StoredMessage(
        name=f"{name}Key",
        versions=(kind, kind),
        flexible_from=None,
        fields="\n    group_id string 0+\n"
        + ("    member_id string 0+\n" if kind in _OF_MEMBERS else ""),
    )
    for kind, name in _NAMES.items()
}
_VALUE_MESSAGES: Final = {
    kind: StoredMessage(name=f"{name}Value", versions=(0, 0), flexible_from=0, fields=_VALUES[kind])
    for kind, name in _NAMES.items()
}

StoredRecord = tuple[bytes, bytes | None]


class StoredGroup(Protocol):
    """The parts of a group that its records hold."""

    group_id: str
    epoch: int
    target_epoch: int
    members: dict[str, ConsumerMember]
    target: Assignment


class ConsumerGroupKey(NamedTuple):
    """The key of a record; `member_id` is empty in records of the whole group."""

    kind: int
    group_id: str
    member_id: str


def encode_key(kind: int, group_id: str, member_id: str = "") -> bytes:
    """Encode a record key."""
    return encode_stored(_KEY_MESSAGES[kind], kind, {"group_id": group_id, "member_id": member_id})


def decode_key(key: bytes) -> ConsumerGroupKey:
    """Decode a key of one of `KINDS`; raises RemoteProtocolError."""
    kind = stored_version(key)
    fields = decode_stored(_KEY_MESSAGES[kind], key)
    return ConsumerGroupKey(kind, fields["group_id"], fields.get("member_id", ""))


def decode_value(kind: int, value: bytes) -> dict[str, Any]:
    """Decode a value; raises RemoteProtocolError."""
    return decode_stored(_VALUE_MESSAGES[kind], value)


def group_places(
    places: Iterable[TopicPartition],
) -> list[ConsumerGroupHeartbeatResponseTopicPartition]:
    """Group partitions by topic, as messages and records list them."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(places):
        topics.setdefault(topic_id, []).append(partition)
    return [{"topic_id": each, "partitions": numbers} for each, numbers in topics.items()]


def read_places(topics: Iterable[ConsumerGroupHeartbeatRequestTopicPartition]) -> Places:
    """Parse what `group_places` returned."""
    return frozenset(
        (each["topic_id"], partition) for each in topics for partition in each["partitions"]
    )


def epoch_record(group_id: str, epoch: int) -> StoredRecord:
    """Return the record of a group's epoch."""
    return encode_key(GROUP, group_id), encode_stored(_VALUE_MESSAGES[GROUP], 0, {"epoch": epoch})


def target_epoch_record(group_id: str, epoch: int) -> StoredRecord:
    """Return the record of the group epoch that the target assignment was computed for."""
    value = encode_stored(_VALUE_MESSAGES[TARGET], 0, {"assignment_epoch": epoch})
    return encode_key(TARGET, group_id), value


def target_record(group_id: str, member_id: str, places: Places) -> StoredRecord:
    """Return the record of a member's target assignment."""
    value = encode_stored(
        _VALUE_MESSAGES[TARGET_OF_MEMBER], 0, {"topic_partitions": group_places(places)}
    )
    return encode_key(TARGET_OF_MEMBER, group_id, member_id), value


def member_record(group_id: str, member: ConsumerMember) -> StoredRecord:
    """Return the record of a member's metadata: its subscription and client."""
    value = encode_stored(
        _VALUE_MESSAGES[MEMBER],
        0,
        {
            "instance_id": member.instance_id,
            "rack_id": member.rack_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "subscribed_topic_names": sorted(member.topic_names),
            "subscribed_topic_regex": member.topic_regex,
            "rebalance_timeout_ms": member.rebalance_timeout_ms,
            "server_assignor": member.assignor,
            "classic_member_metadata": _classic_fields(member.classic),
        },
    )
    return encode_key(MEMBER, group_id, member.member_id), value


def _classic_fields(classic: ClassicMetadata | None) -> Mapping[str, object] | None:
    if classic is None:
        return None
    return {
        "session_timeout_ms": classic.session_timeout_ms,
        "supported_protocols": [
            {"name": name, "metadata": metadata} for name, metadata in classic.protocols
        ],
    }


def _read_classic(fields: dict[str, Any] | None) -> ClassicMetadata | None:
    if fields is None:
        return None
    return ClassicMetadata(
        fields["session_timeout_ms"],
        tuple((each["name"], each["metadata"]) for each in fields["supported_protocols"]),
    )


def current_record(group_id: str, member: ConsumerMember) -> StoredRecord:
    """Return the record of a member's current assignment."""
    value = encode_stored(
        _VALUE_MESSAGES[CURRENT],
        0,
        {
            "member_epoch": member.epoch,
            "previous_member_epoch": member.previous_epoch,
            "state": int(member.state),
            "assigned_partitions": group_places(member.assigned),
            "partitions_pending_revocation": group_places(member.pending_revocation),
        },
    )
    return encode_key(CURRENT, group_id, member.member_id), value


def group_records(group: StoredGroup) -> list[StoredRecord]:
    """Return all records of a group."""
    group_id = group.group_id
    members = group.members.values()
    return [
        *(member_record(group_id, member) for member in members),
        epoch_record(group_id, group.epoch),
        *(target_record(group_id, each, places) for each, places in group.target.items()),
        target_epoch_record(group_id, group.target_epoch),
        *(current_record(group_id, member) for member in members),
    ]


def member_tombstones(group_id: str, member_id: str) -> list[StoredRecord]:
    """Return the tombstones of a member that has left."""
    return [
        (encode_key(kind, group_id, member_id), None)
        for kind in (CURRENT, TARGET_OF_MEMBER, MEMBER)
    ]


def group_tombstones(group_id: str) -> list[StoredRecord]:
    """Return the tombstones of a group that is removed."""
    return [(encode_key(kind, group_id), None) for kind in (TARGET, GROUP)]


def member_with_metadata(member: ConsumerMember, fields: dict[str, Any]) -> ConsumerMember:
    """Return the member with the metadata of a stored record."""
    return replace(
        member,
        instance_id=fields["instance_id"],
        rack_id=fields["rack_id"],
        client_id=fields["client_id"],
        client_host=fields["client_host"],
        topic_names=frozenset(fields["subscribed_topic_names"]),
        topic_regex=fields["subscribed_topic_regex"],
        rebalance_timeout_ms=fields["rebalance_timeout_ms"],
        assignor=fields["server_assignor"],
        classic=_read_classic(fields["classic_member_metadata"]),
    )


def member_with_assignment(member: ConsumerMember, fields: dict[str, Any]) -> ConsumerMember:
    """Return the member with the current assignment of a stored record."""
    return replace(
        member,
        epoch=fields["member_epoch"],
        previous_epoch=fields["previous_member_epoch"],
        state=MemberState(fields["state"]),
        assigned=read_places(fields["assigned_partitions"]),
        pending_revocation=read_places(fields["partitions_pending_revocation"]),
    )
