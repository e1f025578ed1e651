"""Invariants of the metadata that a controller writes; the checker sees all nodes."""

from __future__ import annotations

from typing import NamedTuple

from broker_core.cluster.image import ClusterImage, ImageChanges, PartitionImage
from broker_core.cluster.records import NO_LEADER, decode_records
from broker_core.cluster.snapshot import encode_image
from broker_core.quorum.entries import Entry, EntryKind
from tests.simulation.quorum_checker import Checker, Violation


class PartitionKey(NamedTuple):
    """A partition of a topic; a topic that is created again has another id."""

    topic_id: bytes
    number: int


class ControllerChecker(Checker):
    """Applies all committed entries once to an image, and checks each step."""

    def __init__(self) -> None:
        super().__init__()
        self.image = ClusterImage()
        self.states = [encode_image(self.image)]
        self.history: dict[PartitionKey, list[PartitionImage]] = {}
        self.created: set[str] = set()
        self.maybe_deleted: set[str] = set()
        self.changes_acknowledged = 0
        self.leader_changes = 0

    def state_after(self, offset: int, entry: Entry) -> bytes:
        """See Checker; the state is the encoded image."""
        if entry.kind is not EntryKind.DATA:
            self.image.offset = offset + 1
            return self.states[-1]
        epochs = {broker.id: broker.epoch for broker in self.image.brokers.values()}
        next_id = self.image.next_producer_id
        changes = ImageChanges()
        for record in decode_records(entry.value):
            # One record at a time, since a check must see the image after each of them.
            self.image.apply(offset, [record], changes)
            self._look_at_partitions(changes)
            changes.partitions.clear()
        self._look_for_dead_leaders(changes)
        if self.image.next_producer_id < next_id:
            raise Violation("ids of producers are given twice")
        for broker in self.image.brokers.values():
            if broker.epoch < epochs.get(broker.id, -1):
                raise Violation(f"broker {broker.id} goes back to epoch {broker.epoch}")
        return encode_image(self.image)

    def _look_for_dead_leaders(self, changes: ImageChanges) -> None:
        fenced = {
            each for each in changes.brokers if each in self.image.brokers
            and self.image.brokers[each].fenced
        }  # fmt: skip
        if fenced:
            for topic, index, partition in self.image.partitions():
                if partition.leader in fenced:
                    raise Violation(f"{topic.name}-{index} is led by {partition.leader}, fenced")

    def _look_at_partitions(self, changes: ImageChanges) -> None:
        for name, index in changes.partitions:
            topic = self.image.topics[name]
            partition = topic.partitions[index]
            former = self.history.setdefault(PartitionKey(topic.id, index), [])
            place = f"{name}-{index}"
            if not partition.isr or not set(partition.isr) <= set(partition.replicas):
                raise Violation(f"{place}: ISR {partition.isr} of replicas {partition.replicas}")
            if not set(partition.elr) <= set(partition.replicas) - set(partition.isr):
                raise Violation(f"{place}: ELR {partition.elr} beside ISR {partition.isr}")
            if partition.leader != NO_LEADER and partition.leader not in partition.isr:
                raise Violation(f"{place}: {partition.leader} leads, in sync are {partition.isr}")
            if former:
                self._look_at_change(place, former[-1], partition)
            former.append(partition)

    def _look_at_change(self, place: str, before: PartitionImage, after: PartitionImage) -> None:
        if after.partition_epoch != before.partition_epoch + 1:
            raise Violation(f"{place}: the partition epoch goes to {after.partition_epoch}")
        led_anew = after.leader_epoch - before.leader_epoch
        if led_anew not in {0, 1} or (after.leader != before.leader and not led_anew):
            raise Violation(f"{place}: two leaders in epoch {after.leader_epoch}")
        if after.leader == before.leader:
            return
        self.leader_changes += 1
        # The change that completes a reassignment adds replicas to the ISR, as the leader asked,
        # and one of them may lead at once.
        joined = after.isr if before.is_reassigning and not after.is_reassigning else ()
        complete = {*before.isr, *before.elr, *joined}
        if after.leader != NO_LEADER and after.leader not in complete:
            raise Violation(
                f"{place}: {after.leader} is elected uncleanly: {before} becomes {after}"
            )

    def image_is(self, image: ClusterImage) -> None:
        """Check that the image of a node is the state at its offset."""
        if encode_image(image) != self.states[image.offset]:
            raise Violation(f"an image at {image.offset} is not what the entries make")

    def altered(self, key: PartitionKey, partition_epoch: int, isr: tuple[int, ...]) -> None:
        """Check an ISR whose change was acknowledged to a leader: it must be committed."""
        self.changes_acknowledged += 1
        states = {each.partition_epoch: each for each in self.history.get(key, ())}
        if partition_epoch not in states or states[partition_epoch].isr != isr:
            raise Violation(f"{key.number}: ISR {isr} was acknowledged, but is not committed")

    def registered(self, broker_id: int, incarnation_id: bytes, epoch: int) -> None:
        """Check an epoch given to a process: it must be committed, and be this process's alone."""
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.epoch < epoch:
            raise Violation(f"broker {broker_id} was told epoch {epoch}, which is not committed")
        if broker.epoch == epoch and broker.incarnation_id != incarnation_id:
            raise Violation(f"two processes are broker {broker_id} in epoch {epoch}")

    def finish_metadata(self) -> None:
        """Check the state a while after all faults have ended."""
        lost = self.created - self.maybe_deleted - self.image.topics.keys()
        if lost:
            raise Violation(f"the acknowledged topics {sorted(lost)} are lost")
        for broker in self.image.brokers.values():
            if broker.fenced:
                raise Violation(f"broker {broker.id} is still fenced")
        for topic, index, partition in self.image.partitions():
            if partition.leader == NO_LEADER:
                raise Violation(f"nobody leads {topic.name}-{index}: {partition}")
