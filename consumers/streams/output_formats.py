"""Results of topologies in other formats than JSON, by topic.

Topologies write JSON. What is written to a topic with a format of its own is encoded anew, behind
the topology: a result that has no form there is kept in topic `error`. Topics that the platform
itself reads stay JSON, and so do those between the processors of a topology.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from consumers.streams.processor import Topology
from consumers.worker.fix_records import rejected_result
from consumers.worker.records import OutputRecord
from consumers.worker.results import SessionFailed
from waylog.config import ConfigError
from waylog.kafka.topics import TOPICS
from waylog.malformed import MALFORMED
from waylog.os_errors import describe_os_error
from waylog.serialization.by_name import AUTO, AVRO, Serde, close_serde, make_serde, serde_names
from waylog.serialization.serializer import RecordPart, SchemaRegistryUnavailable

#: What names of topics between processors, and of changelogs, begin with.
_INTERNAL: Final = "streams-"

_decode: Final = msgspec.json.Decoder().decode


class OutputFormats:
    """What encodes the results for each topic that has a format of its own."""

    def __init__(self, serdes: Mapping[str, Serde]) -> None:
        """`serdes` are by topic; it closes them."""
        self._serdes: Final = dict(serdes)

    def close(self) -> None:
        """Close connections to the registry."""
        for each in self._serdes.values():
            close_serde(each)

    def encoded(
        self, outputs: Sequence[OutputRecord], source: str, now_ms: int
    ) -> list[OutputRecord]:
        """Return records as their topics have them, in order.

        `source` is the topology's name, for topic `error`. Raises SessionFailed while the registry
        is away: what they were made of comes again.
        """
        return [self._encoded(each, source, now_ms) for each in outputs]

    def _encoded(self, output: OutputRecord, source: str, now_ms: int) -> OutputRecord:
        serde = self._serdes.get(output.topic)
        if serde is None or output.value is None:
            return output
        try:
            data, headers = serde.serialize(output.topic, _decode(output.value))
        except MALFORMED as error:  # SerializationError is one
            return rejected_result(output, str(error), source, now_ms)
        except SchemaRegistryUnavailable as error:
            raise SessionFailed(str(error)) from error
        if data is None:
            return rejected_result(output, "it has no value", source, now_ms)
        added = [(name, value) for name, value in headers if value is not None]
        more = [*(output.headers or ()), *added]
        return msgspec.structs.replace(output, value=data, headers=more or None)


def output_formats(
    formats: Mapping[str, str],
    schemas: Mapping[str, str],
    registry: Mapping[str, str],
    topologies: Sequence[Topology],
) -> OutputFormats:
    """Return the formats of topics; `schemas` are names of files by topic.

    `registry` are the properties of serializers. Raises ConfigError.
    """
    for topic in schemas:
        if topic not in formats:
            raise ConfigError(f"--value-schema {topic}: --value-format {topic}=FORMAT is missing")
    serdes: dict[str, Serde] = {}
    try:
        for topic, format_ in formats.items():
            _check(topic, format_, topologies)
            properties = dict(registry)
            schema = _schema(topic, format_, schemas.get(topic), topologies)
            if schema is not None:
                properties["schema"] = schema
            serdes[topic] = make_serde(format_, RecordPart.VALUE, properties)
    except ConfigError:
        OutputFormats(serdes).close()
        raise
    return OutputFormats(serdes)


def _check(topic: str, format_: str, topologies: Sequence[Topology]) -> None:
    known = [each for each in serde_names() if each != AUTO]
    if format_ not in known:
        raise ConfigError(
            f"--value-format {topic}={format_}: one of {', '.join(known)} is expected"
        )
    if topic in {each.name for each in TOPICS}:
        raise ConfigError(
            f"--value-format {topic}: the platform reads this topic as JSON; a copy of it may have "
            "another format (waylog streams run convert)"
        )
    written = {
        name
        for topology in topologies
        for name in (*topology.outputs(), *(each.name for each in topology.topics()))
        if not name.startswith(_INTERNAL)
    }
    if topic not in written:
        there_are = ", ".join(sorted(written)) or "none"
        raise ConfigError(
            f"--value-format {topic}: no topology that is run writes this topic (topics that may "
            f"have a format: {there_are})"
        )


def _schema(
    topic: str, format_: str, path: str | None, topologies: Sequence[Topology]
) -> str | None:
    """Return the text of a schema, None for the newest one of the topic's subject."""
    if path is not None:
        try:
            return Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--value-schema {topic}: {describe_os_error(error)}") from None
        except UnicodeDecodeError:
            raise ConfigError(f"--value-schema {topic}={path}: it is no text in UTF-8") from None
    class_: Any = next(
        (each.messages()[topic] for each in topologies if topic in each.messages()), None
    )
    if class_ is None or format_ != AVRO:
        return None
    from waylog.serialization.message_schemas import MessageSchema

    return MessageSchema(class_).text
