"""Consumers that tell what was still assigned to them when they were closed."""

from __future__ import annotations

from typing import ClassVar

from confluent_kafka import Consumer, TopicPartition


class ObservedConsumer(Consumer):
    """confluent-kafka's consumer; `held` has what each was assigned as `close` was called."""

    held: ClassVar[list[list[TopicPartition]]]

    def close(self) -> None:
        """Note the assignment, then close."""
        self.held.append(self.assignment())
        super().close()


def observed_consumers() -> type[ObservedConsumer]:
    """A class of its own `held`, to be put in the place of confluent-kafka's."""

    class Observed(ObservedConsumer):
        held: ClassVar[list[list[TopicPartition]]] = []

    return Observed
