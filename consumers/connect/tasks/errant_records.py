"""Records that a sink task reports because its system cannot take them (KIP-610)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final

from confluent_kafka import Message

from consumers.connect.converters.converter import AddedHeaders
from consumers.connect.data.exceptions import ConnectException
from consumers.connect.data.records import Place, SinkRecord
from consumers.connect.errors.failures import ConsumedRecord
from consumers.connect.tasks.converters import Pipeline
from consumers.connect.tasks.operations import Operations
from consumers.connect.tasks.sink_records import consumed_record

_SINK_TASK: Final = "org.apache.kafka.connect.sink.SinkTask"


class ErrantRecords:
    """Takes reports of one task, in its thread (`ErrantRecordReporter`).

    A record of the batch that was put last is written to the dead letters as it was consumed; any
    other is converted from what the task reports.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        operations: Operations,
        batch: Callable[[], Sequence[Message]],
    ) -> None:
        """`batch` returns the messages of the last batch."""
        self._pipeline: Final = pipeline
        self._operations: Final = operations
        self._batch: Final = batch
        #: The last batch of which a record was reported, and its messages by their place.
        self._messages: Sequence[Message] = ()
        self._by_place: dict[Place, Message] = {}
        self._error: Exception | None = None

    def report(self, record: SinkRecord, error: Exception) -> Future[None]:
        """See ErrantRecordReporter."""
        try:
            return self._operations.report(self._consumed(record), _SINK_TASK, error)
        except ConnectException as failure:
            self._error = failure
            raise

    def raise_error(self) -> None:
        """Raise what a report has raised: a task must not go on because it has caught that."""
        if self._error is not None:
            raise self._error

    def _consumed(self, record: SinkRecord) -> ConsumedRecord:
        messages = self._batch()
        if messages is not self._messages:
            self._messages = messages
            self._by_place = {
                (each.topic() or "", each.partition(), each.offset() or 0): each
                for each in messages
            }
        message = self._by_place.get(record.place)
        if message is not None:
            return consumed_record(message)
        pipeline, topic = self._pipeline, record.topic
        to_header = pipeline.header.from_connect_header
        headers: AddedHeaders = [
            (header.key, to_header(topic, header.key, header.schema, header.value))
            for header in record.headers
        ]
        key = pipeline.key.from_connect(topic, record.key_schema, record.key, headers)
        value = pipeline.value.from_connect(topic, record.value_schema, record.value, headers)
        return ConsumedRecord(
            topic,
            record.partition or 0,
            record.offset,
            key,
            value,
            record.timestamp,
            record.timestamp_type,
            tuple(headers),
        )
