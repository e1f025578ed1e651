"""One member of a consumer group (KIP-848), and its steps towards its target assignment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, NamedTuple

from broker_core.coordinator.groups.assignors import TopicPartition

Places = frozenset[TopicPartition]
NO_PLACES: Final[Places] = frozenset()

#: Member epochs of requests: the member leaves for good; a static member leaves for a while.
LEAVES: Final = -1
LEAVES_FOR_A_WHILE: Final = -2


class MemberState(IntEnum):
    """States of a member, with the numbers of Kafka's records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


class ClassicMetadata(NamedTuple):
    """The JoinGroup data of a classic-protocol member in a group of the consumer protocol."""

    session_timeout_ms: int
    #: Name and metadata of each assignment protocol, in the member's order of preference.
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member as of its last heartbeat."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = None
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    #: Partitions that it may consume, and those that it was told to revoke but still has.
    assigned: Places = NO_PLACES
    pending_revocation: Places = NO_PLACES
    #: None for a member of the consumer protocol.
    classic: ClassicMetadata | None = None
    #: The key of its rights (TopicRights), which is not stored.
    rights_key: Hashable = field(default=None, compare=False)

    @property
    def holds(self) -> Places:
        """The partitions that no other member may get."""
        return self.assigned | self.pending_revocation

    def is_reconciled(self, target_epoch: int) -> bool:
        """Tell whether it has the partitions of the group's target assignment."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def reconcile(
        self,
        target: Places,
        target_epoch: int,
        owned: Collection[TopicPartition] | None,
        is_free: Callable[[TopicPartition], bool],
    ) -> ConsumerMember:
        """Return the member after its next step: revoke first, then take what others have released.

        `owned` are the partitions that the member reports, None if it does not report any.
        """
        if self.state is MemberState.STABLE:
            if self.epoch == target_epoch:
                return self
            return self._advance(self.epoch, target, target_epoch, owned, is_free)
        if self.state is MemberState.UNREVOKED_PARTITIONS:
            if _owns_any(owned, self.pending_revocation):
                return self
            return self._advance(self.epoch + 1, target, target_epoch, owned, is_free)
        return self._advance(self.epoch, target, target_epoch, owned, is_free)

    def _advance(
        self,
        epoch: int,
        target: Places,
        target_epoch: int,
        owned: Collection[TopicPartition] | None,
        is_free: Callable[[TopicPartition], bool],
    ) -> ConsumerMember:
        kept = self.assigned & target
        given_up = self.assigned - kept
        if given_up and _owns_any(owned, given_up):
            return self._changed(epoch, MemberState.UNREVOKED_PARTITIONS, kept, given_up)
        wanted = target - kept
        holds = self.holds
        taken = frozenset(place for place in wanted if is_free(place) or place in holds)
        state = MemberState.STABLE if taken == wanted else MemberState.UNRELEASED_PARTITIONS
        return self._changed(target_epoch, state, kept | taken, NO_PLACES)

    def _changed(
        self, epoch: int, state: MemberState, assigned: Places, pending_revocation: Places
    ) -> ConsumerMember:
        previous = self.previous_epoch if epoch == self.epoch else self.epoch
        return replace(
            self,
            epoch=epoch,
            previous_epoch=previous,
            state=state,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )


def _owns_any(owned: Collection[TopicPartition] | None, places: Places) -> bool:
    return owned is None or any(place in places for place in owned)
