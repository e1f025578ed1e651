"""Results at least once: a partition's offset is committed after all results of its records were
acknowledged.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import Final, Generic

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from consumers.worker.assignment import Assignment, Assignments, Ends
from consumers.worker.dead_letters import DeadLetters
from consumers.worker.erasure_filter import ErasureFilter
from consumers.worker.membership import Membership
from consumers.worker.processor import StateT
from consumers.worker.records import OutputRecord
from consumers.worker.results import Changes, ResultProducer, SessionFailed
from waylog.kafka.errors import error_text, not_stored_text
from waylog.kafka.topics import ERROR

logger = logging.getLogger(__name__)


class AtLeastOnceResults(Generic[StateT]):
    """The results of a session and the offsets of its records; see consumers.worker.results."""

    def __init__(
        self,
        membership: Membership[StateT],
        consumer: Consumer,
        assignments: Assignments[StateT],
        erased: ErasureFilter,
    ) -> None:
        self._settings = membership.settings
        self._stopping = membership.stopping
        self._watchdog = membership.watchdog
        self._consumer = consumer
        self._assignments = assignments
        # Batches whose results are on their way to the log.
        self._unacknowledged: deque[Ends[StateT]] = deque()
        self._committing = False
        self._next_commit = 0.0
        # A result waits for the broker, however long that is away. One that cannot be delivered
        # even then is an error that new clients may not have.
        self._producer: Final = ResultProducer(membership, erased, {"delivery.timeout.ms": 0})
        self._dead_letters = DeadLetters(
            membership.bootstrap_servers, membership.client_id, membership.status
        )

    def start(self) -> bool:
        """Return True: nothing has to be prepared."""
        return True

    def write(self, outputs: Sequence[OutputRecord], changes: Changes, ends: Ends[StateT]) -> None:
        """Queue results, and dead letters on a way of their own.

        Waits until the results are stored before it queues changes of states that know of them.
        """
        letters = [output for output in outputs if output.topic == ERROR]
        if letters:
            outputs = [output for output in outputs if output.topic != ERROR]
            self._dead_letters.send_all(letters, self._wait_for_room)
        self._producer.produce(outputs, self._wait_for_room)
        if outputs and changes:
            while not self._is_stored():
                if self._stopping.is_set():
                    raise SessionFailed("stopped before the results of a batch were stored")
        self._producer.produce_changes(changes, self._wait_for_room)
        self._unacknowledged.append(ends)

    def settle(self) -> None:
        """Send the queued results, one request a partition, and wait until they are stored.

        One batch at a time: with more requests in flight than an idempotent producer may have (5),
        librdkafka's thread spins until the log has answered.
        """
        self._producer.client.poll(0)
        self._producer.check()
        while self._unacknowledged and not self._stopping.is_set():
            self._flush()
        self._commit_soon()

    def hand_over(self, leaving: Sequence[Assignment[StateT]]) -> None:
        """Wait for all acknowledgements, up to a limit, then commit."""
        deadline = time.monotonic() + self._settings.drain_s
        while self._unacknowledged and time.monotonic() < deadline:
            self._flush()
        if not self._unacknowledged:
            self._commit_now(leaving)

    def give_up(self) -> None:
        """Do nothing: an offset is acknowledged once all results before it are stored."""

    def abandon(self) -> None:
        """Do nothing: results that come twice are no error."""

    def on_commit(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        """Note which offsets the group knows."""
        self._committing = False
        if error is not None:
            logger.info("offsets are committed again: %s", error.str())
            return
        for offset in offsets:
            assignment = self._assignments.find(offset.topic, offset.partition)
            if assignment is not None and offset.error is None:
                assignment.committed = max(assignment.committed, offset.offset)

    def close(self) -> None:
        """Forget what is queued."""
        try:
            self._dead_letters.purge()
            self._producer.close()
        except KafkaException as error:
            logger.debug("the producer has failed: %s", error_text(error))

    def _wait_for_room(self) -> None:
        self._dead_letters.flush(0)
        self._watchdog.alive()
        self._producer.check()
        if self._stopping.is_set():
            raise SessionFailed("stopped while the log does not keep up")

    def _flush(self) -> None:
        """Wait a moment; once nothing is in flight, everything was stored or has failed."""
        if not self._is_stored():
            return
        while self._unacknowledged:
            for assignment, end in self._unacknowledged.popleft():
                assignment.acknowledged = end

    def _is_stored(self) -> bool:
        """Wait a moment; return whether nothing is in flight. Raises SessionFailed."""
        self._watchdog.alive()
        on_their_way = self._producer.client.flush(0.05) + self._dead_letters.flush(0.05)
        self._producer.check()
        if self._producer.failed is not None:
            topic, error = self._producer.failed
            raise SessionFailed(
                f"a result was not stored in topic {topic}: {not_stored_text(error, topic)}"
            )
        return not on_their_way

    def _commit_soon(self) -> None:
        now = time.monotonic()
        if self._committing or now < self._next_commit:
            return
        offsets = self._uncommitted(self._assignments.all())
        if not offsets:
            return
        self._next_commit = now + self._settings.commit_interval_s
        try:
            self._consumer.commit(offsets=offsets, asynchronous=True)
            self._committing = True
        except KafkaException as error:
            logger.info("offsets are committed later: %s", error.args[0].str())

    def _commit_now(self, assignments: Sequence[Assignment[StateT]]) -> None:
        offsets = self._uncommitted(assignments)
        if not offsets:
            return
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            # Their records will be processed again: delivery is at least once.
            logger.warning("the last offsets were not committed: %s", error.args[0].str())
            return
        for assignment in assignments:
            assignment.committed = assignment.acknowledged

    def _uncommitted(self, assignments: Sequence[Assignment[StateT]]) -> list[TopicPartition]:
        return [
            TopicPartition(assignment.topic, assignment.partition, assignment.acknowledged)
            for assignment in assignments
            if assignment.acknowledged > assignment.committed
        ]
