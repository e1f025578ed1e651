"""Delayed topics: records that are processed when they are due, without blocking others.

All records of a delayed topic wait for the same time, so that those of a partition are due in the
order in which they were written. A partition whose next record is not due is paused, and read on
from that record when it is. Nothing is held in memory meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from confluent_kafka import Consumer, Message, TopicPartition

from consumers.worker.processor import State, StateT
from consumers.worker.records import InputRecord, OutputRecord

_StateT_contra = TypeVar("_StateT_contra", bound=State, contravariant=True)


class DelayedProcessor(Protocol[_StateT_contra]):
    """The logic for records of delayed topics, beside that of a Processor."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics; each has as many partitions as the topic that is consumed."""

    def due_ms(self, record: InputRecord) -> int:
        """Return when a record is to be processed, in ms since 1970. Must not raise."""

    def process(
        self,
        batch: Mapping[int, Sequence[InputRecord]],
        states: Mapping[int, _StateT_contra],
        now_ms: int,
    ) -> list[OutputRecord]:
        """Return the records to write for records that are due, by partition. Must not raise."""


class Delays(Generic[StateT]):
    """The partitions of delayed topics that wait for their next record to be due."""

    def __init__(self, consumer: Consumer, processor: DelayedProcessor[StateT]) -> None:
        self.processor = processor
        self._consumer = consumer
        # When the next record of a paused partition is due, and its offset.
        self._waiting: dict[tuple[str, int], tuple[int, int]] = {}

    def due(self, message: Message, now_ms: int) -> bool:
        """Return whether a record is to be processed now; pauses its partition if it is not.

        Records behind one that waits were read ahead: they are read again, after that one.
        """
        key = (message.topic() or "", message.partition() or 0)
        if key in self._waiting:
            return False
        due_ms = self.processor.due_ms(message)
        if due_ms <= now_ms:
            return True
        self._waiting[key] = (due_ms, message.offset() or 0)
        self._consumer.pause([TopicPartition(*key)])
        return False

    def resume(self, now_ms: int) -> None:
        """Read on in partitions whose next record is due; raises KafkaException."""
        for key, (due_ms, offset) in list(self._waiting.items()):
            if due_ms <= now_ms:
                del self._waiting[key]
                self._consumer.seek(TopicPartition(*key, offset))
                self._consumer.resume([TopicPartition(*key)])

    def forget(self, partitions: Sequence[TopicPartition]) -> None:
        """Forget partitions that are not assigned any more."""
        for each in partitions:
            self._waiting.pop((each.topic, each.partition), None)
