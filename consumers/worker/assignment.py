"""The partitions that are assigned to a session."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Generic, TypeAlias

from confluent_kafka import TopicPartition

from consumers.worker.processor import StateT


@dataclass(eq=False)
class Assignment(Generic[StateT]):
    """A partition while it is assigned. When it is assigned again, there is a new object."""

    topic: str
    partition: int
    state: StateT
    position: int = -1  # after the last record that was processed
    acknowledged: int = -1  # after the last record whose results are acknowledged
    committed: int = -1  # the offset that the group knows; at most `acknowledged`
    restored: bool = False
    revoked: threading.Event = field(default_factory=threading.Event)

    @property
    def place(self) -> TopicPartition:
        """The partition as clients want it."""
        return TopicPartition(self.topic, self.partition)


class Assignments(Generic[StateT]):
    """All assigned partitions of a session.

    Partition n of a delayed topic is assigned with partition n of the topic that is consumed, and
    shares its state.
    """

    def __init__(self) -> None:
        self.consumed: dict[int, Assignment[StateT]] = {}
        self.delayed: dict[tuple[str, int], Assignment[StateT]] = {}
        #: The states of the partitions that are consumed and restored.
        self.states: dict[int, StateT] = {}

    def all(self) -> list[Assignment[StateT]]:
        """Return all of them."""
        return [*self.consumed.values(), *self.delayed.values()]

    def add(self, assignment: Assignment[StateT], delayed_topics: tuple[str, ...]) -> None:
        """Add a partition that is consumed, and those that go with it."""
        partition = assignment.partition
        self.consumed[partition] = assignment
        self.states.pop(partition, None)
        for topic in delayed_topics:
            self.delayed[topic, partition] = Assignment(topic, partition, assignment.state)

    def restored(self, assignment: Assignment[StateT]) -> None:
        """Note that the state of a partition is complete, so that its records can be processed."""
        assignment.restored = True
        self.states[assignment.partition] = assignment.state

    def find(self, topic: str, partition: int) -> Assignment[StateT] | None:
        """Return the assignment of a partition, None if it is not assigned."""
        delayed = self.delayed.get((topic, partition))
        if delayed is not None:
            return delayed
        found = self.consumed.get(partition)
        return found if found is not None and found.topic == topic else None

    def take(self, partition: int) -> list[Assignment[StateT]]:
        """Remove a partition that is consumed and those that go with it; return them."""
        found = self.consumed.pop(partition, None)
        self.states.pop(partition, None)
        taken = [] if found is None else [found]
        for key in [key for key in self.delayed if key[1] == partition]:
            taken.append(self.delayed.pop(key))
        for each in taken:
            each.revoked.set()
        return taken


#: Assignments with the offset after the last of their records in a batch.
Ends: TypeAlias = list[tuple[Assignment[StateT], int]]
