"""A replicated partition on this broker: led, followed, or neither.

The decisions are made in `broker_core.replication`; this module applies them to the log and to the
waiting requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from broker_core import errors
from broker_core.cluster.image import PartitionImage
from broker_core.cluster.records import NO_LEADER
from broker_core.environment import FileSlice
from broker_core.log.log import AppendResult, Log
from broker_core.ordered_set import OrderedSet
from broker_core.protocol.batch_header import BatchHeader
from broker_core.protocol.control_records import EndMarker
from broker_core.replication.follower import PartitionFollower
from broker_core.replication.leader import IsrProposal, PartitionLeader
from broker_core.server.partitions.partition import AppendWaiter, Partition

logger = logging.getLogger(__name__)


class ReplicaReader(Protocol):
    """A follower on another broker that fetches a partition that this broker leads."""

    def appended(self, partition: ReplicatedPartition) -> None:
        """Take note of new records."""

    def committed(self, partition: ReplicatedPartition) -> None:
        """Take note of a new high watermark."""

    def changed(self, partition: ReplicatedPartition) -> None:
        """Take note that this broker leads in another leader epoch, or no longer leads."""

    def replicas_changed(self, partition: ReplicatedPartition) -> None:
        """Take note of new replicas; one may have fetched before this broker knew of it."""


class IsrControl(Protocol):
    """The partition's connection to the controller, and its knowledge of the brokers."""

    @property
    def node_id(self) -> int:
        """Id of this broker."""

    @property
    def lag_ms(self) -> int:
        """`replica.lag.time.max.ms`."""

    def monotonic_ms(self) -> int:
        """Return monotonic ms, for durations."""

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Return whether a broker with this broker epoch may be in sync; -1 matches any epoch."""

    def propose(self, partition: ReplicatedPartition, proposal: IsrProposal) -> None:
        """Ask the controller for another ISR."""

    def removed(self, partition: ReplicatedPartition) -> None:
        """Take note that the replica here is about to be deleted."""

    def storage_failed(self, partition: ReplicatedPartition, error: errors.BrokerError) -> None:
        """Take note that the disk is full or broken: other brokers have to take over."""


class ReplicatedPartition(Partition):
    """A partition with replicas on several brokers; refuses requests before `lead` or `follow`."""

    __slots__ = (
        "_control",
        "_records_in",
        "follower",
        "image",
        "leader",
        "on_flushed",
        "readers",
        "topic_id",
    )

    def __init__(
        self, topic: str, index: int, log: Log, control: IsrControl, topic_id: bytes
    ) -> None:
        super().__init__(topic, index, log)
        self.topic_id = topic_id
        #: The controller's newest decision.
        self.image = PartitionImage((), (), NO_LEADER, leader_epoch=-1, partition_epoch=-1)
        self.leader: PartitionLeader | None = None
        self.follower: PartitionFollower | None = None
        #: Followers on other brokers that fetch here.
        self.readers: OrderedSet[ReplicaReader] = OrderedSet()
        #: Called after every flush while this broker follows.
        self.on_flushed: Callable[[ReplicatedPartition], None] | None = None
        self._control = control
        self._records_in = 0
        self.leader_epoch = -1
        # The high watermark is not stored. The leader computes it, and tells its followers.
        self.high_watermark = log.high_watermark = log.log_start_offset

    # -------------------------------------------------------------------------------------- roles

    def lead(self, image: PartitionImage) -> bool:
        """Become or stay the leader; return whether the leader epoch is new."""
        now_ms = self._control.monotonic_ms()
        if self.leader is not None and self.leader.epoch == image.leader_epoch:
            are_new = not set(image.replicas) <= set(self.image.replicas)
            self.leader.apply(image, now_ms)
            self.image = self.leader.image
            if are_new:
                for reader in tuple(self.readers):
                    reader.replicas_changed(self)
            self.advance()
            self.propose_growth()
            return False
        self.image = image
        self._leave_role()
        control = self._control
        self.leader_epoch = image.leader_epoch
        try:
            self.log.continue_behind_acknowledged()
        except errors.KafkaStorageError as error:
            control.storage_failed(self, error)
        self.leader = PartitionLeader(
            control.node_id,
            image,
            log_end_offset=self.log.log_end_offset,
            now_ms=now_ms,
            lag_ms=control.lag_ms,
            is_eligible=control.is_eligible,
        )
        for reader in tuple(self.readers):
            reader.changed(self)
        self.advance()
        return True

    def follow(self, image: PartitionImage) -> bool:
        """Follow the image's leader, if it has one; return whether role, epoch or leader is new."""
        known, self.image = self.image, image
        if self.leader is None and (known.leader_epoch, known.leader) == (
            image.leader_epoch,
            image.leader,
        ):
            return False
        self._leave_role()
        self.leader_epoch = image.leader_epoch
        if image.leader != NO_LEADER:
            self.follower = PartitionFollower(
                self.log, image.leader, image.leader_epoch, self.high_watermark
            )
        return True

    def _leave_role(self) -> None:
        was_leader, self.leader, self.follower = self.leader is not None, None, None
        if was_leader:
            self.fail(errors.NotLeaderOrFollower.code)
            for reader in tuple(self.readers):
                reader.changed(self)
        for fetch in tuple(self.fetches):
            fetch.gone()

    def mark_deleted(self, code: int) -> None:
        """See Partition."""
        self.leader = self.follower = None
        self._control.removed(self)
        super().mark_deleted(code)
        for reader in tuple(self.readers):
            reader.changed(self)

    # ------------------------------------------------------------------------------------- checks

    @property
    def is_under_min_isr(self) -> bool:
        """Return whether too few replicas are in sync for an append with acks=all."""
        leader = self.leader
        return leader is not None and leader.is_under_min_isr(self.log.config.min_insync_replicas)

    @property
    def messages_in(self) -> int:
        """See Partition; records fetched from a leader do not count."""
        return self._records_in

    @property
    def is_led(self) -> bool:
        """Return whether this broker leads the partition."""
        return self.leader is not None

    def check_is_led(self) -> None:
        """See Partition."""
        if self.leader is None:
            raise errors.NotLeaderOrFollower()

    def check_is_readable(self, *, from_follower: bool) -> None:
        """See Partition."""
        if self.leader is None and (self.follower is None or not from_follower):
            raise errors.NotLeaderOrFollower()

    def check_offsets_are_known(self) -> None:
        """See Partition (KIP-207)."""
        leader = self.leader
        if leader is not None and self.high_watermark < leader.epoch_start_offset:
            raise errors.OffsetNotAvailable()

    def check_in_sync(self) -> None:
        """See Partition."""
        leader = self.leader
        if leader is None:
            raise errors.NotLeaderOrFollower()
        if leader.is_under_min_isr(self.log.config.min_insync_replicas):
            needed = leader.required_in_sync(self.log.config.min_insync_replicas)
            raise errors.NotEnoughReplicas(
                f"{self}: in sync are {list(leader.image.isr)}, {needed} are needed"
            )

    @property
    def waits_for_others(self) -> bool:
        """See Partition."""
        return len(self.image.replicas) > 1

    # ------------------------------------------------------------------------------------- leading

    def append(
        self,
        records: bytearray | memoryview,
        now_ms: int,
        *,
        verified: bool = True,
        headers: list[BatchHeader] | None = None,
    ) -> AppendResult:
        """See Partition."""
        if self.leader is None:
            raise errors.NotLeaderOrFollower()
        try:
            result = super().append(records, now_ms, verified=verified, headers=headers)
        except errors.KafkaStorageError as error:
            self._cannot_write(error)
            raise
        if not result.duplicate:
            self._records_in += result.last_offset - result.base_offset + 1
        if self.readers:
            self._tell_readers()
        return result

    def append_from_coordinator(
        self, records: bytearray, now_ms: int, marker: EndMarker | None = None
    ) -> AppendResult:
        """See Partition."""
        self.check_is_led()
        try:
            result = super().append_from_coordinator(records, now_ms, marker)
        except errors.KafkaStorageError as error:
            self._cannot_write(error)
            raise
        self._tell_readers()
        return result

    def _cannot_write(self, error: errors.KafkaStorageError) -> None:
        """Let other brokers take over after a failed append.

        Where there is no other replica, the log, which is unchanged, goes on when it can.
        """
        if self.waits_for_others:
            self._control.storage_failed(self, error)

    def _tell_readers(self) -> None:
        for reader in self.readers:
            reader.appended(self)

    def wait_durable(self, waiter: AppendWaiter, end_offset: int) -> None:
        """Tell the waiter when everything before `end_offset` is committed."""
        if end_offset <= self.high_watermark:
            self._answer(waiter)
        else:
            self._appends.append((end_offset, waiter))

    @property
    def _written_offset(self) -> int:
        log = self.log
        if self.acknowledges_after_flush:
            return min(log.recovery_point, log.log_end_offset)
        return log.log_end_offset

    def advance(self) -> None:
        """See Partition: a record is committed when all in-sync replicas have it."""
        leader = self.leader
        if leader is None:
            if self.on_flushed is not None:
                self.on_flushed(self)
            return
        committed = leader.committed_offset(
            self._written_offset, self._control.monotonic_ms, self.log.config.min_insync_replicas
        )
        if committed is None or committed <= self.high_watermark:
            return
        appends = self._appends
        self._show(committed)
        while appends and appends[0][0] <= committed:
            # Enough replicas are in sync: else nothing would have been committed.
            appends.popleft()[1].durable()
        for reader in self.readers:
            reader.committed(self)

    def _answer(self, waiter: AppendWaiter) -> None:
        leader = self.leader
        if leader is not None and len(leader.maximal_isr) < leader.required_in_sync(
            self.log.config.min_insync_replicas
        ):
            waiter.failed(errors.NotEnoughReplicasAfterAppend.code)
        else:
            waiter.durable()

    def _show(self, high_watermark: int) -> None:
        self.high_watermark = self.log.high_watermark = high_watermark
        grown, self._appended_bytes = self._appended_bytes, 0
        self.bytes_in += grown
        if self.fetches:
            for fetch in tuple(self.fetches):
                fetch.grew(max(grown, 1))

    def fetched_by(
        self,
        broker_id: int,
        asked_epoch: int,
        offset: int,
        last_epoch: int,
        *,
        log_start_offset: int,
        broker_epoch: int,
    ) -> None:
        """Take note that a follower fetches from `offset`, so it has all records before it.

        This is ignored if it fetches in another leader epoch, or if its log diverges from this one.
        """
        leader, log_end_offset = self.leader, self.log.log_end_offset
        if (
            leader is None
            or asked_epoch != self.leader_epoch
            or offset > log_end_offset
            or (last_epoch >= 0 and self.diverging(last_epoch, offset) is not None)
            or not leader.fetched(
                broker_id,
                offset,
                log_start_offset=log_start_offset,
                broker_epoch=broker_epoch,
                log_end_offset=log_end_offset,
                now_ms=self._control.monotonic_ms(),
            )
        ):
            return
        self._propose(leader.propose_growth(broker_id, self.high_watermark))
        self.advance()

    def propose_growth(self) -> None:
        """Propose to add a follower to the ISR that could not be proposed when it fetched."""
        if self.leader is not None:
            self._propose(self.leader.propose_any_growth(self.high_watermark))

    def check_isr(self) -> None:
        """Propose to remove followers that lag from the ISR; to be called periodically."""
        leader = self.leader
        if leader is not None:
            self._propose(
                leader.propose_shrink(self.log.log_end_offset, self._control.monotonic_ms())
            )
            self.advance()

    @property
    def leader_proposal(self) -> IsrProposal | None:
        """The proposed ISR that the controller has not decided on yet."""
        return None if self.leader is None else self.leader.proposal

    def broker_epoch_of(self, broker_id: int, registered: int) -> int:
        """Return the broker epoch with which a follower last fetched, else `registered`."""
        follower = None if self.leader is None else self.leader.follower(broker_id)
        if follower is None or follower.broker_epoch < 0:
            return registered
        return follower.broker_epoch

    def isr_decided(self, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int) -> None:
        """Apply an accepted proposal before the metadata log brings it."""
        leader = self.leader
        if leader is not None and leader.epoch == leader_epoch:
            image = replace(leader.image, isr=isr, partition_epoch=partition_epoch)
            leader.apply(image, self._control.monotonic_ms())
            self.image = leader.image
            self.advance()
            self.propose_growth()

    def isr_refused(self, proposal: IsrProposal) -> None:
        """Withdraw a proposal that the controller has refused."""
        if self.leader is not None:
            self.leader.refused(proposal)
            self.advance()
            self.propose_growth()

    def _propose(self, proposal: IsrProposal | None) -> None:
        if proposal is not None:
            logger.info("%s: in sync are %s, proposed %s", self, self.image.isr, proposal.isr)
            self._control.propose(self, proposal)

    def diverging(self, last_epoch: int, offset: int) -> tuple[int, int] | None:
        """Return the (epoch, end offset) at which another log diverges from this one, or None.

        The other log ends at `offset`; its last record has the leader epoch `last_epoch`.
        """
        log = self.log
        epoch, end_offset = log.leader_epochs.end_offset(last_epoch, log.log_end_offset)
        if epoch >= 0 and (epoch < last_epoch or end_offset < offset):
            return epoch, end_offset
        return None

    def read_as_leader(
        self,
        asked_epoch: int,
        offset: int,
        last_epoch: int,
        max_bytes: int,
        *,
        first: bool,
        unread: bool,
    ) -> tuple[bytes | FileSlice, tuple[int, int] | None]:
        """Return (batches, None) for a follower, or (b"", where its log diverges from this one).

        `unread`: batches may be returned as a range of a file. Raises NotLeaderOrFollower,
        FencedLeaderEpoch, UnknownLeaderEpoch, OffsetOutOfRange.
        """
        self.check_leader_epoch(asked_epoch)
        self.check_is_led()
        log = self.log
        if last_epoch >= 0 and (diverging := self.diverging(last_epoch, offset)) is not None:
            return b"", diverging
        if offset == log.log_end_offset:
            return b"", None
        sliced = self.slice(offset, max_bytes, log.log_end_offset) if unread else None
        if sliced is not None:
            return sliced[0], None
        data = log.read(offset, max_bytes, min_one_message=first)
        if not data:
            data = log.read_gap(offset, log.log_end_offset)
        self.bytes_out += len(data)
        return data, None

    # ------------------------------------------------------------------------------------ following

    def cannot_follow(self, error: errors.BrokerError) -> None:
        """Report that records from the leader could not be stored."""
        if isinstance(error, errors.KafkaStorageError):
            self._control.storage_failed(self, error)

    def show_followed(self) -> None:
        """Take over the leader's high watermark."""
        follower = self.follower
        if follower is not None and follower.high_watermark != self.high_watermark:
            self._show(follower.high_watermark)


#: Creates the partitions of a cluster; see `TopicRegistry`.
PartitionFactory = Callable[[str, bytes, int, Log], Partition]
