"""The loop of a source task: poll, transform, convert, produce; offsets follow acknowledgements.

An offset is stored after the log has acknowledged every record of its source partition up to it. So
a record may be written more than once, and is never left out. While the cluster is away the task
waits. What Kafka's WorkerSourceTask does is meant to happen here, too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypedDict

from confluent_kafka import KafkaError, KafkaException, Message

from consumers.connect.configuration.topic_creation import TopicCreation
from consumers.connect.data.exceptions import ConnectException, RetriableException
from consumers.connect.data.records import SourceRecord
from consumers.connect.errors.settings import ErrorSettings
from consumers.connect.errors.stages import Stage
from consumers.connect.observability.measures import Durations, Measure
from consumers.connect.plugins.source_task import (
    OffsetReader,
    RecordMetadata,
    SourceTask,
    TransactionContext,
)
from consumers.connect.storage.offsets import (
    Offset,
    OffsetStore,
    Partition,
    StoredOffsetReader,
    check_offset,
    partition_key,
)
from consumers.connect.storage.states import State, TargetState, TaskId
from consumers.connect.tasks.client_properties import ClientProperties
from consumers.connect.tasks.converters import Pipeline
from consumers.connect.tasks.operations import Operations
from consumers.connect.tasks.source_records import OutgoingRecord, SourceRecords
from consumers.connect.tasks.submitted_records import SubmittedRecord, SubmittedRecords
from consumers.connect.tasks.task_thread import TaskListener, TaskThread
from consumers.connect.tasks.timing import Timing
from consumers.connect.tasks.topic_creator import TopicCreator
from waylog.kafka.errors import error_text, is_purged, not_stored_text
from waylog.kafka.librdkafka_producer import LibrdkafkaProducer
from waylog.process.log_throttle import LogThrottle, RepeatedFailure, since_last_line

logger = logging.getLogger(__name__)

#: Seconds until a batch is tried again whose topic could not be created.
_SEND_AGAIN_S: Final = 0.1
_QUEUE_FULL_S: Final = 0.05
#: Seconds of an empty poll at least.
_IDLE_S: Final = 0.01
_PURGE_S: Final = 1.0
#: Errors of `produce` that are about the record, not about the producer.
_OF_ONE_RECORD: Final = frozenset(
    (
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._INVALID_ARG,
        KafkaError.TOPIC_EXCEPTION,
    )
)
_METRICS: Final = "source-task-metrics"
_TASK_CLASS: Final = "org.apache.kafka.connect.runtime.WorkerSourceTask"


class TaskSourceContext:
    """The context of one task (`SourceTaskContext`)."""

    def __init__(
        self,
        properties: Mapping[str, str],
        offset_reader: OffsetReader,
        transaction_context: TransactionContext | None = None,
    ) -> None:
        self._properties: Final = properties
        self.offset_reader: Final = offset_reader
        self.transaction_context: Final = transaction_context

    def configs(self) -> Mapping[str, str]:
        """See SourceTaskContext."""
        return self._properties


class SourceParts(TypedDict):
    """What a source task is made of; see SourceTaskThread."""

    task: SourceTask
    properties: Mapping[str, str]
    clients: ClientProperties
    pipeline: Pipeline
    errors: ErrorSettings
    timing: Timing
    store: OffsetStore
    creation: TopicCreation | None


class SourceTaskThread(TaskThread):
    """A source task. `serve` and `commit_offsets` are called in the committer's thread."""

    def __init__(
        self,
        task_id: TaskId,
        target: TargetState,
        listener: TaskListener,
        *,
        task: SourceTask,
        properties: Mapping[str, str],
        clients: ClientProperties,
        pipeline: Pipeline,
        errors: ErrorSettings,
        timing: Timing,
        store: OffsetStore,
        creation: TopicCreation | None,
    ) -> None:
        """`creation` is None for a worker that creates no topics."""
        super().__init__(task_id, target, listener)
        self._task: Final = task
        self._properties: Final = properties
        self._clients: Final = clients
        self._pipeline: Final = pipeline
        self._errors: Final = errors
        self.timing: Final = timing
        self._store: Final = store
        self._creation: Final = creation
        self._submitted: Final = SubmittedRecords()
        self._commit_lock: Final = threading.Lock()
        #: Acknowledged offsets that are not stored yet, by source partition.
        self._to_store: dict[bytes, tuple[Partition, Offset | None]] = {}
        self._to_store_lock: Final = threading.Lock()
        self._producer: LibrdkafkaProducer | None = None
        self._is_started = self._has_failed = False
        self._send_error: ConnectException | None = None
        self._creator: TopicCreator | None = None
        self._to_send: Sequence[SourceRecord] = ()
        self._tells_task: Final = type(task).commit_record is not SourceTask.commit_record

        self._left_out: Final = LogThrottle()
        self._poll_failure: Final = RepeatedFailure()
        #: Acknowledgements are also taken in the committer's thread, until the producer is closed.
        self._serving: Final = threading.Lock()
        self._polled = self._written_count = 0
        self._polls: Final = Durations()

    # ---- life ----

    def run_task(self) -> None:
        """See TaskThread."""
        self._begin()
        try:
            while not self.is_stopping:
                self._iterate()
        except BaseException:
            self._has_failed = True
            raise
        finally:
            self._store_at_end()

    def _begin(self) -> None:
        self._operations = Operations(self.task_id, self._errors, self._stopping, None)
        self._converted = SourceRecords(self._pipeline, self._operations)
        try:
            self._producer = LibrdkafkaProducer(self._producer_properties())
        except KafkaException as error:
            raise ConnectException(f"producer: {error_text(error)}") from error
        if self._creation is not None:
            admin = self._clients.admin(f"connector-adminclient-{self.task_id}")
            self._creator = TopicCreator(self._creation, admin)
        self._prepare()
        reader = StoredOffsetReader(self._store, self.task_id.connector)
        self._is_started = True
        self._task.context = self._make_context(reader)
        self._task.start(self._properties)
        logger.info("source task %s has started", self.task_id)
        self.report(State.RUNNING)

    def _producer_properties(self) -> Mapping[str, Any]:
        return self._clients.producer(f"connector-producer-{self.task_id}")

    def _prepare(self) -> None:
        """Do what is to be done before offsets are read."""

    def _make_context(self, reader: OffsetReader) -> TaskSourceContext:
        return TaskSourceContext(self._properties, reader)

    def close(self) -> None:
        """See TaskThread."""
        try:
            if self._is_started:
                self._task.stop()
        except Exception:
            logger.warning("task %s could not be stopped in order", self.task_id, exc_info=True)
        finally:
            self._creator = None
            self._close_producer()

    def _close_producer(self) -> None:
        with self._serving:
            producer, self._producer = self._producer, None
            if producer is None:
                return
            try:
                # What was not acknowledged comes again: its offset is not stored.
                producer.purge()
                producer.flush(_PURGE_S)
            finally:
                # Its threads and connections would otherwise live until a garbage collection.
                producer.close()

    # ---- the loop ----

    def _iterate(self) -> None:
        self._raise_send_error()
        if self.is_paused:
            self._pausing()
            self.report(State.PAUSED)
            if self.wait_until_resumed():
                self.report(State.RUNNING)
            return
        if not self._to_send:
            began = time.monotonic()
            self._to_send = self._poll() or ()
            if self._to_send:
                self._polled += len(self._to_send)
                self._polls.add(time.monotonic() - began)
            if not self._to_send:
                self._idle()
                if time.monotonic() - began < _IDLE_S:
                    # A connector that does not wait would take all of a processor.
                    self._stopping.wait(_IDLE_S)
        if self._to_send and not self._send():
            self._stopping.wait(_SEND_AGAIN_S)
        self.serve()
        self._collect()

    def _poll(self) -> Sequence[SourceRecord] | None:
        try:
            polled = self._task.poll()
        except RetriableException as error:
            if self._poll_failure.is_new(error):
                logger.warning("task %s polls again: %s", self.task_id, error)
            self._stopping.wait(_SEND_AGAIN_S)
            return None
        self._poll_failure.succeeded()
        return polled

    def _send(self) -> bool:
        """Send the batch; return False if a part of it has to be sent later."""
        for number, record in enumerate(self._to_send):
            if self.is_cancelled:
                return False  # another task may have begun in its place
            outgoing = self._converted.convert(record)
            if outgoing is None:
                # Its offset is stored with that of a later record.
                self._tell(record, None)
                self._after_record(record)
                continue
            try:
                if self._creator is not None:
                    self._creator.ensure(outgoing.topic)
            except RetriableException as error:
                logger.warning("task %s: %s", self.task_id, error)
                self._to_send = self._to_send[number:]
                return False
            if not self._produce(record, outgoing):
                self._to_send = self._to_send[number:]
                return False
            self._after_record(record)
        self._to_send = ()
        self._after_batch()
        return True

    def _after_record(self, record: SourceRecord) -> None:
        """Take note that a record was sent, or left out."""

    def _after_batch(self) -> None:
        """Take note that all records of a batch were sent."""

    def _idle(self) -> None:
        """Take note that there are no records at present."""

    def _pausing(self) -> None:
        """Take note that the task pauses."""

    def _produce(self, record: SourceRecord, outgoing: OutgoingRecord) -> bool:
        """Hand a record to the producer; return False if the task stops before there is room."""
        producer = self._producer
        assert producer is not None
        self._raise_send_error()
        submitted = self._submitted.submit(record)
        topic, value, key, partition, timestamp, headers = outgoing
        delivered = partial(self._delivered, record, submitted)
        while True:
            try:
                producer.produce(
                    topic, value, key, partition, delivered, timestamp=timestamp, headers=headers
                )
                return True
            except BufferError:
                self._poll_producer(_QUEUE_FULL_S)
                self._raise_send_error()
                if self.is_stopping:
                    self._submitted.withdraw(submitted)
                    return False
            except (KafkaException, ValueError, TypeError, OverflowError) as error:
                self._refused(record, submitted, topic, error)
                return True

    def _refused(
        self, record: SourceRecord, submitted: SubmittedRecord, topic: str, error: Exception
    ) -> None:
        """Leave a record out that the producer does not take (KIP-779).

        Raises ConnectException if that is not tolerated, or not the record's fault.
        """
        is_kafkas = isinstance(error, KafkaException)
        text = not_stored_text(error, topic) if isinstance(error, KafkaException) else str(error)
        if is_kafkas and error.args[0].code() not in _OF_ONE_RECORD:
            raise ConnectException(f"Unrecoverable exception trying to send: {text}") from error
        if not self._errors.tolerates_all:
            # What comes behind it is not sent, and its offset is not stored.
            raise ConnectException(
                f"Unrecoverable exception trying to send to topic {topic}: {text}"
            ) from error
        self._leave_out(record, topic, text)
        self._submitted.acknowledge(submitted)
        self._tell(record, None)

    def _leave_out(self, record: SourceRecord, topic: str, text: str) -> None:
        """Log and count a record that is tolerated; raises ConnectException if it is not."""
        unsaid = self._left_out.count(time.monotonic())
        if unsaid is not None:
            logger.warning(
                "task %s leaves out a record that topic %s does not take: %s%s",
                *(self.task_id, topic, text, since_last_line(unsaid)),
            )
        failure = ConnectException(f"{topic}: {text}")
        self._operations.failed(record, Stage.KAFKA_PRODUCE, _TASK_CLASS, failure)

    # ---- acknowledgements, in any thread ----

    def _delivered(
        self,
        record: SourceRecord,
        submitted: SubmittedRecord,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        topic = message.topic() or ""
        if error is None:
            self._submitted.acknowledge(submitted)
            self._written_count += 1
            if self._tells_task:
                place = RecordMetadata(topic, message.partition() or 0, message.offset() or 0)
                self._delivered_ok(record, place)
            self.report_topic(topic)
            return
        if is_purged(error):
            return
        if self._not_delivered(record, error, message):
            self._submitted.acknowledge(submitted)
            self._tell(record, None)

    def _delivered_ok(self, record: SourceRecord, metadata: RecordMetadata) -> None:
        """Take note that the log has a record, for a task that wants to know."""
        self._tell(record, metadata)

    def _not_delivered(self, record: SourceRecord, error: KafkaError, message: Message) -> bool:
        """Take note that the log has refused a record; return whether that is tolerated."""
        topic = message.topic() or ""
        text = not_stored_text(error, topic)
        if not self._errors.tolerates_all or error.fatal():
            logger.error("task %s failed to send a record to %s: %s", self.task_id, topic, text)
            self._fail_sending(ConnectException(f"{topic}: {text}"))
            return False
        try:
            self._leave_out(record, topic, text)
        except ConnectException as not_tolerated:
            self._fail_sending(not_tolerated)
            return False
        return True

    def _tell(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:
        if not self._tells_task:
            return
        try:
            self._task.commit_record(record, metadata)
        except Exception:
            logger.exception("task %s: commit_record has failed", self.task_id)

    def _fail_sending(self, cause: BaseException) -> None:
        if self._send_error is None:
            text = f"Unrecoverable exception from producer send callback: {cause}"
            error = ConnectException(text)
            error.__cause__ = cause
            self._send_error = error

    def _raise_send_error(self) -> None:
        if self._send_error is not None:
            raise self._send_error

    def _poll_producer(self, timeout_s: float) -> None:
        producer = self._producer
        if producer is None:
            return
        try:
            producer.poll(timeout_s)
        except KafkaException as error:
            self._fail_sending(error)

    def serve(self) -> None:
        """Take acknowledgements that have come."""
        with self._serving:
            self._poll_producer(0)

    def measures(self) -> Iterator[Measure]:
        """See TaskThread."""
        yield Measure(_METRICS, "source-record-poll-total", self._polled)
        yield Measure(_METRICS, "source-record-write-total", self._written_count)
        yield Measure(_METRICS, "source-record-active-count", self._submitted.unacknowledged)
        yield from self._polls.measures(_METRICS, "poll-batch")
        if self._is_started:
            yield from self._operations.measures()

    # ---- offsets ----

    def _collect(self) -> None:
        """Take note of offsets that may be stored, and forget the records before them."""
        found = self._submitted.committable()
        if found:
            with self._to_store_lock:
                for partition, offset in found:
                    self._to_store[partition_key(partition)] = (partition, offset)

    def commit_offsets(self) -> None:
        """Store the offsets up to which all records are acknowledged.

        What could not be stored is stored with the next ones. Raises ConnectException.
        """
        with self._commit_lock:
            self._collect()
            with self._to_store_lock:
                offsets, self._to_store = self._to_store, {}
            try:
                if offsets:
                    for each in offsets.values():
                        for one in each:
                            check_offset(one)
                    self._store.put(self.task_id.connector, list(offsets.values()))
            except BaseException:
                with self._to_store_lock:
                    self._to_store = offsets | self._to_store
                raise
        self._tell_committed()

    def _tell_committed(self) -> None:
        try:
            self._task.commit()
        except Exception:
            logger.exception("task %s: commit has failed", self.task_id)

    @property
    def may_commit(self) -> bool:
        """Tell whether offsets are still stored from outside."""
        return self._is_started and not (self._has_failed or self.is_cancelled or self.has_ended)

    def _store_at_end(self) -> None:
        if self.is_cancelled or self._producer is None or not self._is_started:
            return
        deadline = time.monotonic() + self.timing.flush_timeout_s
        try:
            while self._submitted.unacknowledged and time.monotonic() < deadline:
                self._producer.flush(_QUEUE_FULL_S)
                if self._send_error is not None or self.is_cancelled:
                    break
            self.commit_offsets()
        except (KafkaException, ConnectException) as error:
            logger.warning(
                "task %s: the last offsets were not stored: %s", self.task_id, error_text(error)
            )
