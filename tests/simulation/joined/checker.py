"""What must hold of the whole platform, as clients see it; remembers what was promised to whom."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from broker_core.server.runtime import Broker

Place = tuple[str, int]
NO_VALUE = b"(marker)"


class Violation(AssertionError):
    """A promise does not hold."""


@dataclass
class Transaction:
    """What a client knows of one of its transactions."""

    name: str
    life: int  # of the producers with the same transactional id
    values: dict[bytes, Place] = field(default_factory=dict)
    #: "committed" and "aborted" were acknowledged, "unknown" has no answer.
    outcome: str = "open"
    #: What it commits for a group.
    offset: int | None = None


@dataclass
class _Committed:
    """A group's offset of one partition."""

    acknowledged: int = -1
    epoch: int = -1  # the generation or member epoch that it was acknowledged for
    member: str = ""
    #: Asked for and never answered: may come to hold at any time.
    uncertain: set[int] = field(default_factory=set)


class Checker:
    """See the module."""

    def __init__(self) -> None:
        #: What every offset holds, as the first who read it saw it.
        self.contents: dict[Place, dict[int, bytes]] = {}
        self.acknowledged: dict[Place, dict[bytes, int]] = {}
        self.transactions: list[Transaction] = []
        #: What readers of committed transactions have seen.
        self.visible: dict[Place, dict[bytes, int]] = {}
        self._values: dict[Place, dict[bytes, int]] = {}
        self._committed: dict[tuple[str, Place], _Committed] = {}
        self._producer_ids: set[int] = set()
        self._lives: dict[str, int] = {}
        self._copied = 0
        self._shared: dict[tuple[str, Place], set[int]] = {}
        # When a group's answer was acknowledged, and in which leader epoch the record was given.
        self._accepted: dict[tuple[str, Place], dict[int, tuple[int, float]]] = {}

    # -------------------------------------------------------------------------------------- records

    def given_producer_id(self, producer_id: int) -> None:
        """A producer without a transactional id was given an id that nobody else has."""
        if producer_id in self._producer_ids:
            raise Violation(f"producer id {producer_id} is given twice")
        self._producer_ids.add(producer_id)

    def fence(self, transactional_id: str) -> int:
        """A transactional id has been taken over; the number of this life."""
        self._lives[transactional_id] = self._lives.get(transactional_id, 0) + 1
        return self._lives[transactional_id]

    def is_fenced(self, transactional_id: str, life: int) -> bool:
        """Whether somebody has taken over."""
        return life < self._lives[transactional_id]

    def next_copied(self) -> int:
        """An offset that no transaction has committed yet."""
        self._copied += 1
        return self._copied

    def acknowledge(self, place: Place, values: Sequence[bytes], base_offset: int) -> None:
        """A producer was told that its records are committed."""
        known = self.acknowledged.setdefault(place, {})
        for offset, value in enumerate(values, base_offset):
            if known.setdefault(value, offset) != offset:
                raise Violation(f"{value!r} is acknowledged at {known[value]} and {offset}")

    def read(self, place: Place, offset: int, value: bytes) -> None:
        """Somebody was given a record: at an offset everybody sees the same, and all of it once."""
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
        """Somebody who wants committed transactions only was given a record."""
        self.read(place, offset, value)
        self.visible.setdefault(place, {})[value] = offset

    # --------------------------------------------------------------------------------------- groups

    def _group(self, group: str, place: Place) -> _Committed:
        return self._committed.setdefault((group, place), _Committed())

    def commit_begins(self, group: str, place: Place, epoch: int, member: str) -> bool:
        """A commit is sent; whether it has to be refused, since another member has taken over."""
        known = self._group(group, place)
        return known.epoch > epoch and known.member != member

    def commit_ends(
        self, group: str, place: Place, offset: int, epoch: int, member: str, *, is_zombie: bool
    ) -> None:
        """A commit was acknowledged."""
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
        """A commit has no answer."""
        self._group(group, place).uncertain.add(offset)

    def promised(self, group: str, place: Place) -> int:
        """The offset that a group cannot fall behind any more."""
        return self._group(group, place).acknowledged

    def fetched(self, group: str, place: Place, promised: int, offset: int) -> None:
        """A group's offset was read; when that was asked for, `promised` was."""
        known = self._group(group, place)
        if offset < promised and offset not in known.uncertain:
            raise Violation(f"{group} {place}: {promised} was committed, {offset} is read")
        known.acknowledged = max(known.acknowledged, offset)  # if not to whoever committed it

    # --------------------------------------------------------------------------------- share groups

    def shared(self, group: str, place: Place, offset: int, epoch: int, asked: float) -> None:
        """A member was given a record by a leader of an epoch, for what it `asked` then."""
        self._shared.setdefault((group, place), set()).add(offset)
        accepted = self._accepted.get((group, place), {}).get(offset)
        # A former leader may not know what the next one has been told.
        if accepted is not None and epoch >= accepted[0] and asked > accepted[1]:
            raise Violation(
                f"{group} {place}: {offset}, accepted at {accepted[1]:.4f} in epoch "
                f"{accepted[0]}, is given again in epoch {epoch}"
            )

    def accepted(
        self, group: str, place: Place, offsets: Sequence[int], epoch: int, now: float
    ) -> None:
        """A member was told that its answer is stored."""
        known = self._accepted.setdefault((group, place), {})
        for offset in offsets:
            known.setdefault(offset, (epoch, now))

    def not_shared(self, group: str) -> list[tuple[Place, int]]:
        """Acknowledged records that no member of a group has been given."""
        return [
            (place, offset)
            for place, promised in self.acknowledged.items()
            for offset in sorted(promised.values())
            if offset not in self._shared.get((group, place), ())
        ]

    # ------------------------------------------------------------------------------------------ end

    def finish(self, ends: dict[Place, int]) -> None:
        """The faults are over, everybody has read everything up to `ends`."""
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
        """What a group's transactions have committed is what the last of them said."""
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
    """All replicas of a partition hold the same bytes."""
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
    from broker_core.protocol.records import scan_batches

    return scan_batches(data)[0][-1].next_offset
