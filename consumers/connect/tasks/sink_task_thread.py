"""The loop of a sink task: consume, convert, put, flush, commit.

An offset is committed after `pre_commit` has returned it, and after the dead letters of records
before it are stored. So a record may come more than once, and is never lost. While the cluster is
away the task waits. What Kafka's WorkerSinkTask does is meant to happen here, too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from consumers.connect.data.exceptions import ConnectException, RetriableException
from consumers.connect.data.records import SinkRecord
from consumers.connect.errors.sealed_records import SealedRecords
from consumers.connect.errors.settings import ErrorSettings
from consumers.connect.observability.measures import Measure
from consumers.connect.plugins.sink_task import SinkTask, TopicPartition
from consumers.connect.storage.states import State, TargetState, TaskId
from consumers.connect.tasks.client_properties import ClientProperties
from consumers.connect.tasks.converters import Pipeline
from consumers.connect.tasks.dead_letter_writer import DeadLetterWriter
from consumers.connect.tasks.erased_records import ErasedRecords, ErasureSource
from consumers.connect.tasks.errant_records import ErrantRecords
from consumers.connect.tasks.operations import Operations
from consumers.connect.tasks.sink_context import TaskSinkContext
from consumers.connect.tasks.sink_counts import SinkCounts
from consumers.connect.tasks.sink_offsets import SinkOffsets
from consumers.connect.tasks.sink_records import SinkRecords
from consumers.connect.tasks.subscription import Subscription
from consumers.connect.tasks.task_thread import TaskListener, TaskThread
from consumers.connect.tasks.timing import Timing
from waylog.kafka.errors import error_text, forbidden_kind
from waylog.kafka.group_membership import leave_group
from waylog.process.log_throttle import RepeatedFailure
from waylog.sealing.unopened import Unopened

logger = logging.getLogger(__name__)

#: The longest time for which a task does not look whether it is to stop or to pause.
_POLL_S: Final = 0.1
_LAST_POLL_S: Final = 0.02
#: Whether the log answers is asked before a task that stops waits for it.
_ANSWER_S: Final = 2.0
#: Errors about what a user has configured: waiting does not help.
_HOPELESS: Final = (
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.INVALID_GROUP_ID,
    KafkaError.INCONSISTENT_GROUP_PROTOCOL,
)


class SinkTaskThread(TaskThread):
    """A sink task."""

    def __init__(
        self,
        task_id: TaskId,
        target: TargetState,
        listener: TaskListener,
        *,
        task: SinkTask,
        properties: Mapping[str, str],
        clients: ClientProperties,
        pipeline: Pipeline,
        errors: ErrorSettings,
        timing: Timing,
        erasures: ErasureSource | None = None,
        unopened: Unopened | None = None,
    ) -> None:
        """`properties` are the task's, with variables replaced.

        `unopened` finds sealed values, which the task must not take; without it takes them.
        """
        super().__init__(task_id, target, listener)
        self._task: Final = task
        self._properties: Final = properties
        self._clients: Final = clients
        self._pipeline: Final = pipeline
        self._errors: Final = errors
        self._timing: Final = timing
        self._erased: Final = ErasedRecords(task_id, erasures)
        self._sealed: Final = SealedRecords(str(task_id), unopened)
        self._consumer: Consumer | None = None
        self._letters: DeadLetterWriter | None = None
        self._has_subscribed = self._is_started = self._is_closed = False
        self._cooperative = True
        self._assigned: Final[set[TopicPartition]] = set()
        self._rebalances = 0
        self._offsets: Final = SinkOffsets()
        self._paused: set[TopicPartition] = set()
        self._was_paused = False
        #: Raised in a callback of the consumer, where nobody would see it.
        self._raised: BaseException | None = None
        self._fatal: KafkaError | None = None
        self._message_failure: Final = RepeatedFailure()
        self._put_failure: Final = RepeatedFailure()
        self._committing_since: float | None = None
        self._next_commit = 0.0
        #: What was consumed and not put yet.
        self._messages: Sequence[Message] = ()
        self._records: list[SinkRecord] = []
        self._ends: dict[TopicPartition, int] = {}
        #: When records come again that a RetriableException was for; None: there are none.
        self._retry_at: float | None = None

        self._counts: Final = SinkCounts()

    # ---- life ----

    def run_task(self) -> None:
        """See TaskThread."""
        if not self._erased.wait(self._stopping):
            return
        self._begin()
        try:
            while not self.is_stopping:
                self._iterate()
        finally:
            # What has ended the task counts, not what follows from it.
            try:
                self._close_at_end()
            except Exception:
                logger.warning("task %s was not flushed at its end", self.task_id, exc_info=True)

    def _begin(self) -> None:
        settings = self._errors
        task_id = self.task_id
        if settings.dead_letter_topic:
            self._letters = DeadLetterWriter(
                settings.dead_letter_topic,
                settings.dead_letter_replication_factor,
                self._clients.producer(f"connector-dlq-producer-{task_id}"),
                self._clients.admin(f"connector-dlq-adminclient-{task_id}"),
            )
        self._operations = Operations(task_id, settings, self._stopping, self._letters)
        self._converted = SinkRecords(self._pipeline, self._operations, self._on_run)
        self._poll_records = self._clients.poll_records_max
        properties = self._clients.consumer(task_id)
        self._cooperative = (
            properties.get("partition.assignment.strategy") == "cooperative-sticky"
            or str(properties.get("group.protocol")).lower() == "consumer"
        )
        self._reporter = (
            ErrantRecords(self._pipeline, self._operations, lambda: self._messages)
            if settings.dead_letter_topic or settings.logs
            else None
        )
        try:
            self._consumer = Consumer(
                {**properties, "on_commit": self._on_commit, "error_cb": self._on_error}
            )
        except KafkaException as error:
            raise ConnectException(f"consumer: {error_text(error)}") from error
        self._context = TaskSinkContext(
            self._properties, lambda: set(self._assigned), self._apply_pauses, self._reporter
        )
        self._subscription = Subscription(self._consumer, self._properties, self._subscribe)
        self._is_started = True
        self._task.context = self._context
        self._task.start(self._properties)
        self._next_commit = time.monotonic() + self._timing.flush_interval_s
        self._wake_at = self._next_commit
        logger.info("sink task %s has started", task_id)
        self.report(State.RUNNING)

    def _subscribe(self, topics: list[str]) -> None:
        assert self._consumer is not None
        self._consumer.subscribe(
            topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        self._has_subscribed = True

    def close(self) -> None:
        """See TaskThread."""
        self._is_closed = True
        try:
            if self._is_started:
                self._task.stop()
        except Exception:
            logger.warning("task %s could not be stopped in order", self.task_id, exc_info=True)
        finally:
            if self._letters is not None:
                self._letters.close(self._timing.flush_timeout_s)
            if self._consumer is not None:
                if self._has_subscribed:
                    leave_group(self._consumer)
                else:
                    self._consumer.close()

    # ---- the loop ----

    def _iterate(self) -> None:
        self._follow_target()
        self._commit_if_due()
        self._rewind()
        self._subscription.look()
        self._erased.tell(self._task)
        messages = self._poll()
        now = time.monotonic()
        if self._retry_at is None:
            if not messages and now < self._wake_at:
                return
            if not self._sealed.check(messages, self._stopping):
                return
            self._take(messages)
        else:
            self._give_back(messages)
            if now < self._retry_at:
                return
        self._put()

    def _take(self, messages: Sequence[Message]) -> None:
        """Make records of messages; what is erased counts as taken."""
        self._counts.read += len(messages)
        kept = self._erased.without(messages)
        self._messages = kept
        self._ends = {}
        self._records = self._converted.convert(kept, self._ends)
        if len(kept) == len(messages):
            return
        for each in messages:
            topic, partition, offset = each.topic() or "", each.partition() or 0, each.offset() or 0
            self._offsets.began(TopicPartition(topic, partition), offset)
            self._ends[TopicPartition(topic, partition)] = offset + 1

    def _give_back(self, messages: Sequence[Message]) -> None:
        """Have records consumed again that came although their partitions are paused."""
        for each in reversed(messages):
            place = TopicPartition(each.topic() or "", each.partition() or 0)
            self._seek(place, each.offset() or 0)

    def _poll(self) -> Sequence[Message]:
        consumer = self._consumer
        assert consumer is not None
        if self._subscription.is_empty:
            self._stopping.wait(_POLL_S)
            return ()
        before = self._rebalances
        first = consumer.poll(_POLL_S)
        messages = [] if first is None else [first, *consumer.consume(self._poll_records - 1, 0)]
        if self._raised is not None:
            raised, self._raised = self._raised, None
            raise raised
        if self._fatal is not None:
            raise ConnectException(f"consumer: {error_text(KafkaException(self._fatal))}")
        errors = [error for each in messages if (error := each.error()) is not None]
        if errors:
            messages = [each for each in messages if each.error() is None]
            for error in errors:
                self._on_message_error(error)
        if self._rebalances != before:
            # Their new owner gets the records of partitions that were revoked meanwhile.
            messages = [
                each for each in messages if (each.topic(), each.partition()) in self._assigned
            ]
        return messages

    def _put(self) -> None:
        """Give the task its records; those of a RetriableException again."""
        context = self._context
        now = time.monotonic()
        context.timeout_ms = None
        self._records = self._erased.drop(self._records, self._messages)
        try:
            began = time.monotonic()
            self._task.put(self._records)
            self._counts.puts.add(time.monotonic() - began)
            if self._reporter is not None:
                self._reporter.raise_error()
        except RetriableException as error:
            if self._put_failure.is_new(error):
                logger.warning("task %s: records come again: %s", self.task_id, error)
            wait_s = max(self._next_commit - now, _POLL_S)
            if context.timeout_ms is not None:
                wait_s = min(wait_s, context.timeout_ms / 1000)
            self._retry_at = now + wait_s
            self._apply_pauses()
            return
        except Exception as error:
            raise ConnectException(
                "Exiting WorkerSinkTask due to unrecoverable exception."
            ) from error
        self._put_failure.succeeded()
        self._counts.sent += len(self._records)
        self._offsets.put(self._ends)
        self._records, self._ends = [], {}
        if self._retry_at is not None:
            logger.info("task %s: records are taken again", self.task_id)
            self._retry_at = None
            self._apply_pauses()
        timeout_ms = context.timeout_ms
        self._wake_at = self._next_commit
        if timeout_ms is not None:
            self._wake_at = min(self._wake_at, now + timeout_ms / 1000)

    def _on_run(self, topic: str, partition: int, offset: int) -> None:
        self._offsets.began(TopicPartition(topic, partition), offset)
        self.report_topic(topic)

    def _follow_target(self) -> None:
        if self.is_paused is self._was_paused:
            return
        self._was_paused = self.is_paused
        self._apply_pauses()
        if self._was_paused:
            self._context.request_commit()
        self.report(State.PAUSED if self._was_paused else State.RUNNING)

    def _apply_pauses(self) -> None:
        """Pause and resume partitions: all while the task is paused, or has records to put again,
        else those that the task has chosen.
        """
        consumer = self._consumer
        if consumer is None or self._is_closed:
            return
        wanted = set(self._assigned)
        if not self._was_paused and self._retry_at is None:
            wanted &= self._context.paused
        now = self._paused & self._assigned
        if wanted - now:
            consumer.pause(_client_partitions(wanted - now))
        if now - wanted:
            consumer.resume(_client_partitions(now - wanted))
        self._paused = wanted

    def _rewind(self) -> None:
        """Go on where the task wants to."""
        wanted = self._context.offsets
        for partition in list(wanted):
            if partition not in self._assigned:
                logger.warning("offset of %s is ignored: it is not assigned", partition)
                del wanted[partition]
            elif self._seek(partition, wanted[partition]):
                self._offsets.rewound(partition, wanted.pop(partition))

    def _seek(self, partition: TopicPartition, offset: int) -> bool:
        assert self._consumer is not None
        try:
            self._consumer.seek(confluent_kafka.TopicPartition(*partition, offset))
        except KafkaException as error:
            # A partition that was assigned just now has no position yet.
            logger.debug("%s is rewound later: %s", partition, error_text(error))
            return False
        return True

    # ---- offsets ----

    def _commit_if_due(self) -> None:
        now = time.monotonic()
        since = self._committing_since
        if since is not None:
            if now < since + self._timing.flush_timeout_s:
                return
            logger.warning("task %s: commit of offsets timed out", self.task_id)
            self._committing_since = None
        if self._context.commit_requested or now >= self._next_commit:
            self._commit(self._assigned, closing=False)
            self._next_commit = now + self._timing.flush_interval_s
            self._context.commit_requested = False

    def _commit(self, partitions: Collection[TopicPartition], *, closing: bool) -> None:
        asked = self._offsets.to_commit(partitions)
        try:
            answered = self._flush(asked, partitions, closing=closing)
        finally:
            if closing:
                self._task.close(partitions)
        accepted = self._offsets.accepted(asked, answered, self._assigned)
        if not accepted or self.is_cancelled:
            return
        assert self._consumer is not None
        offsets = [
            confluent_kafka.TopicPartition(*each, offset) for each, offset in accepted.items()
        ]
        try:
            # Not even partitions that are revoked are waited for here: a coordinator that does not
            # answer would hold the task for ever. librdkafka gives them back, and joins again, only
            # when their commit is answered (`rd_kafka_assignment_serve_removals`).
            self._consumer.commit(offsets=offsets, asynchronous=True)
            self._committing_since = time.monotonic()
        except KafkaException as error:
            # Their records come again: delivery is at least once.
            logger.warning(
                "task %s: offsets were not committed: %s", self.task_id, error_text(error)
            )

    def _flush(
        self,
        asked: Mapping[TopicPartition, int],
        partitions: Collection[TopicPartition],
        *,
        closing: bool,
    ) -> Mapping[TopicPartition, int]:
        """Return what the task lets be committed; ConnectException for a lost dead letter."""
        if not self._operations.await_dead_letters(self._timing.flush_timeout_s):
            logger.warning(
                "task %s: offsets are committed once dead letters are stored", self.task_id
            )
            return {}
        if not asked:
            return {}
        try:
            return self._task.pre_commit(dict(asked))
        except Exception as error:
            self._flush_failed(partitions, error, closing=closing)
            return {}

    def _flush_failed(
        self, partitions: Collection[TopicPartition], error: Exception, *, closing: bool
    ) -> None:
        if closing:
            logger.warning("task %s: offsets were not committed at the end", self.task_id,
                           exc_info=error)  # fmt: skip
            return
        logger.error(
            "task %s: offsets were not committed; records come again from the last committed ones",
            self.task_id,
            exc_info=error,
        )
        back = self._offsets.back_to_committed(partitions)
        self._context.offsets.update(back)
        self._records, self._ends, self._messages = [], {}, ()
        if self._retry_at is not None:
            self._retry_at = None
            self._apply_pauses()

    def _on_commit(
        self, error: KafkaError | None, offsets: list[confluent_kafka.TopicPartition]
    ) -> None:
        self._committing_since = None
        if error is not None:
            logger.warning(
                "task %s: offsets were not committed: %s",
                self.task_id,
                error_text(KafkaException(error)),
            )
            return
        self._counts.commits += 1
        self._offsets.committed(
            {
                TopicPartition(each.topic, each.partition): each.offset
                for each in offsets
                if each.error is None
            }
        )

    # ---- the group ----

    def _on_assign(
        self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition]
    ) -> None:
        added = [TopicPartition(each.topic, each.partition) for each in partitions]
        self._rebalances += 1
        self._assigned.update(added)
        try:
            if added and not self._is_closed:
                logger.info("task %s: assigned %s", self.task_id, ", ".join(map(str, added)))
                self._task.open(added)
                for each in partitions:
                    place = TopicPartition(each.topic, each.partition)
                    if place in self._context.offsets:
                        each.offset = self._context.offsets.pop(place)
                        self._offsets.assigned(place, each.offset)
        except BaseException as error:
            self._raised = error
        if self._cooperative:
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)
        self._context.paused.intersection_update(self._assigned)
        self._apply_pauses()

    def _on_revoke(
        self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition]
    ) -> None:
        self._remove(consumer, partitions, is_lost=False)

    def _on_lost(
        self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition]
    ) -> None:
        self._remove(consumer, partitions, is_lost=True)

    def _remove(
        self,
        consumer: Consumer,
        partitions: list[confluent_kafka.TopicPartition],
        *,
        is_lost: bool,
    ) -> None:
        removed = {TopicPartition(each.topic, each.partition) for each in partitions}
        self._rebalances += 1
        try:
            if removed and not self._is_closed:
                word = "lost" if is_lost else "revoked"
                logger.info("task %s: %s %s", self.task_id, word, ", ".join(map(str, removed)))
                if is_lost:
                    # Another member has them already: nothing may be committed.
                    self._task.close(removed)
                else:
                    self._commit(removed, closing=True)
        except BaseException as error:
            self._raised = error
        self._assigned.difference_update(removed)
        self._paused.difference_update(removed)
        self._offsets.removed(removed)
        self._records = [
            each
            for each in self._records
            if (each.original_topic, each.original_partition) not in removed
        ]
        self._ends = {each: end for each, end in self._ends.items() if each not in removed}
        if self._cooperative:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    def _close_at_end(self) -> None:
        """Flush and commit what was put, whatever has ended the task."""
        self._is_closed = True
        partitions = set(self._assigned)
        if not partitions:
            return
        if not self._log_answers():
            logger.warning(
                "task %s: the log does not answer: what is not committed comes again", self.task_id
            )
            self._task.close(partitions)
            return
        self._committing_since = None
        self._commit(partitions, closing=True)
        self._await_commit()

    def _await_commit(self) -> None:
        """Wait for the last commit, for a time: amid a rebalance it may never be answered."""
        assert self._consumer is not None
        self._consumer.pause(_client_partitions(self._assigned))
        deadline = time.monotonic() + self._timing.flush_timeout_s
        while self._committing_since is not None and not self.is_cancelled:
            if time.monotonic() > deadline:
                logger.warning("task %s: the last commit of offsets timed out", self.task_id)
                break
            # Its records are not put any more; callbacks are served.
            self._consumer.poll(_LAST_POLL_S)

    def _log_answers(self) -> bool:
        assert self._consumer is not None
        try:
            self._consumer.list_topics(next(iter(self._assigned)).topic, timeout=_ANSWER_S)
        except KafkaException:
            return False
        return True

    def measures(self) -> Iterator[Measure]:
        """See TaskThread."""
        yield from self._counts.measures(len(self._assigned), self._erased.count)
        if self._is_started:
            yield from self._operations.measures()

    # ---- trouble ----

    def _on_message_error(self, error: KafkaError) -> None:
        text = error_text(KafkaException(error))
        if error.fatal() or error.code() in _HOPELESS or forbidden_kind(error) is not None:
            raise ConnectException(f"consumer: {text}")
        if self._message_failure.is_new(KafkaException(error)):
            logger.warning("task %s: consuming: %s", self.task_id, text)

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._fatal = error
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            logger.warning("task %s: no broker can be reached", self.task_id)


def _client_partitions(
    partitions: Collection[TopicPartition],
) -> list[confluent_kafka.TopicPartition]:
    return [confluent_kafka.TopicPartition(*each) for each in partitions]
