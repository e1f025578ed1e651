"""Bugs that a controller can have, one in each class; the simulation has to find them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from broker_core.cluster.brokers import BrokerControl
from broker_core.cluster.controller import Controller
from broker_core.cluster.image import PartitionImage
from broker_core.cluster.node import Decided, MetadataNode
from broker_core.cluster.partitions import PartitionControl
from broker_core.cluster.records import PartitionChange
from broker_core.quorum.leader import Leader

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AlterPartitionRequestPartition,
        BrokerRegistrationRequest,
        BrokerRegistrationResponse,
    )


class AnswersBeforeTheCommit(MetadataNode):
    """A controller that answers before its decision is committed."""

    def decide(self, action: Callable[[Controller], None], decided: Decided) -> None:
        super().decide(action, lambda _: None)
        decided(True)


class StaysActive(MetadataNode):
    """A controller that leads again with its state from the time it led before."""

    _former: Controller | None = None

    def _resign(self) -> None:
        self._former = self.controller or self._former
        super()._resign()

    def _become_active(self, now: float) -> None:
        super()._become_active(now)
        self.controller = self._former or self.controller


class BecomesActiveTooSoon(MetadataNode):
    """A controller that does not wait until it has all committed entries."""

    def after_event(self, now: float) -> None:
        if isinstance(self.replica.role, Leader) and self.controller is None:
            self._become_active(now)
        super().after_event(now)


class _OtherPartitions(MetadataNode):
    partitions: type[PartitionControl]

    def _become_active(self, now: float) -> None:
        super()._become_active(now)
        assert self.controller is not None
        self.controller.partitions.__class__ = self.partitions


class _Unclean(PartitionControl):
    def allows_unclean(self, topic: str) -> bool:
        return True


class ElectsAnyReplica(_OtherPartitions):
    """A controller that elects any live replica as leader."""

    partitions = _Unclean


class _Believing(PartitionControl):
    def _checked_isr(
        self, partition: PartitionImage, broker_id: int, asked: AlterPartitionRequestPartition
    ) -> tuple[int, ...]:
        return tuple(each["broker_id"] for each in asked["new_isr_with_epochs"])


class BelievesEveryLeader(_OtherPartitions):
    """A controller that accepts an ISR from a broker that is not the leader any more."""

    partitions = _Believing


class _Leaving(PartitionControl):
    def without(self, broker_id: int, *, is_lossy: bool = False) -> Iterator[PartitionChange]:
        yield from ()


class LeavesTheDeadToLead(_OtherPartitions):
    """A controller that leaves a fenced broker as leader."""

    partitions = _Leaving


class _AnyEpoch(BrokerControl):
    def register(self, body: BrokerRegistrationRequest, now: float) -> BrokerRegistrationResponse:
        answer = super().register(body, now)
        present = self._image.brokers.get(body["broker_id"])
        if answer["error_code"] and present is not None:
            return {"error_code": 0, "broker_epoch": present.epoch}
        return answer


class RegistersTwo(MetadataNode):
    """A controller that gives a second process the epoch of the first."""

    def _become_active(self, now: float) -> None:
        super()._become_active(now)
        assert self.controller is not None
        self.controller.brokers.__class__ = _AnyEpoch


MUTANTS: list[type[MetadataNode]] = [
    AnswersBeforeTheCommit,
    StaysActive,
    BecomesActiveTooSoon,
    ElectsAnyReplica,
    BelievesEveryLeader,
    LeavesTheDeadToLead,
    RegistersTwo,
]
