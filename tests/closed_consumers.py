"""Consumers that record what was still assigned to them when they were closed."""

from __future__ import annotations

from typing import ClassVar

from confluent_kafka import Consumer, TopicPartition


class ObservedConsumer(Consumer):
    """confluent-kafka's consumer; `held` has the assignment of each when `close` was called."""

    held: ClassVar[list[list[TopicPartition]]]

    def close(self) -> None:
        """Record the assignment, then close."""
        self.held.append(self.assignment())
        super().close()


def observed_consumers() -> type[ObservedConsumer]:
    """Return a class with a `held` of its own, to replace confluent-kafka's consumer."""

    class Observed(ObservedConsumer):
        held: ClassVar[list[list[TopicPartition]]] = []

    return Observed
