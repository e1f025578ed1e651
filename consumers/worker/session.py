"""One session of a consumer group's member: the life of its clients, from joining to an error that
they cannot survive.

Records are consumed in batches and handed to a processor; what it returns is stored, and offsets
are committed, by the way that the processing guarantee names (results.py). The next batch gathers
meanwhile. An assigned partition stays paused until its state is restored; the state of a revoked
partition is dropped.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from functools import partial
from itertools import groupby
from operator import methodcaller
from typing import Final, Generic

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from consumers.worker.assignment import Assignment, Assignments, Ends
from consumers.worker.at_least_once import AtLeastOnceResults
from consumers.worker.delays import Delays
from consumers.worker.erasure_filter import ErasureFilter
from consumers.worker.exactly_once import ExactlyOnceResults
from consumers.worker.membership import Counters, Membership, TopicsDiffer
from consumers.worker.processing_guarantee import EXACTLY_ONCE
from consumers.worker.processor import StateT
from consumers.worker.records import OutputRecord
from consumers.worker.restore import Restorer
from consumers.worker.results import Results, SessionFailed, TransactionAborted
from waylog.config import ConfigError
from waylog.kafka.clients import (
    LogForbidden,
    LogUnreachable,
    check_allowed,
    client_config,
    consumer_config,
    ensure_topics,
)
from waylog.kafka.errors import error_text, forbidden_kind, forbidden_text, not_stored_text
from waylog.kafka.group_membership import leave_group
from waylog.kafka.reach import silence_reason
from waylog.kafka.topics import Topic, kept_for
from waylog.observability.interceptors import performance_logged
from waylog.observability.telemetry import now_ms
from waylog.sealing.sealing import opener

logger = logging.getLogger(__name__)

#: Seconds that a stopping worker waits for an answer from the log, before it waits for more.
_ANSWER_S: Final = 2.0
#: Seconds that a session has to last after one that failed before the worker counts as well again.
_WELL_AFTER_S: Final = 15.0
#: Seconds from one round of upkeep to the next: late results, signs of life, reports.
#: A round for each batch would cost the resolver of a few thousand fixes a second some percent.
_UPKEEP_S: Final = 0.1
#: The kind of trouble that failed sessions are.
SESSIONS: Final = "sessions"

# Called from C, for each record.
_error_of: Final = methodcaller("error")
_partition_of: Final = methodcaller("partition")


class Session(Generic[StateT]):
    """The clients of a worker, from their creation to their end."""

    def __init__(self, membership: Membership[StateT]) -> None:
        self.telemetry = membership.telemetry
        self._on_ready = membership.on_ready
        self._processor = membership.processor
        self._settings = membership.settings
        self._counters = membership.counters
        self._stopping = membership.stopping
        self._contact = membership.contact
        self._watchdog = membership.watchdog
        self._topic = membership.topic
        self._group = membership.group
        self._assignments: Assignments[StateT] = Assignments()
        self._restored: deque[Assignment[StateT]] = deque()
        # Why results could not be stored when a callback of the consumer wanted it.
        self._void: SessionFailed | TransactionAborted | KafkaException | None = None
        self._down_said = -1e9
        # True if the log answers at the end of the session; None until it was asked.
        self._answered: bool | None = None
        self._batch_began = 0.0
        servers, client_id = membership.bootstrap_servers, membership.client_id
        self._bootstrap_servers = servers
        self._opener = opener(servers)
        self._erased = ErasureFilter(servers, membership.processor.state_topic)
        self._consumer = Consumer(
            consumer_config(
                servers,
                client_id,
                membership.group,
                # Records read ahead take memory, and do not make processing faster.
                queued_min_messages=2 * self._settings.batch_records,
                queued_max_messages_kbytes=4 * 1024,
            )
            | {"on_commit": self._on_commit, "error_cb": self._on_error}
        )
        self._delays = (
            None if membership.delayed is None else Delays(self._consumer, membership.delayed)
        )
        self._delayed_topics = () if membership.delayed is None else membership.delayed.topics
        self._status = membership.status
        results = (
            ExactlyOnceResults
            if self._settings.processing_guarantee == EXACTLY_ONCE
            else AtLeastOnceResults
        )
        self._results: Results[StateT] = results(
            membership, self._consumer, self._assignments, self._erased
        )
        self._restorer = Restorer(
            client_config(servers, f"{client_id}-restore"),
            membership.processor.state_topic,
            self._status,
            self._opener,
        )

    def run(self) -> None:
        """Consume until the worker stops; raises SessionFailed, and ConfigError for a master key
        that is missing or wrong.
        """
        is_complete = False
        try:
            if not self._await_topics():
                return
            if not self._erased.wait(self._watchdog, self._stopping):
                return
            if not self._results.start():
                return
            self._consumer.subscribe(
                [self._topic],
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
            self._on_ready()
            self._loop()
            if self._log_answers():
                self._results.hand_over(self._assignments.all())
            is_complete = True
        except TransactionAborted as error:
            logger.warning("the last records are processed again: %s", error)
        except KafkaException as error:
            # Only the producer needs a right on the cluster, where it may write to no topic.
            if forbidden_kind(error) == "cluster":
                raise SessionFailed(not_stored_text(error, self._processor.state_topic)) from error
            raise SessionFailed(error_text(error)) from error
        except LogUnreachable as error:
            raise SessionFailed(str(error)) from error
        finally:
            if not is_complete:
                # Whatever it was, it may have come amid the results of a batch. Leaving the group
                # would commit them with the offsets of all records of the batch.
                self._results.give_up()
            self._close()

    def _loop(self) -> None:
        settings = self._settings
        counters = self._counters
        reported, last_report = Counters(**vars(counters)), time.monotonic()
        began, upkeep_due = last_report, last_report
        cpu_before = time.process_time()
        while not self._stopping.is_set():
            messages = self._next_messages()
            now = time.monotonic()
            is_upkeep_due = now >= upkeep_due
            try:
                self._check_void()
                self._resume_restored()
                batch, delayed = self._sort(messages)
                if batch:
                    self._process(batch)
                if self._delays is not None:
                    self._process_due(self._delays, delayed)
                if is_upkeep_due:
                    self._write_late_results()
                self._results.settle()
            except TransactionAborted as error:
                self._begin_again(error)
            if not is_upkeep_due:
                continue
            upkeep_due = now + _UPKEEP_S
            if not self._restorer.hangs:
                self._watchdog.alive()
            self._status.look()
            if now - began > _WELL_AFTER_S:
                self._status.over(SESSIONS)
            if now - last_report >= settings.report_interval_s:
                cpu = time.process_time()
                counters.cpu_s += cpu - cpu_before
                cpu_before = cpu
                self._report(reported, now - last_report)
                reported, last_report = Counters(**vars(counters)), now
        counters.cpu_s += time.process_time() - cpu_before

    def _report(self, since: Counters, seconds: float) -> None:
        records = self._counters.records - since.records
        cpu_s = self._counters.cpu_s - since.cpu_s
        logger.info(
            "%d records in %.0f s, %d results, %.1f us CPU a record, lag %d",
            records,
            seconds,
            self._counters.results - since.results,
            cpu_s * 1e6 / records if records else 0.0,
            self._lag(),
        )

    # ---- records ----

    def _next_messages(self) -> list[Message]:
        """Return records, once there are some and the batch interval has passed."""
        settings = self._settings
        # `consume` alone would wait for its whole timeout unless a batch is full.
        first = self._consumer.poll(settings.batch_wait_s)
        if first is None:
            self._contact.look(self._consumer, self._topic)
            return []
        if first.error() is None:
            self._contact.heard()
        wait_s = self._batch_began + settings.batch_interval_s - time.monotonic()
        time.sleep(max(wait_s, settings.gather_s))
        self._batch_began = time.monotonic()
        return [first, *self._consumer.consume(settings.batch_records - 1, 0)]

    def _sort(self, messages: list[Message]) -> tuple[dict[int, list[Message]], list[Message]]:
        """Return the records by partition, and those of delayed topics; errors are handled."""
        batch: dict[int, list[Message]] = {}
        delayed: list[Message] = []
        if self._delayed_topics or any(map(_error_of, messages)):
            messages = self._consumed(messages, delayed)
        for partition, run in groupby(messages, _partition_of):
            records = batch.get(partition)
            if records is None:
                assignment = self._assignments.consumed.get(partition)
                if assignment is None or not assignment.restored:
                    # Revoked while the records were on their way: they are not committed, and
                    # the new owner gets them.
                    continue
                records = batch[partition] = []
            records += run
        return batch, delayed

    def _consumed(self, messages: list[Message], delayed: list[Message]) -> list[Message]:
        """Return the records of the topic that is consumed; adds others to `delayed`."""
        consumed = []
        for message in messages:
            error = message.error()
            if error is not None:
                self._on_message_error(error)
            elif message.topic() in self._delayed_topics:
                delayed.append(message)
            else:
                consumed.append(message)
        return consumed

    @performance_logged
    def _process(self, batch: dict[int, list[Message]]) -> None:
        assignments = [self._assignments.consumed[partition] for partition in batch]
        states = {assignment.partition: assignment.state for assignment in assignments}
        outputs = self._processor.process(self._opened(batch), states, now_ms())
        ends = []
        for assignment in assignments:
            records = batch[assignment.partition]
            assignment.position = records[-1].offset() + 1  # type: ignore[operator]
            ends.append((assignment, assignment.position))
            self._counters.records += len(records)
        self._counters.batches += 1
        self._write(outputs, states, ends)

    def _process_due(self, delays: Delays[StateT], messages: list[Message]) -> None:
        now = now_ms()
        batch: dict[int, list[Message]] = {}
        ends: dict[tuple[str, int], int] = {}
        for message in messages:
            topic, partition = message.topic() or "", message.partition() or 0
            assignment = self._assignments.consumed.get(partition)
            if assignment is not None and assignment.restored and delays.due(message, now):
                batch.setdefault(partition, []).append(message)
                ends[topic, partition] = (message.offset() or 0) + 1
        # Not before: these messages were read ahead of those that are read again now.
        delays.resume(now)
        if not batch:
            return
        states = {each: self._assignments.consumed[each].state for each in batch}
        outputs = delays.processor.process(self._opened(batch), states, now)
        self._write(
            outputs, states, [(self._assignments.delayed[key], end) for key, end in ends.items()]
        )

    def _opened(self, batch: dict[int, list[Message]]) -> dict[int, list[Message]]:
        """Return the batch with values decrypted.

        Leaves out records whose key is gone or whose device was erased. Raises ConfigError if a
        value needs the master key and there is none, or another.
        """
        batch = self._erased.without(batch)
        return {each: self._opener(records) for each, records in batch.items()}

    def _write_late_results(self) -> None:
        states = self._assignments.states
        outputs = self._processor.late_results(states, now_ms())
        self._write(outputs, states, [])

    def _write(
        self, outputs: list[OutputRecord], states: dict[int, StateT], ends: Ends[StateT]
    ) -> None:
        changes = self._processor.state_changes(states)
        if outputs or changes or ends:
            self._counters.results += len(outputs)
            self._results.write(outputs, changes, ends)

    def _log_answers(self) -> bool:
        """Return True if the log answers at the end; asks it only once in a session."""
        if self._answered is None:
            try:
                self._answered = not self._contact.unanswered
                if self._answered:
                    self._consumer.list_topics(self._topic, timeout=_ANSWER_S)
            except KafkaException:
                self._answered = False
            if not self._answered:
                logger.warning("the log does not answer: what is not committed comes again")
        return self._answered

    def _on_commit(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        self._results.on_commit(error, offsets)

    # ---- the group ----

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        all_partitions = self._with_delayed(partitions)
        consumer.incremental_assign(all_partitions)
        consumer.pause(all_partitions)
        assignments = [
            Assignment(self._topic, each.partition, self._processor.new_state())
            for each in partitions
        ]
        for assignment in assignments:
            self._assignments.add(assignment, self._delayed_topics)
            self._restorer.restore(
                assignment.partition,
                assignment.state.restore,
                partial(self._restored.append, assignment),
                assignment.revoked,
            )
        logger.info("assigned %s", sorted(each.partition for each in partitions))

    def _resume_restored(self) -> None:
        while self._restored:
            assignment = self._restored.popleft()
            if assignment.revoked.is_set():
                continue
            self._assignments.restored(assignment)
            self._consumer.resume(self._with_delayed([assignment.place]))
        failed = self._restorer.failed
        if isinstance(failed, ConfigError):
            raise failed
        if failed is not None:
            raise SessionFailed(f"a state was not restored: {type(failed).__name__}: {failed}")

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # The next owner restores its state from our results: they must be stored first.
        leaving = self._take(partitions)
        try:
            self._results.hand_over(leaving)
        except (SessionFailed, TransactionAborted, KafkaException) as error:
            logger.warning("giving partitions away uncommitted: %s", error_text(error))
            self._void = error
        consumer.incremental_unassign(self._with_delayed(partitions))
        logger.info("revoked %s", sorted(each.partition for each in partitions))

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # Another member owns them already: nothing may be committed.
        self._take(partitions)
        try:
            self._results.abandon()
        except (SessionFailed, TransactionAborted, KafkaException) as error:
            self._void = error
        consumer.incremental_unassign(self._with_delayed(partitions))
        logger.warning("lost %s", sorted(each.partition for each in partitions))

    def _take(self, partitions: list[TopicPartition]) -> list[Assignment[StateT]]:
        if self._delays is not None:
            self._delays.forget(self._with_delayed(partitions))
        taken = []
        for each in partitions:
            taken += self._assignments.take(each.partition)
        return taken

    def _with_delayed(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return partitions that are consumed, and those of delayed topics that go with them."""
        return partitions + [
            TopicPartition(topic, each.partition)
            for topic in self._delayed_topics
            for each in partitions
        ]

    # ---- trouble ----

    def _check_void(self) -> None:
        if self._void is not None:
            error, self._void = self._void, None
            raise error

    def _begin_again(self, error: TransactionAborted) -> None:
        """Go on from the committed offsets, with states as they were then."""
        logger.warning("records since the last commit are processed again: %s", error)
        partitions = [TopicPartition(self._topic, each) for each in self._assignments.consumed]
        if partitions:
            self._take(partitions)
            self._consumer.incremental_unassign(self._with_delayed(partitions))
            self._on_assign(self._consumer, partitions)

    def _on_message_error(self, error: KafkaError) -> None:
        if error.fatal():
            raise SessionFailed(error.str())
        check_allowed(error, f"group {self._group}")
        check_allowed(error, f"topic {self._topic}")
        if error.code() != KafkaError._PARTITION_EOF:
            logger.warning("consuming: %s", error.str())

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._nobody_answers()

    def _nobody_answers(self) -> None:
        now = time.monotonic()
        if now - self._down_said > self._settings.report_interval_s:
            self._down_said = now
            why = silence_reason(self._bootstrap_servers)
            logger.warning("%s; waiting for a broker", why or "no broker can be reached")

    def _await_topics(self) -> bool:
        """Wait until the topics exist; return False if the worker stops before.

        Raises LogForbidden.
        """
        rights = {self._topic: "READ", self._processor.state_topic: "READ and WRITE"}
        names = tuple(rights)
        said = False
        while not self._stopping.is_set():
            self._watchdog.alive()
            try:
                found = [
                    self._consumer.list_topics(name, timeout=2.0).topics[name] for name in names
                ]
            except KafkaException:
                self._nobody_answers()
                self._contact.silent()
                continue
            forbidden = [
                forbidden_text(f"topic {name}", rights[name])
                for name, metadata in zip(names, found, strict=True)
                if forbidden_kind(metadata.error) is not None
            ]
            if forbidden:
                raise LogForbidden("; ".join(forbidden))
            counts = [0 if each.error is not None else len(each.partitions) for each in found]
            if all(counts):
                if counts[0] != counts[1]:
                    raise TopicsDiffer(
                        f"topic {names[0]} has {counts[0]} partitions and topic {names[1]} has "
                        f"{counts[1]}: a device must be in the same partition of both"
                    )
                self._ensure_delayed_topics(counts[0])
                return True
            if not said:
                logger.info("waiting for the topics %s and %s", *names)
                said = True
            self._stopping.wait(0.2)
        return False

    def _ensure_delayed_topics(self, partitions: int) -> None:
        """Create missing topics; raises TopicsDiffer, LogUnreachable and KafkaException."""
        if not self._delayed_topics:
            return
        ensure_topics(
            self._bootstrap_servers,
            [Topic(name, partitions, kept_for(1)) for name in self._delayed_topics],
        )
        for name in self._delayed_topics:
            count = len(self._consumer.list_topics(name, timeout=_ANSWER_S).topics[name].partitions)
            if count not in (0, partitions):
                raise TopicsDiffer(
                    f"topic {self._topic} has {partitions} partitions and topic {name} has "
                    f"{count}: a device must be in the same partition of both"
                )

    def _lag(self) -> int:
        """Return the number of records left in the assigned partitions, from cached offsets."""
        lag = 0
        for assignment in list(self._assignments.consumed.values()):
            _, high = self._consumer.get_watermark_offsets(
                TopicPartition(self._topic, assignment.partition), cached=True
            )
            lag += max(0, high - max(0, assignment.position))
        return lag

    def _close(self) -> None:
        try:
            if not self._stopping.is_set() or self._log_answers():
                # Not with a log that is silent: librdkafka would wait for its answer, and call
                # `_on_revoke`, which waits for acknowledgements.
                leave_group(self._consumer)
        finally:
            self._restorer.close()
            self._erased.close()
            self._results.close()
