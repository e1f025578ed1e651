"""What is logged of a failed record, in Kafka Connect's words.

With `errors.log.include.messages` the record is named: of a consumed one only where it is, of one
that a source connector made all of it, as Kafka Connect does.
"""

from __future__ import annotations

from consumers.connect.data.exceptions import DataException
from consumers.connect.data.records import SourceRecord
from consumers.connect.data.value_text import java_text
from consumers.connect.errors.failures import ConsumedRecord, Failure


def log_line(connector: str, task: int, failure: Failure, *, with_record: bool) -> str:
    """Return the line; the error itself is logged with it."""
    record = ""
    if with_record and isinstance(failure.record, ConsumedRecord):
        record = ", where consumed record is " + _consumed(failure.record)
    elif with_record and isinstance(failure.record, SourceRecord):
        record = ", where source record is = " + _made(failure.record)
    return (
        f"Error encountered in task {connector}-{task}. Executing stage '{failure.stage.name}' "
        f"with class '{failure.class_name}'{record}."
    )


def _consumed(record: ConsumedRecord) -> str:
    place = f"topic='{record.topic}', partition={record.partition}, offset={record.offset}"
    if record.timestamp is None:
        return "{" + place + "}"
    return (
        "{" + f"{place}, timestamp={record.timestamp}, timestampType={record.timestamp_type}" + "}"
    )


def _made(record: SourceRecord) -> str:
    headers = ", ".join(f"{header.key}={_text(header.value)}" for header in record.headers)
    return (
        f"SourceRecord{{sourcePartition={_text(record.source_partition)}, "
        f"sourceOffset={_text(record.source_offset)}, topic='{record.topic}', "
        f"kafkaPartition={_text(record.partition)}, key={_text(record.key)}, "
        f"keySchema={record.key_schema or 'null'}, value={_text(record.value)}, "
        f"valueSchema={record.value_schema or 'null'}, timestamp={_text(record.timestamp)}, "
        f"headers=[{headers}]}}"
    )


def _text(value: object) -> str:
    try:
        return java_text(value)
    except DataException:
        # What has no text may be why the record has failed.
        return f"<{type(value).__name__}>"
