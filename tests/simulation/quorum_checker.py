"""Invariants of a quorum at every moment; unlike a replica, the checker sees everything."""

from __future__ import annotations

import hashlib

from broker_core.quorum.entries import Entry, ReplicaKey
from broker_core.quorum.replica import QuorumReplica


class Violation(AssertionError):
    """A guarantee of the quorum does not hold."""


def digest_of(before: bytes, entry: Entry) -> bytes:
    """Return the state of the simulated controller: a chain of digests over all entries."""
    return hashlib.blake2b(before + repr(entry).encode(), digest_size=8).digest()


class Checker:
    """Compares the committed entries of all replicas, and checks each epoch's leader."""

    def __init__(self) -> None:
        self.committed: list[Entry] = []
        self.states: list[bytes] = [b""]  # the state after each number of entries
        self.acknowledged: dict[int, bytes] = {}
        self.elections = 0
        self._leaders: dict[int, ReplicaKey] = {}

    def observe(self, replica: QuorumReplica, known: int) -> int:
        """Check a replica after an event; return its high watermark, which was `known` before."""
        if replica.is_leader:
            self._one_leader_with_everything(replica)
        offset = replica.high_watermark or 0
        if offset < known:
            raise Violation(f"{replica.key}: the high watermark went from {known} to {offset}")
        if offset > known:
            self._same_entries(replica, known, offset)
        return offset

    def _one_leader_with_everything(self, replica: QuorumReplica) -> None:
        leader = self._leaders.setdefault(replica.epoch, replica.key)
        if leader != replica.key:
            raise Violation(f"{leader} and {replica.key} both lead epoch {replica.epoch}")
        if replica.epoch < max(self._leaders):
            return
        if self.elections < len(self._leaders):
            self.elections = len(self._leaders)
            missing = len(self.committed) - replica.log.end_offset
            if missing > 0:
                raise Violation(f"{replica.key} leads without {missing} committed entries")

    def _same_entries(self, replica: QuorumReplica, known: int, offset: int) -> None:
        log = replica.log
        if log.end_offset < offset:
            raise Violation(f"{replica.key} calls committed what it does not have")
        first = max(known, log.start_offset)
        for number, entry in enumerate(log.read(first, offset - first), first):
            if number < len(self.committed):
                if self.committed[number] != entry:
                    raise Violation(
                        f"{replica.key}: offset {number} is {entry}, not {self.committed[number]}"
                    )
            elif number == len(self.committed):
                self.committed.append(entry)
                self.states.append(self.state_after(number, entry))
            else:
                raise Violation(f"{replica.key}: offset {number} is committed before others")

    def state_after(self, offset: int, entry: Entry) -> bytes:
        """Return the state after one more entry, which a snapshot there has to hold."""
        return digest_of(self.states[-1], entry)

    def snapshot_is(self, end_offset: int, data: bytes) -> None:
        """Check a snapshot that a replica has installed."""
        if end_offset >= len(self.states) or self.states[end_offset] != data:
            raise Violation(f"the snapshot at {end_offset} is not what the entries make")

    def acknowledge(self, offset: int, value: bytes) -> None:
        """Note a value that was acknowledged to a client as committed at an offset."""
        if self.acknowledged.setdefault(offset, value) != value:
            raise Violation(f"offset {offset} was acknowledged for two values")

    def finish(self, replicas: list[QuorumReplica]) -> None:
        """Check the end, after all faults have ended and everything has been replicated."""
        for offset, value in self.acknowledged.items():
            if offset >= len(self.committed) or self.committed[offset].value != value:
                raise Violation(f"the acknowledged value at offset {offset} is lost")
        for replica in replicas:
            if replica.high_watermark != len(self.committed):
                raise Violation(
                    f"{replica.key} knows {replica.high_watermark} of {len(self.committed)} entries"
                )
