"""The leader of a partition: progress of the followers, the committed offset, and the ISR.

The leader proposes changes of the ISR to the controller (KIP-497). While a proposal is open, both a
follower that joins and one that leaves count as in sync: whatever the controller decides, nothing
is committed that the ISR does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from broker_core.cluster.image import PartitionImage

_UNKNOWN = -1


@dataclass(slots=True)
class FollowerProgress:
    """A follower's state according to its fetches. Times are monotonic ms of the leader."""

    log_end_offset: int = _UNKNOWN  # unknown until it has fetched in this leader epoch
    log_start_offset: int = _UNKNOWN
    broker_epoch: int = -1  # of the process that fetched
    caught_up_ms: int = 0  # when it last had everything that the leader had
    fetched_ms: int = 0
    leader_end_offset: int = 0  # of the leader at the last fetch

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_ms: int) -> bool:
        """Tell whether it has everything, or had everything within the last `lag_ms`."""
        return self.log_end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_ms


class IsrProposal(NamedTuple):
    """An ISR that the controller is to decide on."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


class PartitionLeader:
    """The leader's state of one partition in one leader epoch."""

    __slots__ = (
        "_followers",
        "_is_eligible",
        "_lag_ms",
        "_node_id",
        "_open",
        "epoch_start_offset",
        "image",
        "maximal_isr",
    )

    def __init__(
        self,
        node_id: int,
        image: PartitionImage,
        *,
        log_end_offset: int,
        now_ms: int,
        lag_ms: int,
        is_eligible: Callable[[int, int], bool],
    ) -> None:
        """`lag_ms` is `replica.lag.time.max.ms`.

        `is_eligible` tells whether a broker with a given broker epoch is alive.
        """
        self.image = image
        #: Log end when this leader epoch began; followers may lack any record before it.
        self.epoch_start_offset = log_end_offset
        self._node_id = node_id
        self._lag_ms = lag_ms
        self._is_eligible = is_eligible
        self._followers: dict[int, FollowerProgress] = {}
        self._open: IsrProposal | None = None
        #: The ISR, including members that the controller may have added in the meantime.
        self.maximal_isr: frozenset[int] = frozenset(image.isr)
        self._take_replicas(image, now_ms)

    # ------------------------------------------------------------------------------------ reading

    @property
    def epoch(self) -> int:
        """The leader epoch."""
        return self.image.leader_epoch

    @property
    def proposal(self) -> IsrProposal | None:
        """The proposal that the controller has not decided yet, if any."""
        return self._open

    def follower(self, broker_id: int) -> FollowerProgress | None:
        """Return what is known of a follower."""
        return self._followers.get(broker_id)

    def required_in_sync(self, min_insync_replicas: int) -> int:
        """Return how many replicas must be in sync; never more than the partition has."""
        return min(min_insync_replicas, len(self._followers) + 1)

    def is_under_min_isr(self, min_insync_replicas: int) -> bool:
        """Tell whether the ISR, as the controller knows it, is too small to commit anything."""
        # A leader without followers is all there is.
        return bool(self._followers) and (
            len(self.image.isr) < self.required_in_sync(min_insync_replicas)
        )

    def committed_offset(
        self, log_end_offset: int, now_ms: Callable[[], int], min_insync_replicas: int
    ) -> int | None:
        """Return the offset up to which all in-sync or joining replicas have the log.

        None while too few are in sync. `log_end_offset` is what the leader counts as written.
        `now_ms` tells the time if that matters.
        """
        if not self._followers:
            return log_end_offset
        # The controller does not know proposed members yet. While it counts too few in sync, it may
        # elect replicas that have left the ISR (KIP-966), and these must lack nothing.
        if self.is_under_min_isr(min_insync_replicas):
            return None
        isr = self.maximal_isr
        committed = log_end_offset
        for broker_id, follower in self._followers.items():
            if follower.log_end_offset < committed and (
                broker_id in isr
                # It is about to join: if the committed offset passed it, it might never catch up.
                or (
                    follower.log_end_offset != _UNKNOWN
                    and follower.is_caught_up(log_end_offset, now_ms(), self._lag_ms)
                    and self._is_eligible(broker_id, follower.broker_epoch)
                )
            ):
                committed = follower.log_end_offset
        return committed if committed >= 0 else None

    def readable_replicas(self, offset: int) -> Iterable[int]:
        """Yield the in-sync replicas that have an offset, the leader first (KIP-392)."""
        yield self._node_id
        for broker_id in self.image.isr:
            follower = self._followers.get(broker_id)
            if follower is not None and (
                follower.log_start_offset <= offset <= follower.log_end_offset
            ):
                yield broker_id

    # --------------------------------------------------------------------------------------- steps

    def apply(self, image: PartitionImage, now_ms: int) -> None:
        """Apply a newer decision of the controller in the same leader epoch."""
        if image.partition_epoch <= self.image.partition_epoch:
            return
        self.image = image
        self._set_open(None)
        self._take_replicas(image, now_ms)

    def _take_replicas(self, image: PartitionImage, now_ms: int) -> None:
        known = self._followers
        self._followers = {}
        for broker_id in image.replicas:
            if broker_id == self._node_id:
                continue
            progress = known.get(broker_id)
            if progress is None:
                # A member of the ISR gets the usual time to show that it is caught up.
                progress = FollowerProgress(
                    caught_up_ms=now_ms if broker_id in image.isr else now_ms - self._lag_ms - 1
                )
            self._followers[broker_id] = progress

    def fetched(
        self,
        broker_id: int,
        offset: int,
        *,
        log_start_offset: int,
        broker_epoch: int,
        log_end_offset: int,
        now_ms: int,
    ) -> bool:
        """Record a follower's fetch: it has everything before `offset`. False if it is no replica.

        `log_end_offset` is the leader's.
        """
        follower = self._followers.get(broker_id)
        if follower is None:
            return False
        if offset >= log_end_offset:
            follower.caught_up_ms = now_ms
        elif offset >= follower.leader_end_offset:
            # It has everything that was there at its previous fetch.
            follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
        follower.log_end_offset = offset
        follower.log_start_offset = log_start_offset
        follower.broker_epoch = broker_epoch
        follower.fetched_ms = now_ms
        follower.leader_end_offset = log_end_offset
        return True

    def propose_growth(self, broker_id: int, high_watermark: int) -> IsrProposal | None:
        """Propose to add a follower that has reached the high watermark and this epoch's start."""
        follower = self._followers.get(broker_id)
        if (
            self._open is not None
            or follower is None
            or broker_id in self.image.isr
            or follower.log_end_offset < max(high_watermark, self.epoch_start_offset)
            or not self._is_eligible(broker_id, follower.broker_epoch)
        ):
            return None
        return self._propose((*self.image.isr, broker_id))

    def propose_any_growth(self, high_watermark: int) -> IsrProposal | None:
        """Propose to add the first follower that `propose_growth` accepts."""
        for broker_id in self._followers:
            proposal = self.propose_growth(broker_id, high_watermark)
            if proposal is not None:
                return proposal
        return None

    def propose_shrink(self, log_end_offset: int, now_ms: int) -> IsrProposal | None:
        """Propose to remove the followers that have not caught up for too long."""
        if self._open is not None:
            return None
        remaining = tuple(
            broker_id
            for broker_id in self.image.isr
            if broker_id == self._node_id
            or (follower := self._followers.get(broker_id)) is None
            or follower.is_caught_up(log_end_offset, now_ms, self._lag_ms)
        )
        return None if remaining == self.image.isr else self._propose(remaining)

    def _propose(self, isr: tuple[int, ...]) -> IsrProposal:
        proposal = IsrProposal(isr, self.image.leader_epoch, self.image.partition_epoch)
        self._set_open(proposal)
        return proposal

    def refused(self, proposal: IsrProposal) -> None:
        """Drop a proposal that the controller refused; the valid ISR comes with the metadata."""
        if self._open == proposal:
            self._set_open(None)

    def _set_open(self, proposal: IsrProposal | None) -> None:
        self._open = proposal
        self.maximal_isr = frozenset(self.image.isr)
        if proposal is not None:
            self.maximal_isr = self.maximal_isr.union(proposal.isr)
