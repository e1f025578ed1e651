"""Entries of the metadata log, replica keys, and snapshots."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

import msgspec


class ReplicaKey(NamedTuple):
    """A replica: a node together with its disk (KIP-853).

    A node that comes back with an empty disk is a different replica. The old one's votes are lost,
    and a replica that has lost its votes must not vote again.
    """

    node_id: int
    directory_id: str


Voters = frozenset[ReplicaKey]


class EntryKind(enum.IntEnum):
    """Kafka's types of control records; DATA is written by the controller."""

    DATA = -1
    LEADER_CHANGE = 2
    VOTERS = 6


class Entry(NamedTuple):
    """One entry of the log; its offset is its position in the log."""

    epoch: int
    kind: EntryKind
    value: bytes


class EpochEnd(NamedTuple):
    """An epoch and the offset after its last entry."""

    epoch: int
    end_offset: int


class Snapshot(NamedTuple):
    """The state that results from all entries before `end_offset`, and replaces them (KIP-630)."""

    end_offset: int
    epoch: int  # of the entry before end_offset
    voters: Voters
    data: bytes

    @property
    def id(self) -> EpochEnd:
        """The epoch and end offset, which identify the snapshot."""
        return EpochEnd(self.epoch, self.end_offset)


_decode_voters = msgspec.json.Decoder(list[ReplicaKey]).decode


def encode_voters(voters: Iterable[ReplicaKey]) -> bytes:
    """Encode the value of an entry of kind VOTERS."""
    return msgspec.json.encode(sorted(voters))


def decode_voters(value: bytes) -> Voters:
    """Decode the voters from such a value; raises msgspec.DecodeError."""
    return frozenset(_decode_voters(value))
