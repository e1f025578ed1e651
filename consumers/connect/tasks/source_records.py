"""Makes records of the log out of what a source task has read."""

from __future__ import annotations

from typing import Final, NamedTuple

from consumers.connect.converters.converter import AddedHeaders
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.records import SourceRecord
from consumers.connect.errors.stages import Stage
from consumers.connect.tasks.converters import Pipeline
from consumers.connect.tasks.operations import Operations, Skipped

#: The partition is chosen by the key.
BY_KEY: Final = -1


class OutgoingRecord(NamedTuple):
    """A record as the producer takes it."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int
    timestamp: int  # ms since 1970-01-01 UTC; 0: now
    headers: list[tuple[str, str | bytes | None]] | None


class SourceRecords:
    """Transforms and converts the records of one task."""

    def __init__(self, pipeline: Pipeline, operations: Operations) -> None:
        self._pipeline: Final = pipeline
        self._operations: Final = operations

    def convert(self, record: SourceRecord) -> OutgoingRecord | None:
        """Return the record for the log, None if it is left out; raises ConnectException."""
        pipeline = self._pipeline
        try:
            current: SourceRecord | None = record
            for stage in pipeline.transforms.stages:
                if current is None:
                    return None
                current = stage.apply(current)
            if current is None:
                return None
            topic = current.topic
            headers = self._headers(current)
            key = pipeline.key.from_connect(topic, current.key_schema, current.key, headers)
            value = pipeline.value.from_connect(topic, current.value_schema, current.value, headers)
            return _outgoing(current, value, key, headers)
        except Exception:
            return self._step_by_step(record)

    def _headers(self, record: SourceRecord) -> AddedHeaders:
        if not record.headers:
            return []
        convert = self._pipeline.header.from_connect_header
        return [
            (
                _header_name(header.key),
                convert(record.topic, header.key, header.schema, header.value),
            )
            for header in record.headers
        ]

    def _step_by_step(self, record: SourceRecord) -> OutgoingRecord | None:
        """Do the same under error handling."""
        pipeline, run = self._pipeline, self._operations.run
        current = record
        try:
            for stage in pipeline.transforms.stages:
                after = run(
                    lambda each=stage, before=current: each.apply(before),  # type: ignore[misc]
                    record,
                    Stage.TRANSFORMATION,
                    stage.transform.class_name,
                )
                if after is None:
                    return None
                current = after
            topic = current.topic
            headers = run(
                lambda: self._headers(current),
                record,
                Stage.HEADER_CONVERTER,
                pipeline.header.kafka_name,
            )
            key = run(
                lambda: pipeline.key.from_connect(topic, current.key_schema, current.key, headers),
                record,
                Stage.KEY_CONVERTER,
                pipeline.key.kafka_name,
            )
            value = run(
                lambda: pipeline.value.from_connect(
                    topic, current.value_schema, current.value, headers
                ),
                record,
                Stage.VALUE_CONVERTER,
                pipeline.value.kafka_name,
            )
        except Skipped:
            return None
        return _outgoing(current, value, key, headers)


def _header_name(name: str) -> str:
    """Return a name as it is; raises DataException for one that would end the process.

    confluent_kafka 2.16 does not check whether a name can be encoded.
    """
    try:
        name.encode()
    except UnicodeEncodeError as error:
        text = f"the name of a header has half of a surrogate pair: {name!r}"
        raise DataException(text) from error
    return name


def _outgoing(
    record: SourceRecord,
    value: bytes | None,
    key: bytes | None,
    headers: AddedHeaders,
) -> OutgoingRecord:
    partition = BY_KEY if record.partition is None else record.partition
    time_ms = record.timestamp or 0
    given: list[tuple[str, str | bytes | None]] | None = [*headers] if headers else None
    return OutgoingRecord(record.topic, value, key, partition, time_ms, given)
