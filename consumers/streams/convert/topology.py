"""Topology `convert`: copies a topic into another one, with values and keys in other formats.

Each record is read as it says itself: what names a schema of the registry as one of that schema,
and any other value as JSON, any other key as text, unless properties tell their formats. So what
was written before a change of the format is read, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from consumers.streams.convert.conversion import (
    MESSAGES,
    Endpoint,
    KeyConversion,
    ValueConversion,
)
from consumers.streams.processor import Context, StreamProcessor, Topology
from consumers.streams.properties import Properties
from consumers.streams.store import RECORD_BYTES_MAX, Store
from consumers.worker.records import InputRecord, copied
from consumers.worker.results import SessionFailed
from waylog.config import ConfigError, check_name, http_url, load_properties
from waylog.kafka.record_headers import headers_of
from waylog.kafka.topics import HEAT_MAP_TOPIC, KEYED_PARTITIONS, TOPICS, TRIP_TOPICS, Topic
from waylog.os_errors import describe_os_error
from waylog.serialization.by_name import (
    AUTO,
    AVRO,
    URL,
    Serde,
    close_serde,
    make_recognising_serde,
    make_serde,
    serde_names,
)
from waylog.serialization.schema_ids import header_name
from waylog.serialization.serializer import (
    RecordPart,
    SchemaRegistryUnavailable,
    SerializationError,
    Serialized,
)

#: What is created where it is used.
_OF_TOPOLOGIES: Final = (*TRIP_TOPICS, HEAT_MAP_TOPIC)
_JSON: Final = "json"
_PROTOBUF: Final = "protobuf"
#: What a platform's topic has as keys: names of devices.
_TEXT_SCHEMA: Final = '"string"'


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
        format_ = _format(properties, RecordPart.VALUE, AVRO)
        registry = _registry_properties(properties)
        #: Each copy is a group of its own.
        self.name = f"convert-{target}"  # type: ignore[misc]
        self.topic = source
        self._target: Final = target
        self._serdes: Final[list[Serde]] = []
        of_value = _schema(properties, RecordPart.VALUE)
        writing = partial(self._writing, properties, RecordPart.VALUE, registry, format_)
        self._conversion: Final = ValueConversion(
            self._reading(properties, RecordPart.VALUE, registry, _JSON),
            writing(of_value),
            source,
            Endpoint(target, is_json=format_ not in (AVRO, _PROTOBUF)),
            writing_messages=writing if of_value is None and format_ == AVRO else None,
        )
        self._of_keys: Final = self._key_conversion(properties, registry)

    def _key_conversion(
        self, properties: Properties, registry: Mapping[str, str]
    ) -> KeyConversion | None:
        """Return how keys are converted, None if they stay as they are."""
        part = RecordPart.KEY
        format_ = _format(properties, part, "")
        names = ("key.schema", "key.message", "key.from.format")
        given = [name for name in names if properties.text(name, "")]
        if not format_ and given:
            raise ConfigError(f"--property {given[0]}: key.format=FORMAT is needed beside it")
        if not format_:
            return None
        reading = self._reading(properties, part, registry, "string")
        schema = _schema(properties, part)
        if schema is None and format_ == AVRO and self.topic in MESSAGES:
            schema = _TEXT_SCHEMA
        writing = self._writing(properties, part, registry, format_, schema)
        return KeyConversion(reading, writing, self.topic, self._target)

    def _reading(
        self,
        properties: Properties,
        part: RecordPart,
        registry: Mapping[str, str],
        default: str,
    ) -> Serde:
        format_ = _format(properties, part, default, "from.format")
        self._serdes.append(make_recognising_serde(format_, part, registry))
        return self._serdes[-1]

    def _writing(
        self,
        properties: Properties,
        part: RecordPart,
        registry: Mapping[str, str],
        format_: str,
        schema: str | None,
    ) -> Serde:
        written = dict(registry)
        if schema is not None:
            written["schema"] = schema
        if message := properties.text(f"{part.value}.message", ""):
            written[f"{part.value}.message"] = message
        self._serdes.append(make_serde(format_, part, written))
        return self._serdes[-1]

    def close(self) -> None:
        """Close connections to the registry."""
        for each in self._serdes:
            close_serde(each)

    def topics(self) -> Sequence[Topic]:
        """Return the topic that is written, with the settings of the one that is read."""
        known = {each.name: each for each in (*TOPICS, *_OF_TOPOLOGIES)}
        if self._target in known:
            # The platform creates the others itself.
            return tuple(each for each in _OF_TOPOLOGIES if each.name == self._target)
        source = known.get(self.topic, Topic(self.topic, KEYED_PARTITIONS))
        return (Topic(self._target, source.partitions, source.config),)

    def process(self, records: Sequence[InputRecord], store: Store[int], context: Context) -> None:
        """Convert records; what cannot be read goes to topic `error`."""
        for record in records:
            headers = headers_of(record)
            try:
                key, value = self._converted(record, headers)
            except SerializationError as error:
                context.refuse(record, str(error))
                continue
            if len(key.data or b"") + len(value.data or b"") > RECORD_BYTES_MAX:
                context.refuse(record, "in the other format it is larger than a record may be")
                continue
            named = {header_name(RecordPart.VALUE)}
            if self._of_keys is not None:
                named.add(header_name(RecordPart.KEY))
            own = [each for each in headers if each[0] not in named]
            added = (*key.headers, *value.headers)
            own += [(name, each) for name, each in added if each is not None]
            context.outputs.append(copied(record, self._target, key.data, value.data, own or None))

    def _converted(
        self, record: InputRecord, headers: list[tuple[str, bytes]]
    ) -> tuple[Serialized, Serialized]:
        """Return key and value; raises SerializationError."""
        try:
            key = Serialized(record.key())
            if self._of_keys is not None:
                key = self._of_keys.convert(record.key(), headers)
            return key, self._conversion.convert(record.value(), headers)
        except SchemaRegistryUnavailable as error:
            # The records come again, until the registry answers.
            raise SessionFailed(str(error)) from error


def _format(
    properties: Properties, part: RecordPart, default: str, property_name: str = "format"
) -> str:
    name = f"{part.value}.{property_name}"
    format_ = properties.text(name, default)
    known = [each for each in serde_names() if each != AUTO]
    if format_ != default and format_ not in known:
        raise ConfigError(f"--property {name}={format_}: one of {', '.join(known)} is expected")
    return format_


def _topic(properties: Properties, name: str) -> str:
    topic = properties.text(name, "")
    if not topic:
        raise ConfigError(f"--property {name}=TOPIC is needed")
    check_name(f"--property {name}", topic)
    return topic


def _schema(properties: Properties, part: RecordPart) -> str | None:
    """Return the text of the schema that is written, None if none is told."""
    name = f"{part.value}.schema"
    path = properties.text(name, "")
    if not path:
        return None
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--property {name}: {describe_os_error(error)}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"--property {name}={path}: it is no text in UTF-8") from None


def _registry_properties(properties: Properties) -> dict[str, str]:
    url = properties.text(URL, "")
    if not url:
        raise ConfigError(f"--property {URL}=http://HOST:8081 is needed")
    path = properties.text("schema.registry.config", "")
    found = load_properties(Path(path)) if path else {}
    return {**found, URL: http_url(url)}
