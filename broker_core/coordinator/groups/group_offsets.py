"""The committed offsets of a group, independent of its members' protocol."""

from __future__ import annotations

from broker_core.coordinator.offsets import CommittedOffset

Place = tuple[str, int]  # topic and partition


class GroupOffsets:
    """The committed offsets of one group."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.offsets: dict[Place, CommittedOffset] = {}
        #: Offsets of transactions that are not decided, by producer id.
        self.pending_offsets: dict[int, dict[Place, CommittedOffset]] = {}

    @property
    def has_offsets(self) -> bool:
        """Tell whether the group has committed or pending offsets."""
        return bool(self.offsets or self.pending_offsets)

    def take_offsets(self, other: GroupOffsets) -> None:
        """Take over the offsets of a group with the same name."""
        self.offsets, self.pending_offsets = other.offsets, other.pending_offsets

    def is_unstable(self, place: Place) -> bool:
        """Tell whether an open transaction has a pending offset for a partition."""
        return any(place in offsets for offsets in self.pending_offsets.values())

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Apply a decided transaction: commit its pending offsets or drop them."""
        pending = self.pending_offsets.pop(producer_id, None)
        if pending and committed:
            self.offsets.update(pending)
