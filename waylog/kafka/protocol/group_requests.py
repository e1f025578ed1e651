"""Requests of a member of a classic group, whatever the group is for.

The versions are those without tagged fields that Apache Kafka 2.3 to 4.x and broker_core serve:
FindCoordinator 2, JoinGroup 5, SyncGroup 3, Heartbeat 3, LeaveGroup 2. From JoinGroup 4 on a member
is given its id before it joins (KIP-394).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from waylog.kafka.protocol.requests import INT16, INT32, Broker, Reader, text

_GROUP: Final = b"\0"
_NO_TEXT: Final = b"\xff\xff"


class Coordinator(NamedTuple):
    """The response to `find_coordinator`."""

    error: int
    message: str
    broker: Broker


class Joined(NamedTuple):
    """The response to `join_group`; `members` is empty for all but the leader."""

    error: int
    generation: int
    protocol: str
    leader: str
    member_id: str
    members: dict[str, bytes]


class Synced(NamedTuple):
    """The response to `sync_group`."""

    error: int
    assignment: bytes


def find_coordinator(group: str) -> list[bytes]:
    """Ask which broker coordinates a group."""
    return [text(group), _GROUP]


def read_find_coordinator(data: bytes) -> Coordinator:
    """Parse the response; raises MalformedAnswer."""
    reader = Reader(data)
    reader.unpack(INT32)  # throttle time
    (error,) = reader.unpack(INT16)
    message = reader.text()
    reader.unpack(INT32)  # node
    host = reader.text()
    (port,) = reader.unpack(INT32)
    return Coordinator(error, message, Broker(host, port))


def join_group(
    group: str,
    member_id: str,
    protocol_type: str,
    protocols: Sequence[tuple[str, bytes]],
    *,
    session_timeout_ms: int,
    rebalance_timeout_ms: int,
) -> list[bytes]:
    """Join a group with what the member says of itself under each protocol, the best one first."""
    parts = [
        text(group),
        struct.pack(">ii", session_timeout_ms, rebalance_timeout_ms),
        text(member_id),
        _NO_TEXT,  # group instance id
        text(protocol_type),
        INT32.pack(len(protocols)),
    ]
    for name, metadata in protocols:
        parts += [text(name), _sized(metadata)]
    return parts


def read_join_group(data: bytes) -> Joined:
    """Parse the response; raises MalformedAnswer."""
    reader = Reader(data)
    reader.unpack(INT32)  # throttle time
    (error,) = reader.unpack(INT16)
    (generation,) = reader.unpack(INT32)
    protocol, leader, member_id = reader.text(), reader.text(), reader.text()
    members: dict[str, bytes] = {}
    for _ in range(reader.count()):
        member = reader.text()
        reader.text()  # group instance id
        members[member] = reader.sized()
    return Joined(error, generation, protocol, leader, member_id, members)


def sync_group(
    group: str, generation: int, member_id: str, assignments: Mapping[str, bytes]
) -> list[bytes]:
    """Ask for this member's assignment; the leader tells those of all."""
    parts = [*_member(group, generation, member_id), INT32.pack(len(assignments))]
    for member, assignment in assignments.items():
        parts += [text(member), _sized(assignment)]
    return parts


def read_sync_group(data: bytes) -> Synced:
    """Parse the response; raises MalformedAnswer."""
    reader = Reader(data)
    reader.unpack(INT32)  # throttle time
    (error,) = reader.unpack(INT16)
    return Synced(error, reader.sized())


def heartbeat(group: str, generation: int, member_id: str) -> list[bytes]:
    """Say that a member is there."""
    return list(_member(group, generation, member_id))


def leave_group(group: str, member_id: str) -> list[bytes]:
    """Leave a group."""
    return [text(group), text(member_id)]


def read_error(data: bytes) -> int:
    """Parse the response to `heartbeat` or `leave_group`; raises MalformedAnswer."""
    reader = Reader(data)
    reader.unpack(INT32)  # throttle time
    (error,) = reader.unpack(INT16)
    return error


def _member(group: str, generation: int, member_id: str) -> Iterable[bytes]:
    # The last is the group instance id.
    return text(group), INT32.pack(generation), text(member_id), _NO_TEXT


def _sized(data: bytes) -> bytes:
    return INT32.pack(len(data)) + data
