"""Topology `convert`: copies a topic into another one, with its values in another format.

Each record is read as it says itself: a record that names a schema of the registry as one of that
schema, and any other as JSON. So what was written before a change of the format is read, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from consumers.streams.convert.conversion import MESSAGES, Endpoint, ValueConversion
from consumers.streams.processor import Context, StreamProcessor, Topology
from consumers.streams.properties import Properties
from consumers.streams.store import RECORD_BYTES_MAX, Store
from consumers.worker.records import InputRecord, copied
from consumers.worker.results import SessionFailed
from waylog.config import ConfigError, check_name, http_url, load_properties
from waylog.kafka.record_headers import headers_of
from waylog.kafka.topics import KEYED_PARTITIONS, TOPICS, Topic
from waylog.os_errors import describe_os_error
from waylog.serialization.by_name import AUTO, AVRO, URL, close_serde, make_serde
from waylog.serialization.message_schemas import MessageSchema
from waylog.serialization.schema_ids import header_name
from waylog.serialization.serializer import (
    RecordPart,
    SchemaRegistryUnavailable,
    SerializationError,
    Serialized,
)

_JSON: Final = "json"
_JSON_SCHEMA: Final = "json-schema"
_FORMATS: Final = (AVRO, "protobuf", _JSON_SCHEMA, _JSON)


class Convert(Topology):
    """Copies a topic."""

    name: ClassVar[str] = "convert"
    summary: ClassVar[str] = "records in Avro, Protobuf or JSON, to topic `to`"

    def __init__(self, properties: Properties) -> None:
        """Read what is copied where, and how; raises ConfigError."""
        self._copying: Final = Copying(properties)

    def processors(self) -> Sequence[StreamProcessor[object]]:
        """Return the only one."""
        return self._copying.processors()

    def topics(self) -> Sequence[Topic]:
        """Return the topic that is written, if it is none of the platform's."""
        return self._copying.topics()


class Copying(StreamProcessor[int]):
    """Converts records; nothing is kept."""

    name: ClassVar[str] = "convert"  # of each copy: with the topic that it writes
    value_type = int

    def __init__(self, properties: Properties) -> None:
        """Read what is copied where, and how; raises ConfigError."""
        super().__init__(properties)
        source, target = (_topic(properties, name) for name in ("from", "to"))
        if source == target:
            raise ConfigError(f"--property to={target}: another topic than `from` is expected")
        format_ = properties.text("value.format", AVRO)
        if format_ not in _FORMATS:
            raise ConfigError(
                f"--property value.format={format_}: one of {', '.join(_FORMATS)} is expected"
            )
        registry = _registry_properties(properties)
        written = dict(registry)
        text = _schema(properties, source, format_)
        if text is not None:
            written["schema"] = text
        if message := properties.text("value.message", ""):
            written["message"] = message
        #: Each copy is a group of its own.
        self.name = f"convert-{target}"  # type: ignore[misc]
        self.topic = source
        self._target: Final = target
        reading = make_serde(AUTO, RecordPart.VALUE, registry)
        writing = make_serde(format_, RecordPart.VALUE, written)
        self._serdes: Final = (reading, writing)
        self._conversion: Final = ValueConversion(
            reading,
            writing,
            source,
            Endpoint(target, is_json=format_ in (_JSON, _JSON_SCHEMA)),
        )

    def close(self) -> None:
        """Close connections to the registry."""
        for each in self._serdes:
            close_serde(each)

    def topics(self) -> Sequence[Topic]:
        """Return the topic that is written, with the settings of the one that is read."""
        known = {each.name: each for each in TOPICS}
        if self._target in known:
            return ()
        source = known.get(self.topic, Topic(self.topic, KEYED_PARTITIONS))
        return (Topic(self._target, source.partitions, source.config),)

    def process(self, records: Sequence[InputRecord], store: Store[int], context: Context) -> None:
        """Convert records; what cannot be read goes to topic `error`."""
        for record in records:
            headers = headers_of(record)
            try:
                value, more = self._converted(record, headers)
            except SerializationError as error:
                context.refuse(record, str(error))
                continue
            key = record.key()
            if len(key or b"") + len(value or b"") > RECORD_BYTES_MAX:
                context.refuse(record, "in the other format it is larger than a record may be")
                continue
            own = [each for each in headers if each[0] != header_name(RecordPart.VALUE)]
            own += [(name, each) for name, each in more if each is not None]
            context.outputs.append(copied(self._target, key, value, own or None))

    def _converted(self, record: InputRecord, headers: list[tuple[str, bytes]]) -> Serialized:
        try:
            return self._conversion.convert(record.value(), headers)
        except SchemaRegistryUnavailable as error:
            # The records come again, until the registry answers.
            raise SessionFailed(str(error)) from error


def _topic(properties: Properties, name: str) -> str:
    topic = properties.text(name, "")
    if not topic:
        raise ConfigError(f"--property {name}=TOPIC is needed")
    check_name(f"--property {name}", topic)
    return topic


def _schema(properties: Properties, source: str, format_: str) -> str | None:
    """Return the text of the schema that is written, None for the newest of the subject."""
    path = properties.text("value.schema", "")
    if path:
        try:
            return Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--property value.schema: {describe_os_error(error)}") from None
        except UnicodeDecodeError:
            raise ConfigError(f"--property value.schema={path}: it is no text in UTF-8") from None
    return MessageSchema(MESSAGES[source]).text if format_ == AVRO and source in MESSAGES else None


def _registry_properties(properties: Properties) -> dict[str, str]:
    url = properties.text(URL, "")
    if not url:
        raise ConfigError(f"--property {URL}=http://HOST:8081 is needed")
    path = properties.text("schema.registry.config", "")
    found = load_properties(Path(path)) if path else {}
    return {**found, URL: http_url(url)}
