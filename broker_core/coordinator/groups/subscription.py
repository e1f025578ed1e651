"""Subscriptions and assignments that members of classic consumer groups send each other.

They are opaque to the coordinator of a classic group. This module decodes and encodes what
consumers put there (ConsumerProtocolSubscription, ConsumerProtocolAssignment), for administrators'
requests and for groups with members of both protocols (KIP-848).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from broker_core.coordinator.groups.assignors import TopicPartition
from broker_core.coordinator.groups.topic_view import TopicView
from broker_core.coordinator.stored import stored_version
from broker_core.protocol.decoder import decode
from broker_core.protocol.encoder import encode
from broker_core.protocol.errors import RemoteProtocolError
from broker_core.protocol.schema import StoredMessage

#: The protocol type of members with this metadata.
CONSUMER: Final = "consumer"

_VERSIONS: Final = (0, 3)
_VERSION_BYTES: Final = 2

_SUBSCRIPTION: Final = StoredMessage(
    name="ConsumerProtocolSubscription",
    versions=_VERSIONS,
    flexible_from=None,
    fields="""
    topics []string 0+
    user_data bytes 0+ nullable 0+ default null
    owned_partitions [] 1+
        topic string 1+
        partitions []int32 1+
    generation_id int32 2+ default -1
    rack_id string 3+ nullable 3+ default null
""",
)

_ASSIGNMENT: Final = StoredMessage(
    name="ConsumerProtocolAssignment",
    versions=_VERSIONS,
    flexible_from=None,
    fields="""
    assigned_partitions [] 0+
        topic string 0+
        partitions []int32 0+
    user_data bytes 0+ nullable 0+ default null
""",
)


class Subscription(NamedTuple):
    """The topics that a member subscribes to, and the partitions that it still owns."""

    topics: frozenset[str]
    owned: frozenset[tuple[str, int]]
    rack_id: str | None


def _decode(message: StoredMessage, data: bytes) -> dict[str, Any]:
    if len(data) < _VERSION_BYTES or stored_version(data) < 0:
        raise RemoteProtocolError(f"{message.name} without a version")
    # Later versions only add fields at the end.
    version = min(stored_version(data), _VERSIONS[1])
    fields: dict[str, Any] = decode(message.plan(version), data, _VERSION_BYTES)[0]
    return fields


def decode_subscription(metadata: bytes) -> Subscription:
    """Decode a member's metadata; raises RemoteProtocolError."""
    fields = _decode(_SUBSCRIPTION, metadata)
    return Subscription(
        frozenset(fields["topics"]),
        frozenset(
            (each["topic"], partition)
            for each in fields["owned_partitions"]
            for partition in each["partitions"]
        ),
        fields["rack_id"],
    )


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the subscribed topics, or None if the metadata has another format."""
    try:
        return decode_subscription(metadata).topics
    except RemoteProtocolError:
        return None


class CustomUserData(ValueError):
    """An assignment has user data of a custom assignor."""


def decode_assignment(assignment: bytes, topics: TopicView) -> frozenset[TopicPartition]:
    """Decode a member's assignment, without partitions of deleted topics.

    Raises RemoteProtocolError, and CustomUserData if user data would be lost.
    """
    if not assignment:
        return frozenset()
    fields = _decode(_ASSIGNMENT, assignment)
    if fields["user_data"]:
        raise CustomUserData("userData from a custom assignor would be lost")
    return with_ids(
        (
            (each["topic"], partition)
            for each in fields["assigned_partitions"]
            for partition in each["partitions"]
        ),
        topics,
    )


def with_ids(places: Iterable[tuple[str, int]], topics: TopicView) -> frozenset[TopicPartition]:
    """Return the partitions by topic id, without those of deleted topics."""
    return frozenset(
        (found[0], partition)
        for name, partition in places
        if (found := topics.find(name)) is not None
    )


def encode_assignment(
    places: Iterable[TopicPartition], metadata: bytes, topics: TopicView
) -> bytes:
    """Encode a member's assignment, in the version of its own metadata."""
    version = max(min(stored_version(metadata), _VERSIONS[1]), 0)
    by_name: dict[str, list[int]] = {}
    for topic_id, partition in sorted(places):
        name = topics.name_of(topic_id)
        if name is not None:
            by_name.setdefault(name, []).append(partition)
    fields = {
        "assigned_partitions": [
            {"topic": name, "partitions": numbers} for name, numbers in by_name.items()
        ],
        "user_data": None,
    }
    return version.to_bytes(_VERSION_BYTES, "big") + encode(_ASSIGNMENT.plan(version), fields)
