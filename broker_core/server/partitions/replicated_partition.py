"""A partition that has replicas on several brokers, as this broker sees it: led, followed, or idle.

The decisions are in `broker_core.replication`; here they meet the log and those who wait for it.
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
from broker_core.protocol.control_records import EndMarker
from broker_core.replication.follower import PartitionFollower
from broker_core.replication.leader import IsrProposal, PartitionLeader
from broker_core.server.partitions.partition import AppendWaiter, Partition

logger = logging.getLogger(__name__)


class ReplicaReader(Protocol):
    """A follower elsewhere that reads what this broker leads."""

    def appended(self, partition: ReplicatedPartition) -> None:
        """There is more to read."""

    def committed(self, partition: ReplicatedPartition) -> None:
        """The high watermark has moved."""

    def changed(self, partition: ReplicatedPartition) -> None:
        """This broker leads it in another epoch, or not any more."""

    def replicas_changed(self, partition: ReplicatedPartition) -> None:
        """Others are its replicas; who reads may have asked before this broker knew that."""


class IsrControl(Protocol):
    """The way to the controller, and what it is known to think of brokers."""

    @property
    def node_id(self) -> int:
        """This broker."""

    @property
    def lag_ms(self) -> int:
        """`replica.lag.time.max.ms`."""

    def monotonic_ms(self) -> int:
        """Time for durations."""

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Tell whether a broker may be in sync, in the life that an epoch stands for."""

    def propose(self, partition: ReplicatedPartition, proposal: IsrProposal) -> None:
        """Ask the controller for another ISR."""

    def removed(self, partition: ReplicatedPartition) -> None:
        """The replica here is about to be deleted."""

    def storage_failed(self, partition: ReplicatedPartition, error: errors.BrokerError) -> None:
        """The disk here takes nothing more, or is broken: others have to take over."""


class ReplicatedPartition(Partition):
    """See the module. Until `lead` or `follow` is called nobody is served."""

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
        #: What the controller has decided last.
        self.image = PartitionImage((), (), NO_LEADER, leader_epoch=-1, partition_epoch=-1)
        self.leader: PartitionLeader | None = None
        self.follower: PartitionFollower | None = None
        #: Followers elsewhere that fetch here.
        self.readers: OrderedSet[ReplicaReader] = OrderedSet()
        #: Told after every flush while this broker follows.
        self.on_flushed: Callable[[ReplicatedPartition], None] | None = None
        self._control = control
        self._records_in = 0
        self.leader_epoch = -1
        # What was committed is known only to those who lead, or follow, now.
        self.high_watermark = log.high_watermark = log.log_start_offset

    # -------------------------------------------------------------------------------------- roles

    def lead(self, image: PartitionImage) -> bool:
        """This broker leads; whether it did not in this leader epoch before."""
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
        """Another broker leads, or nobody; whether that is a new leader epoch."""
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
        """Tell whether too few replicas are in sync for an append with acks=all."""
        leader = self.leader
        return leader is not None and leader.is_under_min_isr(self.log.config.min_insync_replicas)

    @property
    def messages_in(self) -> int:
        """See Partition; what is fetched from a leader does not count."""
        return self._records_in

    @property
    def is_led(self) -> bool:
        """Tell whether this broker leads it."""
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
        if self.is_under_min_isr:
            needed = leader.required_in_sync(self.log.config.min_insync_replicas)
            raise errors.NotEnoughReplicas(
                f"{self}: in sync are {list(leader.image.isr)}, {needed} are needed"
            )

    def check_can_commit(self) -> None:
        """See Partition."""
        self.check_in_sync()

    @property
    def waits_for_others(self) -> bool:
        """See Partition."""
        return len(self.image.replicas) > 1

    @property
    def commits_on_append(self) -> bool:
        """See Partition."""
        return False

    # ------------------------------------------------------------------------------------- leading

    def append(
        self, records: bytearray | memoryview, now_ms: int, *, verified: bool = True
    ) -> AppendResult:
        """See Partition."""
        self.check_is_led()
        try:
            result = super().append(records, now_ms, verified=verified)
        except errors.KafkaStorageError as error:
            self._control.storage_failed(self, error)
            raise
        if not result.duplicate:
            self._records_in += result.last_offset - result.base_offset + 1
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
            self._control.storage_failed(self, error)
            raise
        self._tell_readers()
        return result

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
        """See Partition: what is committed is what all replicas in sync have."""
        leader = self.leader
        if leader is None:
            if self.on_flushed is not None:
                self.on_flushed(self)
            return
        committed = leader.committed_offset(
            self._written_offset, self._control.monotonic_ms(), self.log.config.min_insync_replicas
        )
        if committed is None or committed <= self.high_watermark:
            return
        appends = self._appends
        self._show(committed)
        while appends and appends[0][0] <= committed:
            self._answer(appends.popleft()[1])
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
        """A follower asks for what comes after `offset`: it has everything before.

        Unless it means another leader epoch, or its log is not a beginning of this one.
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
        """Propose a follower that could not be proposed when it fetched."""
        if self.leader is not None:
            self._propose(self.leader.propose_any_growth(self.high_watermark))

    def check_isr(self) -> None:
        """Propose to leave followers out that do not keep up; call now and then."""
        leader = self.leader
        if leader is not None:
            self._propose(
                leader.propose_shrink(self.log.log_end_offset, self._control.monotonic_ms())
            )
            self.advance()

    @property
    def leader_proposal(self) -> IsrProposal | None:
        """The ISR that the controller has not decided on yet."""
        return None if self.leader is None else self.leader.proposal

    def broker_epoch_of(self, broker_id: int, registered: int) -> int:
        """The life of a broker that this leader has heard of, `registered` if of none."""
        follower = None if self.leader is None else self.leader.follower(broker_id)
        if follower is None or follower.broker_epoch < 0:
            return registered
        return follower.broker_epoch

    def isr_decided(self, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int) -> None:
        """The controller has accepted a proposal; the metadata will say so as well."""
        leader = self.leader
        if leader is not None and leader.epoch == leader_epoch:
            image = replace(leader.image, isr=isr, partition_epoch=partition_epoch)
            leader.apply(image, self._control.monotonic_ms())
            self.image = leader.image
            self.advance()
            self.propose_growth()

    def isr_refused(self, proposal: IsrProposal) -> None:
        """The controller has refused a proposal."""
        if self.leader is not None:
            self.leader.refused(proposal)
            self.advance()
            self.propose_growth()

    def _propose(self, proposal: IsrProposal | None) -> None:
        if proposal is not None:
            logger.info("%s: in sync are %s, proposed %s", self, self.image.isr, proposal.isr)
            self._control.propose(self, proposal)

    def diverging(self, last_epoch: int, offset: int) -> tuple[int, int] | None:
        """Where a log that ends at an offset with an epoch leaves this one; None if it does not."""
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
        """What a follower asks for: (batches, None), or (b"", where its log leaves this one).

        `unread`: batches may be given as where they are in a file. Raises NotLeaderOrFollower,
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
        self.bytes_out += len(data)
        return data, None

    # ------------------------------------------------------------------------------------ following

    def cannot_follow(self, error: errors.BrokerError) -> None:
        """What the leader has sent could not be stored."""
        if isinstance(error, errors.KafkaStorageError):
            self._control.storage_failed(self, error)

    def show_followed(self) -> None:
        """The leader has told more of what is committed."""
        follower = self.follower
        if follower is not None and follower.high_watermark != self.high_watermark:
            self._show(follower.high_watermark)


#: Makes the partitions of a cluster; see `TopicRegistry`.
PartitionFactory = Callable[[str, bytes, int, Log], Partition]
