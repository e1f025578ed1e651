"""Results exactly once: written in transactions, together with the offsets of their records.

A transaction lasts for a commit interval and has the results of all partitions of the session. It
ends with their offsets under the member's generation (KIP-447): a former owner that does not know
yet that its partitions have moved is refused there, and cannot commit. What it has written stays
invisible to readers of committed records.

After an error that ends a transaction alone, all its results are void: the states have to forget
them too, and their records are processed again (TransactionAborted).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, Generic, NoReturn

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from consumers.worker.assignment import Assignment, Assignments, Ends
from consumers.worker.dead_letters import DeadLetters
from consumers.worker.erasure_filter import ErasureFilter
from consumers.worker.membership import Membership
from consumers.worker.processor import StateT
from consumers.worker.records import OutputRecord
from consumers.worker.results import (
    Changes,
    ResultProducer,
    SessionFailed,
    TransactionAborted,
)
from waylog.kafka.clients import LogForbidden
from waylog.kafka.errors import (
    error_text,
    forbidden_kind,
    forbidden_text,
    is_purged,
    not_stored_text,
)
from waylog.kafka.group_membership import Generation
from waylog.kafka.topics import ERROR

logger = logging.getLogger(__name__)

#: Seconds of one call to the log; it is made again while the log does not answer.
_CALL_S: Final = 1.0
#: Seconds that a session that ends may take to abort its transaction. Otherwise its time-out does,
#: and readers of committed records wait for that.
_ABORT_S: Final = 2.0
#: Transactions in a row that may be aborted before the session counts as failed, which brings new
#: clients and longer and longer pauses.
_ABORTED_MAX: Final = 5
#: Seconds of work for each second of commits, and the longest time between two commits for that.
_WORK_FOR_A_COMMIT: Final = 4.0
_COMMITS_LATE_S: Final = 1.0
_NO_ANSWER: Final = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
_REFUSALS: Final = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.INVALID_RECORD,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)
#: Seconds for which dead letters are written apart after the log refused a transaction with some.
_LETTERS_APART_S: Final = 600.0


class ExactlyOnceResults(Generic[StateT]):
    """The results of a session and the offsets of its records; see consumers.worker.results."""

    def __init__(
        self,
        membership: Membership[StateT],
        consumer: Consumer,
        assignments: Assignments[StateT],
        erased: ErasureFilter,
    ) -> None:
        """`consumer` has not subscribed yet."""
        self._settings = membership.settings
        self._stopping = membership.stopping
        self._watchdog = membership.watchdog
        self._contact = membership.contact
        self._state_topic = membership.processor.state_topic
        self._transactional_id = membership.transactional_id
        self._consumer = consumer
        self._assignments = assignments
        self._generation = Generation(consumer)
        self._is_open = False
        self._has_letters = False
        self._is_void = False  # the session has failed: nothing can be committed any more
        self._next_commit = 0.0
        self._aborted = 0  # transactions in a row
        timeout_ms = round(self._settings.transaction_timeout_s * 1000)
        self._producer: Final = ResultProducer(
            membership,
            erased,
            {
                "transactional.id": self._transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "delivery.timeout.ms": timeout_ms,
                # Offsets that are sent while the group's coordinator is down wait, whatever their
                # time-out, until some connection comes or goes (librdkafka's issues 5456 and 5511,
                # as of 2.16). Meanwhile all are idle, so that one goes after this time.
                "connections.max.idle.ms": 3000,
            },
        )
        self._dead_letters = DeadLetters(
            membership.bootstrap_servers, membership.client_id, membership.status
        )
        self._letters_apart_until = 0.0

    def start(self) -> bool:
        """Fence earlier sessions of this worker and abort what they left open.

        Waits for the log; returns False if the worker stops before. Raises LogForbidden.
        """
        while not self._stopping.is_set():
            self._watchdog.alive()
            try:
                self._producer.client.init_transactions(_CALL_S)
            except KafkaException as error:
                if forbidden_kind(error) == "transactional id":
                    resource = f"transactional id {self._transactional_id}"
                    raise LogForbidden(forbidden_text(resource, "WRITE")) from error
                if not error.args[0].retriable():
                    raise
                self._contact.silent()
            else:
                return True
        return False

    def write(self, outputs: Sequence[OutputRecord], changes: Changes, ends: Ends[StateT]) -> None:
        """Queue results in the transaction, which begins with the first ones."""
        if not self._is_open:
            self._producer.client.begin_transaction()
            self._is_open = True
        for assignment, end in ends:
            assignment.acknowledged = end
        letters = [output for output in outputs if output.topic == ERROR]
        if letters:
            if time.monotonic() < self._letters_apart_until:
                outputs = [output for output in outputs if output.topic != ERROR]
                self._dead_letters.send_all(letters, self._wait_for_room)
            else:
                self._has_letters = True
        try:
            self._producer.produce(outputs, self._wait_for_room)
            self._producer.produce_changes(changes, self._wait_for_room)
        except KafkaException as error:
            self._abort(error.args[0])

    def settle(self) -> None:
        """Commit the transaction, once the interval has passed since the last commit."""
        self._producer.client.poll(0)
        self._check()
        if self._is_open and time.monotonic() >= self._next_commit:
            self._commit(())

    def hand_over(self, leaving: Sequence[Assignment[StateT]]) -> None:
        """Commit the transaction: the results of partitions that stay are in it, too."""
        if self._is_void:
            raise SessionFailed("the session has failed before")
        if self._is_open:
            self._commit(leaving)

    def give_up(self) -> None:
        """Commit nothing more; `close` aborts what is open."""
        self._is_void = True

    def abandon(self) -> None:
        """Abort the transaction: it may have results of partitions that others own now."""
        if self._is_open:
            self._abort(None)

    def on_commit(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        """Do nothing: the consumer commits no offsets."""

    def close(self) -> None:
        """Abort what is open, if the log answers; it would hold up readers until its time-out."""
        try:
            self._dead_letters.purge()
            if self._is_open and not self._contact.unanswered:
                self._producer.client.abort_transaction(_ABORT_S)
            self._producer.close()
        except KafkaException as error:
            logger.debug("a transaction is left to its time-out: %s", error_text(error))

    def _commit(self, leaving: Sequence[Assignment[StateT]]) -> None:
        """Store the results, then the offsets, then the commit.

        In this order: once this member's generation is over, and its offsets are refused, no result
        can be stored and committed that the next owner of a partition would not see in its state.
        """
        began = time.monotonic()
        deadline = began + self._settings.drain_s
        producer = self._producer.client
        while producer.flush(0.05) + self._dead_letters.flush(0):
            self._go_on(deadline)
        self._check()
        assignments = list(dict.fromkeys([*self._assignments.all(), *leaving]))
        self._call(lambda: self._send_offsets(assignments), deadline)
        self._call(lambda: producer.commit_transaction(_CALL_S), deadline)
        self._is_open = self._has_letters = False
        self._aborted = 0
        self._next_commit = next_commit(
            began, time.monotonic(), self._settings.transaction_interval_s
        )
        self._contact.heard()
        for assignment in assignments:
            assignment.committed = max(assignment.committed, assignment.acknowledged)

    def _send_offsets(self, assignments: list[Assignment[StateT]]) -> None:
        offsets = [
            TopicPartition(each.topic, each.partition, each.acknowledged)
            for each in assignments
            if each.acknowledged > each.committed
        ] or [self._known_offset(assignments[0])]
        metadata = self._consumer.consumer_group_metadata()
        if not self._generation.is_in(metadata):
            raise self._failed("the group has put this member out")
        self._producer.client.send_offsets_to_transaction(offsets, metadata, _CALL_S)

    def _known_offset(self, assignment: Assignment[StateT]) -> TopicPartition:
        """Return a partition with the offset that is committed already.

        Results of no new records are fenced by it: the generation comes with offsets only.
        """
        place = assignment.place
        offset = assignment.committed
        if offset < 0:
            [found] = self._consumer.committed([place], timeout=_CALL_S)
            offset = found.offset
        if offset < 0:
            # Where a group begins that has committed nothing.
            offset, _ = self._consumer.get_watermark_offsets(place, timeout=_CALL_S)
        return TopicPartition(assignment.topic, assignment.partition, offset)

    def _call(self, function: Callable[[], None], deadline: float) -> None:
        """Call the log, again while it does not answer."""
        while True:
            try:
                return function()
            except KafkaException as error:
                cause = error.args[0]
                if cause.txn_requires_abort():
                    self._abort(cause)
                if not cause.retriable() and cause.code() not in _NO_ANSWER:
                    self._is_void = True
                    raise
            self._go_on(deadline)

    def _go_on(self, deadline: float) -> None:
        """Return if it is worth waiting for the log; raises SessionFailed otherwise."""
        self._check()
        self._watchdog.alive()
        self._contact.silent()
        if self._stopping.is_set() and time.monotonic() > deadline:
            raise self._failed("the log does not answer: what is not committed comes again")

    def _check(self) -> None:
        self._producer.check()
        if self._producer.failed is not None:
            topic, error = self._producer.failed
            self._abort(error, topic)

    def _abort(self, error: KafkaError | None, topic: str | None = None) -> NoReturn:
        """Abort the transaction; `topic` is that of a result that was not stored.

        Raises TransactionAborted if its records can be processed again at once, else SessionFailed.
        """
        why = "partitions were lost" if error is None else error_text(KafkaException(error))
        self._is_void = True
        deadline = time.monotonic() + self._settings.drain_s
        while True:
            try:
                self._producer.client.abort_transaction(_CALL_S)
                break
            except KafkaException as failure:
                if not failure.args[0].retriable() and failure.args[0].code() not in _NO_ANSWER:
                    raise
            self._producer.check()
            self._watchdog.alive()
            self._contact.silent()
            if self._stopping.is_set() and time.monotonic() > deadline:
                raise SessionFailed(why)
        self._dead_letters.purge()
        failed, self._producer.failed = self._producer.failed, None
        if error is not None and failed is not None and is_purged(error):
            # All records are answered now, the one too for which the others were given up.
            topic, error = failed
            why = error_text(KafkaException(error))
        by_letters = self._has_letters and error is not None and _is_refusal(error, topic)
        if by_letters:
            self._letters_apart_until = time.monotonic() + _LETTERS_APART_S
        self._is_open = self._has_letters = False
        self._aborted += 1
        if error is not None and topic is not None and not by_letters:
            raise SessionFailed(
                f"a result was not stored in topic {topic}: {not_stored_text(error, topic)}"
            )
        if self._aborted >= _ABORTED_MAX:
            raise SessionFailed(f"{self._aborted} transactions in a row were aborted: {why}")
        self._is_void = False
        raise TransactionAborted(why)

    def _wait_for_room(self) -> None:
        self._dead_letters.flush(0)
        self._watchdog.alive()
        self._check()
        if self._stopping.is_set():
            raise self._failed("stopped while the log does not keep up")

    def _failed(self, why: str) -> SessionFailed:
        self._is_void = True
        return SessionFailed(why)


def next_commit(began: float, ended: float, interval_s: float) -> float:
    """Return when to commit again, after a commit that took from `began` to `ended`.

    Nothing is processed while the log commits. So where that takes long, for the log or for the
    many records, it is done less often: it takes a fifth of the time at most, up to a bound.
    """
    work_s = min(_WORK_FOR_A_COMMIT * (ended - began), _COMMITS_LATE_S)
    return max(began + interval_s, ended + work_s)


def _is_refusal(error: KafkaError, topic: str | None) -> bool:
    """Tell whether topic `error` may have refused a record; the log may not say which topic did."""
    return topic == ERROR or (topic is None and error.code() in _REFUSALS)
