"""Makes records for a sink task out of messages of the log.

The way of an ordinary record is one loop without a call for each step: it decides how many records
a second a task takes. A record that fails is done again, step by step, under error handling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import Message

from consumers.connect.data.records import Header, SinkRecord
from consumers.connect.data.schemas import SchemaAndValue
from consumers.connect.errors.failures import ConsumedRecord
from consumers.connect.errors.stages import Stage
from consumers.connect.plugins.sink_task import TopicPartition
from consumers.connect.tasks.converters import Pipeline
from consumers.connect.tasks.operations import Operations, Skipped
from waylog.kafka.record_headers import headers_of

#: By confluent_kafka's TIMESTAMP_*.
TIMESTAMP_TYPES: Final = ("NO_TIMESTAMP_TYPE", "CREATE_TIME", "LOG_APPEND_TIME")


class SinkRecords:
    """Converts and transforms the records of one task."""

    def __init__(
        self,
        pipeline: Pipeline,
        operations: Operations,
        on_run: Callable[[str, int, int], None],
    ) -> None:
        """`on_run` is told where records of one partition begin: topic, partition, offset."""
        self._pipeline: Final = pipeline
        self._operations: Final = operations
        self._on_run: Final = on_run

    def convert(
        self, messages: Sequence[Message], ends: dict[TopicPartition, int]
    ) -> list[SinkRecord]:
        """Return the records of messages without errors; put the offsets after them into `ends`.

        Raises ConnectException if one cannot be processed and must not be left out.
        """
        pipeline = self._pipeline
        to_key, to_value = pipeline.key.to_connect, pipeline.value.to_connect
        stages = pipeline.transforms.stages
        records: list[SinkRecord] = []
        append = records.append
        topic = ""
        partition = offset = -1
        for message in messages:
            if partition != message.partition() or topic != message.topic():
                if partition >= 0:
                    ends[TopicPartition(topic, partition)] = offset + 1
                topic = message.topic() or ""
                partition = message.partition()  # type: ignore[assignment]
                self._on_run(topic, partition, message.offset())  # type: ignore[arg-type]
            offset = message.offset()  # type: ignore[assignment]
            try:
                headers = headers_of(message)
                key_schema, key = to_key(topic, message.key(), headers)
                value_schema, value = to_value(topic, message.value(), headers)
                type_, time_ms = message.timestamp()
                record: SinkRecord | None = SinkRecord(
                    topic=topic,
                    partition=partition,
                    key=key,
                    key_schema=key_schema,
                    value=value,
                    value_schema=value_schema,
                    timestamp=time_ms if type_ else None,
                    headers=self._headers(topic, headers) if headers else (),
                    offset=offset,
                    timestamp_type=TIMESTAMP_TYPES[type_],
                    original_topic=topic,
                    original_partition=partition,
                    original_offset=offset,
                )
                for stage in stages:
                    record = stage.apply(record)  # type: ignore[type-var]
                    if record is None:
                        break
                else:
                    append(record)  # type: ignore[arg-type]
            except Exception:
                record = self._step_by_step(message)
                if record is not None:
                    append(record)
        if partition >= 0:
            ends[TopicPartition(topic, partition)] = offset + 1
        return records

    def _headers(self, topic: str, headers: object) -> tuple[Header, ...]:
        to_header = self._pipeline.header.to_connect_header
        found: list[Header] = []
        for key, data in headers:  # type: ignore[attr-defined]
            schema, value = to_header(topic, key, data)
            found.append(Header(key, value, schema))
        return tuple(found)

    def _step_by_step(self, message: Message) -> SinkRecord | None:
        """Return the record of a message, None if it is left out; raises ConnectException."""
        consumed = consumed_record(message)
        topic = consumed.topic
        pipeline, run = self._pipeline, self._operations.run

        def convert(stage: Stage, data: bytes | None) -> SchemaAndValue:
            converter = pipeline.key if stage is Stage.KEY_CONVERTER else pipeline.value
            return run(
                lambda: converter.to_connect(topic, data, consumed.headers),
                consumed,
                stage,
                converter.kafka_name,
            )

        try:
            key = convert(Stage.KEY_CONVERTER, consumed.key)
            value = convert(Stage.VALUE_CONVERTER, consumed.value)
            headers = run(
                lambda: self._headers(topic, consumed.headers),
                consumed,
                Stage.HEADER_CONVERTER,
                pipeline.header.kafka_name,
            )
            record: SinkRecord | None = SinkRecord(
                topic=topic,
                partition=consumed.partition,
                key=key.value,
                key_schema=key.schema,
                value=value.value,
                value_schema=value.schema,
                timestamp=consumed.timestamp,
                headers=headers,
                offset=consumed.offset,
                timestamp_type=consumed.timestamp_type,
                original_topic=topic,
                original_partition=consumed.partition,
                original_offset=consumed.offset,
            )
            for each in pipeline.transforms.stages:
                before = record
                if before is None:
                    return None
                record = run(
                    lambda stage=each, record=before: stage.apply(record),  # type: ignore[misc]
                    consumed,
                    Stage.TRANSFORMATION,
                    each.transform.class_name,
                )
        except Skipped:
            return None
        return record


def consumed_record(message: Message) -> ConsumedRecord:
    """Return a message of the log as error handling knows it."""
    type_, time_ms = message.timestamp()
    return ConsumedRecord(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        message.key(),
        message.value(),
        time_ms if type_ else None,
        TIMESTAMP_TYPES[type_],
        tuple(headers_of(message)),
    )
