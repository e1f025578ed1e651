"""Under which subject a registry keeps a schema: Confluent's three strategies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from waylog.serialization.serializer import RecordPart

#: Returns the subject of a topic, a part of its records, and the full name of the record's schema.
SubjectNameStrategy = Callable[[str, RecordPart, str], str]


def topic_name(topic: str, part: RecordPart, _record: str) -> str:
    """Return `TOPIC-key` or `TOPIC-value`: all records of a topic have one schema."""
    return f"{topic}-{part.value}"


def record_name(_topic: str, _part: RecordPart, record: str) -> str:
    """Return the record's name: it has one schema in all topics."""
    return record


def topic_record_name(topic: str, _part: RecordPart, record: str) -> str:
    """Return `TOPIC-RECORD`: a topic may have several kinds of records."""
    return f"{topic}-{record}"


#: By the names of Confluent's classes, without their package.
SUBJECT_NAME_STRATEGIES: Final[dict[str, SubjectNameStrategy]] = {
    "TopicNameStrategy": topic_name,
    "RecordNameStrategy": record_name,
    "TopicRecordNameStrategy": topic_record_name,
}
