"""The loop of an exactly-once source task: records and their offsets in transactions (KIP-618).

A transaction has the records of a batch, or of several, and the offsets after them. A task that was
killed goes on with the offsets of the last transaction that was committed; what it had written
since is void. A new task fences the former one by its transactional id, before it reads offsets.
What Kafka's ExactlyOnceWorkerSourceTask does is meant to happen here, too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Unpack

from confluent_kafka import KafkaError, KafkaException, Message

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.data.records import SourceRecord
from consumers.connect.plugins.source_task import OffsetReader, RecordMetadata, TransactionContext
from consumers.connect.storage.offsets import Offset, Partition, check_offset, partition_key
from consumers.connect.storage.states import TargetState, TaskId
from consumers.connect.tasks.source_records import OutgoingRecord
from consumers.connect.tasks.source_task_thread import (
    SourceParts,
    SourceTaskThread,
    TaskSourceContext,
)
from consumers.connect.tasks.task_thread import TaskListener
from consumers.connect.tasks.transaction_boundary import (
    ConnectorBoundary,
    Ending,
    IntervalBoundary,
    TransactionBoundary,
)
from waylog.kafka.errors import error_text, not_stored_text

logger = logging.getLogger(__name__)

#: Seconds of one call to the log; it is made again while the log does not answer.
_CALL_S: Final = 1.0
#: A task that ends leaves its transaction open after so long; the next task aborts it.
_ABORT_S: Final = 5.0


def transactional_id(group_id: str, connector: str, task: int) -> str:
    """Return the id of a task's producer, as Kafka's workers have it."""
    return f"{group_id}-{connector}-{task}"


class ExactlyOnceSourceTaskThread(SourceTaskThread):
    """A source task that writes each record once."""

    def __init__(
        self,
        task_id: TaskId,
        target: TargetState,
        listener: TaskListener,
        *,
        transactional: str,
        boundary: TransactionBoundary,
        verify: Callable[[], None],
        **parts: Unpack[SourceParts],
    ) -> None:
        """See SourceTaskThread.

        `transactional` is the transactional id. `verify` is called before and after others are
        fenced by it, and raises ConnectException if this task is not to run any more.
        """
        super().__init__(task_id, target, listener, **parts)
        self._transactional_id: Final = transactional
        self._boundary: Final = boundary
        self._verify: Final = verify
        self._is_open = False
        #: The offsets after the records of the transaction.
        self._offsets: dict[bytes, tuple[Partition, Offset | None]] = {}
        #: Records that the task is told about once they are committed.
        self._written: list[tuple[SourceRecord, RecordMetadata | None]] = []

    # ---- life ----

    def _producer_properties(self) -> Mapping[str, Any]:
        """See SourceTaskThread."""
        boundary = self._boundary
        lasts_s = boundary.interval_s if isinstance(boundary, IntervalBoundary) else 0.0
        return self._clients.transactional_producer(
            f"connector-producer-{self.task_id}", self._transactional_id, lasts_s
        )

    def _prepare(self) -> None:
        """See SourceTaskThread: fence former tasks, and end what they have left open."""
        self._verify()
        producer = self._producer
        assert producer is not None
        while not self.is_stopping:
            try:
                producer.init_transactions(_CALL_S)
                break
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise ConnectException(
                        f"transactional id {self._transactional_id}: {error_text(error)}"
                    ) from error
                logger.debug("task %s: %s", self.task_id, error_text(error))
        self._verify()

    def _make_context(self, reader: OffsetReader) -> TaskSourceContext:
        """See SourceTaskThread."""
        boundary = self._boundary
        context: TransactionContext | None = None
        if isinstance(boundary, ConnectorBoundary):
            context = boundary
        return TaskSourceContext(self._properties, reader, context)

    # ---- records ----

    def _produce(self, record: SourceRecord, outgoing: OutgoingRecord) -> bool:
        self._begin_transaction()
        return super()._produce(record, outgoing)

    def _after_record(self, record: SourceRecord) -> None:
        partition = record.source_partition or {}
        self._offsets[partition_key(partition)] = (partition, record.source_offset)
        self._end_transaction(self._boundary.after_record(record))

    def _after_batch(self) -> None:
        self._end_transaction(self._boundary.after_batch(time.monotonic()))

    def _idle(self) -> None:
        self._end_transaction(self._boundary.when_idle(time.monotonic()))

    def _delivered_ok(self, record: SourceRecord, metadata: RecordMetadata) -> None:
        # Its transaction may still be aborted.
        if self._tells_task:
            self._written.append((record, metadata))

    def _not_delivered(self, record: SourceRecord, error: KafkaError, message: Message) -> bool:
        # The transaction cannot be committed any more, whatever is tolerated.
        text = not_stored_text(error, message.topic() or "")
        self._fail_sending(ConnectException(f"{message.topic()}: {text}"))
        return False

    # ---- transactions ----

    def _begin_transaction(self) -> None:
        if not self._is_open:
            assert self._producer is not None
            self._producer.begin_transaction()
            self._is_open = True

    def _end_transaction(self, ending: Ending) -> None:
        if ending is Ending.COMMIT:
            self._commit()
        elif ending is Ending.ABORT:
            logger.info("task %s: the connector has its transaction aborted", self.task_id)
            self._abort(_ABORT_S)
            # Its records do not come again.
            self._commit()

    def _commit(self) -> None:
        """Commit records and offsets; raises ConnectException."""
        if not self._offsets:
            return
        self._begin_transaction()
        producer = self._producer
        assert producer is not None
        offsets = list(self._offsets.values())
        for pair in offsets:
            for each in pair:
                check_offset(each)
        self._store.produce(producer, self.task_id.connector, offsets)
        while True:
            try:
                producer.commit_transaction(_CALL_S)
                break
            except KafkaException as error:
                self._raise_send_error()
                if not error.args[0].retriable():
                    raise ConnectException(
                        f"a transaction was not committed: {error_text(error)}"
                    ) from error
                if self.is_cancelled:
                    return
        self._is_open = False
        self._raise_send_error()
        self._offsets = {}
        written, self._written = self._written, []
        for record, metadata in written:
            self._tell(record, metadata)
        self._tell_committed()

    def _abort(self, timeout_s: float) -> None:
        if self._is_open:
            assert self._producer is not None
            self._producer.abort_transaction(timeout_s)
            self._is_open = False
        self._written = []

    # ---- the end ----

    @property
    def may_commit(self) -> bool:
        """See SourceTaskThread: nobody else stores its offsets."""
        return False

    def _pausing(self) -> None:
        if self._boundary.at_end() is Ending.COMMIT:
            self._commit()

    def _store_at_end(self) -> None:
        if self.is_cancelled or self._producer is None or not self._is_started:
            return
        try:
            if self._has_failed or self._boundary.at_end() is Ending.ABORT:
                self._abort(_ABORT_S)
            else:
                self._commit()
        except (KafkaException, ConnectException) as error:
            logger.warning(
                "task %s: the last transaction is left open: %s", self.task_id, error_text(error)
            )
