"""What a group has committed, whatever protocol its members speak."""

from __future__ import annotations

from broker_core.coordinator.offsets import CommittedOffset

Place = tuple[str, int]  # topic and partition


class GroupOffsets:
    """The committed offsets of one group."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.offsets: dict[Place, CommittedOffset] = {}
        #: Offsets that a transaction decides about, by the producer id that has it.
        self.pending_offsets: dict[int, dict[Place, CommittedOffset]] = {}

    @property
    def has_offsets(self) -> bool:
        """Tell whether there is something that somebody may still ask for."""
        return bool(self.offsets or self.pending_offsets)

    def take_offsets(self, other: GroupOffsets) -> None:
        """Go on with what a group of the same name has committed."""
        self.offsets, self.pending_offsets = other.offsets, other.pending_offsets

    def is_unstable(self, place: Place) -> bool:
        """Tell whether a transaction that is not decided has a newer offset of a partition."""
        return any(place in offsets for offsets in self.pending_offsets.values())

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """A transaction is decided: its offsets count now, or never did."""
        pending = self.pending_offsets.pop(producer_id, None)
        if pending and committed:
            self.offsets.update(pending)
