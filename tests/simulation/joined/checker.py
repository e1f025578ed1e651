"""Invariants of the whole platform as clients see it; records what was acknowledged to whom."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from broker_core.server.runtime import Broker

Place = tuple[str, int]
NO_VALUE = b"(marker)"


class Violation(AssertionError):
    """A guarantee does not hold."""


@dataclass
class Transaction:
    """A client's knowledge of one of its transactions."""

    name: str
    life: int  # the number of the producer among those with the same transactional id
    values: dict[bytes, Place] = field(default_factory=dict)
    #: "committed" and "aborted" were acknowledged; "unknown" has got no answer.
    outcome: str = "open"
    #: The offset that it commits for a group.
    offset: int | None = None


@dataclass
class _Committed:
    """A group's committed offset of one partition."""

    acknowledged: int = -1
    epoch: int = -1  # the generation or member epoch for which it was acknowledged
    member: str = ""
    #: Offsets whose commit was never answered: each may take effect at any time.
    uncertain: set[int] = field(default_factory=set)


class Checker:
    """Checks the guarantees; see the module."""

    def __init__(self) -> None:
        #: The value at every offset, as the first reader saw it.
        self.contents: dict[Place, dict[int, bytes]] = {}
        self.acknowledged: dict[Place, dict[bytes, int]] = {}
        self.transactions: list[Transaction] = []
        #: The values that readers of committed transactions have seen.
        self.visible: dict[Place, dict[bytes, int]] = {}
        self._values: dict[Place, dict[bytes, int]] = {}
        self._committed: dict[tuple[str, Place], _Committed] = {}
        self._producer_ids: set[int] = set()
        self._lives: dict[str, int] = {}
        self._copied = 0
        self._shared: dict[tuple[str, Place], set[int]] = {}
        # By record: the leader epoch in which it was accepted, and when that was confirmed.
        self._accepted: dict[tuple[str, Place], dict[int, tuple[int, float]]] = {}

    # -------------------------------------------------------------------------------------- records

    def given_producer_id(self, producer_id: int) -> None:
        """Check that a producer id without a transactional id was not given out before."""
        if producer_id in self._producer_ids:
            raise Violation(f"producer id {producer_id} is given twice")
        self._producer_ids.add(producer_id)

    def fence(self, transactional_id: str) -> int:
        """Note that a transactional id was taken over; return the number of this producer."""
        self._lives[transactional_id] = self._lives.get(transactional_id, 0) + 1
        return self._lives[transactional_id]

    def is_fenced(self, transactional_id: str, life: int) -> bool:
        """Return whether a later producer has taken over the transactional id."""
        return life < self._lives[transactional_id]

    def next_copied(self) -> int:
        """Return an offset that no transaction has committed yet."""
        self._copied += 1
        return self._copied

    def acknowledge(self, place: Place, values: Sequence[bytes], base_offset: int) -> None:
        """Note records whose commit was acknowledged to a producer."""
        known = self.acknowledged.setdefault(place, {})
        for offset, value in enumerate(values, base_offset):
            if known.setdefault(value, offset) != offset:
                raise Violation(f"{value!r} is acknowledged at {known[value]} and {offset}")

    def read(self, place: Place, offset: int, value: bytes) -> None:
        """Check a record that was read: all readers see the same, and each value only once."""
        contents = self.contents.setdefault(place, {})
        if contents.setdefault(offset, value) != value:
            raise Violation(
                f"{place} offset {offset} was {contents[offset]!r} before and is {value!r} now"
            )
        if value == NO_VALUE:
            return
        values = self._values.setdefault(place, {})
        if values.setdefault(value, offset) != offset:
            raise Violation(f"{place}: {value!r} is there twice, at {values[value]} and {offset}")

    def read_committed(self, place: Place, offset: int, value: bytes) -> None:
        """Check a record that was read with isolation level read_committed."""
        self.read(place, offset, value)
        self.visible.setdefault(place, {})[value] = offset

    # --------------------------------------------------------------------------------------- groups

    def _group(self, group: str, place: Place) -> _Committed:
        return self._committed.setdefault((group, place), _Committed())

    def commit_begins(self, group: str, place: Place, epoch: int, member: str) -> bool:
        """Note a commit that is sent; return whether a newer member has taken the partition over.

        Such a commit has to be refused.
        """
        known = self._group(group, place)
        return known.epoch > epoch and known.member != member

    def commit_ends(
        self, group: str, place: Place, offset: int, epoch: int, member: str, *, is_zombie: bool
    ) -> None:
        """Check a commit that was acknowledged."""
        known = self._group(group, place)
        if is_zombie:
            raise Violation(
                f"{group} {place}: {member} of epoch {epoch} commits {offset} after {known.member} "
                f"has in epoch {known.epoch}"
            )
        if epoch >= known.epoch:
            known.epoch, known.member = epoch, member
        known.acknowledged = max(known.acknowledged, offset)

    def commit_is_unknown(self, group: str, place: Place, offset: int) -> None:
        """Note a commit that has got no answer."""
        self._group(group, place).uncertain.add(offset)

    def promised(self, group: str, place: Place) -> int:
        """Return the offset below which a group cannot fall any more."""
        return self._group(group, place).acknowledged

    def fetched(self, group: str, place: Place, promised: int, offset: int) -> None:
        """Check a committed offset that was read; `promised` is that from before the request."""
        known = self._group(group, place)
        if offset < promised and offset not in known.uncertain:
            raise Violation(f"{group} {place}: {promised} was committed, {offset} is read")
        known.acknowledged = max(known.acknowledged, offset)  # it took effect, answered or not

    # --------------------------------------------------------------------------------- share groups

    def shared(self, group: str, place: Place, offset: int, epoch: int, asked: float) -> None:
        """Check a record that a leader has delivered in this epoch to a request sent at `asked`."""
        self._shared.setdefault((group, place), set()).add(offset)
        accepted = self._accepted.get((group, place), {}).get(offset)
        # A former leader may not know what was acknowledged to the next one.
        if accepted is not None and epoch >= accepted[0] and asked > accepted[1]:
            raise Violation(
                f"{group} {place}: {offset}, accepted at {accepted[1]:.4f} in epoch "
                f"{accepted[0]}, is given again in epoch {epoch}"
            )

    def accepted(
        self, group: str, place: Place, offsets: Sequence[int], epoch: int, now: float
    ) -> None:
        """Note that a member's acknowledgement of records was confirmed."""
        known = self._accepted.setdefault((group, place), {})
        for offset in offsets:
            known.setdefault(offset, (epoch, now))

    def not_shared(self, group: str) -> list[tuple[Place, int]]:
        """Return acknowledged records that no member of a group has got."""
        return [
            (place, offset)
            for place, promised in self.acknowledged.items()
            for offset in sorted(promised.values())
            if offset not in self._shared.get((group, place), ())
        ]

    # ------------------------------------------------------------------------------------------ end

    def finish(self, ends: dict[Place, int]) -> None:
        """Check the end, after all faults; readers have read everything up to `ends`."""
        for place, promised in self.acknowledged.items():
            contents = self.contents.get(place, {})
            for value, offset in promised.items():
                if contents.get(offset) != value:
                    raise Violation(
                        f"{place}: {value!r} was acknowledged at {offset}, "
                        f"where {contents.get(offset)!r} is"
                    )
        for place, end in ends.items():
            missing = set(range(end)) - set(self.contents.get(place, {}))
            if missing:
                raise Violation(f"{place}: nobody has read {sorted(missing)[:5]} of {end}")
        for transaction in self.transactions:
            self._check(transaction)

    def _check(self, transaction: Transaction) -> None:
        values = transaction.values
        seen = [each for each in values if each in self.visible.get(values[each], {})]
        if transaction.outcome == "committed" and len(seen) < len(values):
            raise Violation(f"{transaction.name} is committed, {len(seen)} of {len(values)} seen")
        if transaction.outcome == "aborted" and seen:
            raise Violation(f"{transaction.name} is aborted, and {seen} are seen")
        if seen and len(seen) < len(values):
            raise Violation(f"{transaction.name}: {len(seen)} of {len(values)} are seen: torn")

    def check_copied(self, offset: int) -> None:
        """Check the committed offset of a group: it must be that of the last transaction."""
        allowed = {-1}
        for each in sorted(self.transactions, key=lambda each: each.life):
            if each.offset is None:
                continue
            if each.outcome == "committed":
                allowed = {each.offset}
            elif each.outcome == "unknown":
                allowed.add(each.offset)
        if offset not in allowed:
            raise Violation(f"the transactions' group has offset {offset}, not of {allowed}")


def compare_logs(brokers: Iterable[Broker]) -> None:
    """Check that all replicas of a partition hold the same bytes."""
    logs: dict[Place, tuple[int, bytes]] = {}
    for broker in brokers:
        for partition in broker.topics.partitions():
            log = partition.log
            data = b""
            offset = log.log_start_offset
            while offset < log.log_end_offset:
                piece = log.read(offset, 1_000_000)
                if not piece:
                    raise Violation(f"{partition} at broker {broker.node_id} cannot be read")
                data += piece
                offset = _end(piece)
            known = logs.setdefault(partition.place, (broker.node_id, data))
            if known[1] != data:
                raise Violation(
                    f"{partition}: the logs of broker {known[0]} and {broker.node_id} differ"
                )


def _end(data: bytes) -> int:
    from broker_core.protocol.stored_batches import scan_batches

    return scan_batches(data)[0][-1].next_offset
