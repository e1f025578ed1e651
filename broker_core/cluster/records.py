"""The records of the metadata log, one class for each kind, after Kafka's metadata records.

An entry of the log holds a few records that take effect together or not at all. They are encoded as
MessagePack arrays whose first element is the number of the kind. Fields are only ever added, at the
end and with a default, so that older entries stay readable.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

#: In a PartitionChange: the leader and its epoch stay as they are.
LEADER_STAYS: Final = -2
#: The leader of a partition that has none.
NO_LEADER: Final = -1


class ListenerAddress(msgspec.Struct, frozen=True, array_like=True):
    """A broker's address for clients of one listener; `protocol` is PLAINTEXT, SSL, ..."""

    name: str
    host: str
    port: int
    protocol: str


class ClusterRecord(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The id of the cluster; the first record of a new metadata log."""

    cluster_id: str


class RegisterBroker(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A broker process has started. It is fenced until it has caught up with the metadata log.

    The broker epoch is the offset of the entry, so it grows with each registration. Records in a
    snapshot have no offset and contain the epoch.
    """

    broker_id: int
    incarnation_id: bytes
    listeners: tuple[ListenerAddress, ...]
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    epoch: int | None = None


class BrokerRegistrationChange(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A broker was fenced, unfenced or is about to shut down; None is no change."""

    broker_id: int
    broker_epoch: int
    fenced: bool | None = None
    in_controlled_shutdown: bool | None = None


class UnregisterBroker(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A broker was removed for good."""

    broker_id: int


class TopicRecord(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """A topic was created; its partitions follow in the same entry."""

    name: str
    topic_id: bytes


class PartitionRecord(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """A partition was created."""

    topic_id: bytes
    index: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    leader_epoch: int = 0
    partition_epoch: int = 0
    recovering: bool = False
    elr: tuple[int, ...] = ()


class PartitionChange(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """A partition changed: None and LEADER_STAYS mean no change.

    The partition epoch increases by one; so does the leader epoch, unless the leader stays.
    """

    topic_id: bytes
    index: int
    isr: tuple[int, ...] | None = None
    leader: int = LEADER_STAYS
    replicas: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    recovering: bool | None = None
    elr: tuple[int, ...] | None = None


class RemoveTopic(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """A topic was deleted, with its partitions and settings."""

    topic_id: bytes


class ConfigRecord(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """A setting of a topic or broker was set or, with None, removed; "" means all brokers."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None


class ProducerIds(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """All producer ids before `next_id` have been assigned to brokers."""

    broker_id: int
    broker_epoch: int
    next_id: int


class AccessControlEntry(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """An ACL of the authorizer was added or removed; the numbers are Kafka's."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int
    removed: bool = False


class UserScramCredential(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """The data that a user's password is verified with."""

    user: str
    mechanism: str
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class RemoveUserScramCredential(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """A user's credential was removed."""

    user: str
    mechanism: str


class ClientQuota(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """A quota was set or, with None, removed. An entity is sorted (type, name) pairs."""

    entity: tuple[tuple[str, str | None], ...]
    key: str
    value: float | None


MetadataRecord = (
    ClusterRecord
    | RegisterBroker
    | BrokerRegistrationChange
    | UnregisterBroker
    | TopicRecord
    | PartitionRecord
    | PartitionChange
    | RemoveTopic
    | ConfigRecord
    | ProducerIds
    | AccessControlEntry
    | UserScramCredential
    | RemoveUserScramCredential
    | ClientQuota
)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[MetadataRecord]).decode


def encode_records(records: Iterable[MetadataRecord]) -> bytes:
    """Encode the value of an entry."""
    return _encode(list(records))


def decode_records(value: bytes) -> list[MetadataRecord]:
    """Decode the records of an entry; raises msgspec.DecodeError or msgspec.ValidationError."""
    return _decode(value)
