"""Serializers by name: those that come with Waylog, and those of other packages.

A package adds its own by an entry point of the group `waylog.serializers`: its name is that of the
format, and it is a function of a RecordPart and properties that returns an object with `serialize`
and `deserialize`. The registry's properties have the names that Confluent's clients give them:

| property | is |
|---|---|
| `schema.registry.url` | the registry; `avro`, `protobuf`, `json-schema` and `auto` need it |
| `basic.auth.user.info` | USER:PASSWORD for it |
| `ssl.ca.location`, `ssl.certificate.location`, `ssl.key.location` | TLS |
| `schema` | the text of the schema with which values are written, or as which they are read |
| `message`, `key.message`, `value.message` | of Protobuf, what is written (default: the first) |
| `auto.register.schemas` | true (default): a schema that the registry lacks is registered |
| `normalize.schemas` | true: with attributes sorted (default false) |
| `key.subject.name.strategy`, `value.subject.name.strategy` | a class of Confluent's |
| `key.schema.id.serializer`, `value.schema.id.serializer` | a class of Confluent's |
| `schema.id.in.header` | true: HeaderSchemaIdSerializer for both (default false) |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any, Final, Protocol, TypeVar

from waylog.config import ConfigError
from waylog.extras import install_command, is_installed
from waylog.serialization import schema_types
from waylog.serialization.plain_serializers import (
    BytesSerde,
    JsonSerde,
    NumberSerde,
    StringSerde,
)
from waylog.serialization.schema_ids import names_schema
from waylog.serialization.serializer import (
    NO_HEADERS,
    Deserializer,
    NamedValue,
    RecordHeaders,
    RecordPart,
    SerializationError,
    Serialized,
    Serializer,
)
from waylog.serialization.subject_names import SUBJECT_NAME_STRATEGIES, SubjectNameStrategy

ENTRY_POINTS: Final = "waylog.serializers"
AVRO: Final = "avro"
#: Reads records of any schema of the registry, and JSON where a record names none.
AUTO: Final = "auto"
_SCHEMA_TYPES: Final = {
    AVRO: schema_types.AVRO,
    "protobuf": schema_types.PROTOBUF,
    "json-schema": schema_types.JSON,
}
URL: Final = "schema.registry.url"
_OWN_PROPERTIES: Final = frozenset(
    (
        *(URL, "schema", "message", "key.message", "value.message"),
        *("auto.register.schemas", "normalize.schemas", "schema.id.in.header"),
        *("key.subject.name.strategy", "value.subject.name.strategy"),
        *("key.schema.id.serializer", "value.schema.id.serializer"),
    )
)
#: By the names of Confluent's classes, without their package: whether a header names the schema.
_ID_SERIALIZERS: Final = {"PrefixSchemaIdSerializer": False, "HeaderSchemaIdSerializer": True}


_Meaning = TypeVar("_Meaning")


class Serde(Serializer, Deserializer, Protocol):
    """What writes and reads values of one format."""


Factory = Callable[[RecordPart, Mapping[str, str]], Serde]

_PLAIN: Final[dict[str, Callable[[], Serde]]] = {
    "json": JsonSerde,
    "string": StringSerde,
    "bytes": BytesSerde,
    "short": lambda: NumberSerde("h"),
    "integer": lambda: NumberSerde("i"),
    "long": lambda: NumberSerde("q"),
    "float": lambda: NumberSerde("f"),
    "double": lambda: NumberSerde("d"),
}
#: Formats whose bytes never begin as those that name a schema.
_RECOGNISABLE: Final = frozenset(("json", "string"))


def serde_names() -> list[str]:
    """Return the names of all formats that are installed."""
    others = [each.name for each in entry_points(group=ENTRY_POINTS)]
    return [*_PLAIN, *_SCHEMA_TYPES, AUTO, *others]


def make_serde(name: str, part: RecordPart, properties: Mapping[str, str]) -> Serde:
    """Return what writes and reads a part of records; raises ConfigError."""
    if name in _PLAIN:
        return _PLAIN[name]()
    if name in _SCHEMA_TYPES or name == AUTO:
        _check_installed(name)
        return _RegistrySerde(name, part, properties, JsonSerde())
    for each in entry_points(group=ENTRY_POINTS):
        if each.name == name:
            made: Serde = each.load()(part, properties)
            return made
    raise ConfigError(f"there is no format {name}; there are {', '.join(serde_names())}")


def _check_installed(name: str) -> None:
    for extra in ("avro", *(("protobuf",) if name == "protobuf" else ())):
        if not is_installed(extra):
            raise ConfigError(f"format {name} needs more packages: {install_command(extra)}")


def make_recognising_serde(name: str, part: RecordPart, properties: Mapping[str, str]) -> Serde:
    """Return what reads records that name a schema by it, and others in a format.

    Only JSON and text begin otherwise than with a schema's id; in any other format all records are
    read. Raises ConfigError.
    """
    if name not in _RECOGNISABLE:
        return make_serde(name, part, properties)
    _check_installed(AUTO)
    return _RegistrySerde(AUTO, part, properties, _PLAIN[name]())


class _RegistrySerde:
    """A format with a registry, by properties."""

    def __init__(
        self, name: str, part: RecordPart, properties: Mapping[str, str], plain: Deserializer
    ) -> None:
        """`plain` reads what names no schema, of the format AUTO."""
        from waylog.serialization.registered_schemas import record_schema
        from waylog.serialization.registry_client import RegistryClient
        from waylog.serialization.registry_serializer import (
            RecognisingDeserializer,
            RegistryDeserializer,
            RegistrySerializer,
        )

        url = properties.get(URL)
        if not url:
            raise ConfigError(f"format {name} needs {URL}")
        schema_type = _SCHEMA_TYPES.get(name, schema_types.AVRO)
        message = properties.get(f"{part.value}.message", properties.get("message"))
        more = {name: value for name, value in properties.items() if name not in _OWN_PROPERTIES}
        try:
            registry = RegistryClient(url, more)
        except (ValueError, OSError) as error:
            raise ConfigError(f"properties of the schema registry: {error}") from None
        text = properties.get("schema")
        try:
            schema = None if text is None else record_schema(schema_type, text, message=message)
        except SerializationError as error:
            raise ConfigError(f"schema of the {part.value}: {error}") from None
        self._registry: Final = registry
        registered = RegistryDeserializer(registry, part, schema)
        self._deserializer: Final = (
            RecognisingDeserializer(part, registered, plain) if name == AUTO else registered
        )
        self._serializer: Final = RegistrySerializer(
            registry,
            part,
            text,
            schema_type=schema_type,
            message=message,
            auto_register=flag(properties, "auto.register.schemas", default=True),
            normalize=flag(properties, "normalize.schemas", default=False),
            in_header=is_in_header(properties, part),
            subject_name=strategy(properties, part),
        )

    def close(self) -> None:
        """Close connections to the registry."""
        self._registry.close()

    def serialize(self, topic: str, value: Any) -> Serialized:
        """See Serializer."""
        return self._serializer.serialize(topic, value)

    def deserialize(
        self, topic: str, data: bytes | None, headers: RecordHeaders = NO_HEADERS
    ) -> Any:
        """See Deserializer."""
        return self._deserializer.deserialize(topic, data, headers)

    def read_named(
        self, topic: str, data: bytes, headers: RecordHeaders = NO_HEADERS
    ) -> NamedValue:
        """See RegistryDeserializer."""
        return self._deserializer.read_named(topic, data, headers)

    def written_name(self, topic: str) -> str:
        """See RegistrySerializer."""
        return self._serializer.written_name(topic)


def read_named(
    serde: Serde, part: RecordPart, topic: str, data: bytes, headers: RecordHeaders
) -> NamedValue:
    """Return a value as other formats take it, and what it is, as far as its format tells.

    Raises as Deserializer does.
    """
    if isinstance(serde, _RegistrySerde):
        return serde.read_named(topic, data, headers)
    # A format of another package may have a registry, too.
    type_ = schema_types.AVRO if names_schema(part, data, headers) else None
    return NamedValue(serde.deserialize(topic, data, headers), type_)


def written_name(serde: Serde, topic: str) -> str:
    """Return the full name of what is written to a topic, empty if the format does not tell.

    Raises as Serializer does.
    """
    return serde.written_name(topic) if isinstance(serde, _RegistrySerde) else ""


def close_serde(serde: Serde) -> None:
    """Close what a format holds open, if it holds anything."""
    close = getattr(serde, "close", None)
    if close is not None:
        close()


def flag(properties: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return a property that is true or false; raises ConfigError."""
    text = properties.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{name} {text}: true or false is expected")
    return text == "true"


def strategy(properties: Mapping[str, str], part: RecordPart) -> SubjectNameStrategy:
    """Return how subjects are named; raises ConfigError."""
    name = f"{part.value}.subject.name.strategy"
    return _of_class(properties, name, "TopicNameStrategy", SUBJECT_NAME_STRATEGIES)


def is_in_header(properties: Mapping[str, str], part: RecordPart) -> bool:
    """Return whether schemas are named in headers, not in front of values; raises ConfigError."""
    both = flag(properties, "schema.id.in.header", default=False)
    default = "HeaderSchemaIdSerializer" if both else "PrefixSchemaIdSerializer"
    return _of_class(properties, f"{part.value}.schema.id.serializer", default, _ID_SERIALIZERS)


def _of_class(
    properties: Mapping[str, str], name: str, default: str, known: Mapping[str, _Meaning]
) -> _Meaning:
    """Return what a property means that is the name of a class, with its package or without."""
    text = properties.get(name, default).strip()
    found = known.get(text.rpartition(".")[2])
    if found is None:
        raise ConfigError(f"{name} {text}: one of {', '.join(known)} is expected")
    return found
