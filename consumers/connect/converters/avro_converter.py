"""Avro with a schema registry: what Confluent's AvroConverter does.

Schemas of Connect become schemas of the registry, `TOPIC-key` and `TOPIC-value` unless another
strategy names the subjects, and schemas of the registry become Connect's. What Avro has no word for
stands in attributes (`connect.name`, ...), as Confluent's converter writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import msgspec

from consumers.connect.configuration.definitions import (
    NO_DEFAULT,
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
)
from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.configuration.password import Password
from consumers.connect.configuration.validators import at_least, one_of
from consumers.connect.converters.avro_reading import AvroReading, avro_reading
from consumers.connect.converters.avro_writing import Write, avro_writing
from consumers.connect.converters.converter import CONVERTER_TYPE, Converter
from consumers.connect.data.exceptions import DataException, RetriableException
from consumers.connect.data.schemas import NULL, Schema, SchemaAndValue
from waylog.bounded_cache import BoundedCache
from waylog.config import ConfigError
from waylog.extras import install_command, is_installed
from waylog.serialization.by_name import strategy
from waylog.serialization.schema_ids import SchemaId, split
from waylog.serialization.serializer import (
    RecordPart,
    SchemaRegistryUnavailable,
    SerializationError,
    Serializer,
)

if TYPE_CHECKING:
    from waylog.serialization.avro_schema import AvroSchema
    from waylog.serialization.registry_client import RegistryClient

_URL: Final = "schema.registry.url"
_AUTO_REGISTER: Final = "auto.register.schemas"
_LATEST: Final = "use.latest.version"
_NORMALIZE: Final = "normalize.schemas"
_METADATA: Final = "connect.meta.data"
_CACHE_SIZE: Final = "schemas.cache.config"
_CREDENTIALS_SOURCE: Final = "basic.auth.credentials.source"
_USER_INFO: Final = "basic.auth.user.info"
_OLD_USER_INFO: Final = "schema.registry.basic.auth.user.info"
_CA: Final = "schema.registry.ssl.ca.location"
_STRATEGY: Final = "{}.subject.name.strategy"
_TOPIC_NAME: Final = "io.confluent.kafka.serializers.subject.TopicNameStrategy"


def _not_supported(name: str, value: Any) -> None:
    if value:
        raise ConfigException(
            f"Invalid value {value} for configuration {name}: records are written with the schema "
            "that they have; use transforms to change it"
        )


class _Writing(NamedTuple):
    """How values of a schema are written."""

    write: Write
    serializer: Serializer


def _key(
    name: str,
    type_: ConfigType,
    default: Any,
    importance: Importance,
    documentation: str,
    **more: Any,
) -> ConfigKey:
    return ConfigKey(
        name=name,
        type=type_,
        default=default,
        importance=importance,
        documentation=documentation,
        **more,
    )


class AvroConverter(Converter):
    """Reads and writes Avro in the wire format of Confluent's registry, the id in front."""

    kafka_name = "io.confluent.connect.avro.AvroConverter"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            CONVERTER_TYPE,
            _key(_URL, ConfigType.LIST, NO_DEFAULT, Importance.HIGH,
                 "The schema registry, one or several addresses of it."),
            _key(_AUTO_REGISTER, ConfigType.BOOLEAN, True, Importance.MEDIUM,
                 "Whether schemas that the registry lacks are registered."),
            _key(_LATEST, ConfigType.BOOLEAN, False, Importance.LOW,
                 "Whether the newest schema of the subject is written, not the record's own.",
                 validator=_not_supported),
            _key(_NORMALIZE, ConfigType.BOOLEAN, False, Importance.MEDIUM,
                 "Whether schemas are registered with their attributes sorted."),
            _key(_METADATA, ConfigType.BOOLEAN, True, Importance.LOW,
                 "Whether names, versions and types of Connect stand in the schemas."),
            _key(_CACHE_SIZE, ConfigType.INT, 1000, Importance.LOW,
                 "How many schemas the converter remembers.", validator=at_least(1)),
            _key(_CREDENTIALS_SOURCE, ConfigType.STRING, "URL", Importance.MEDIUM,
                 "Where the registry's credentials are.", validator=one_of("URL", "USER_INFO")),
            _key(_USER_INFO, ConfigType.PASSWORD, "", Importance.MEDIUM, "USER:PASSWORD."),
            _key(_OLD_USER_INFO, ConfigType.PASSWORD, "", Importance.MEDIUM,
                 "The former name of basic.auth.user.info."),
            _key(_CA, ConfigType.STRING, None, Importance.MEDIUM,
                 "PEM: the authority of the registry's certificate."),
            *(
                _key(_STRATEGY.format(part), ConfigType.STRING, _TOPIC_NAME, Importance.MEDIUM,
                     f"How the subjects of {part}s are named.")
                for part in ("key", "value")
            ),
        ]
    )  # fmt: skip

    def __init__(self, properties: Mapping[str, Any]) -> None:
        """Raises ConfigException."""
        super().__init__(properties)
        if not is_installed("avro"):
            raise ConfigException(f"AvroConverter needs more packages: {install_command('avro')}")
        settings = self.settings
        self._part: Final = (
            RecordPart.KEY if settings["converter.type"] == "key" else RecordPart.VALUE
        )
        try:
            name = _STRATEGY.format(self._part.value)
            self._strategy: Final = strategy({name: settings[name]}, self._part)
        except ConfigError as error:
            raise ConfigException(str(error)) from None
        self._with_metadata: Final[bool] = settings[_METADATA]
        self._registry: Final = self._connect()
        size: int = settings[_CACHE_SIZE]
        self._writings: Final = BoundedCache(self._make_writing, size)
        self._readings: Final = BoundedCache(self._make_reading, size)

    def _connect(self) -> RegistryClient:
        from waylog.serialization.registry_client import RegistryClient

        properties: dict[str, Any] = {}
        if self.settings[_CREDENTIALS_SOURCE] == "USER_INFO":
            given: Password = self.settings[_USER_INFO]
            former: Password = self.settings[_OLD_USER_INFO]
            properties[_USER_INFO] = given.value or former.value
        if self.settings[_CA] is not None:
            properties["ssl.ca.location"] = self.settings[_CA]
        try:
            return RegistryClient(",".join(self.settings[_URL]), properties)
        except (ValueError, OSError) as error:
            raise ConfigException(f"{_URL}: {error}") from None

    def close(self) -> None:
        """Close connections to the registry."""
        self._registry.close()

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the bytes; None for a tombstone.

        Raises RetriableException while the registry is away.
        """
        if value is None and (schema is None or schema.optional):
            return None
        if schema is None:
            raise DataException(
                "Failed to serialize Avro data: the record has no schema. Schemas come from the "
                "source, or from a transform; JsonConverter takes records without"
            )
        try:
            writing = self._writings.get(schema)
            return writing.serializer.serialize(topic, writing.write(value)).data
        except SchemaRegistryUnavailable as error:
            raise RetriableException(str(error)) from error
        except SerializationError as error:
            raise DataException(
                f"Failed to serialize Avro data from topic {topic}: {error}"
            ) from error

    def to_connect(self, topic: str, data: bytes | None) -> SchemaAndValue:
        """Return the value; of a tombstone none. Raises RetriableException as above."""
        if data is None:
            return NULL
        try:
            framed = split(self._part, data)
            reading = self._readings.get(framed.schema_id)
            value = self._schema_of(framed.schema_id).read(framed.payload)
            return SchemaAndValue(reading.schema, reading.read(value))
        except SchemaRegistryUnavailable as error:
            raise RetriableException(str(error)) from error
        except (SerializationError, RecursionError) as error:
            raise DataException(
                f"Failed to deserialize data for topic {topic} to Avro: {error}"
            ) from error

    def _make_writing(self, schema: Schema) -> _Writing:
        from waylog.serialization.registry_serializer import RegistrySerializer

        try:
            avro, write = avro_writing(schema, with_metadata=self._with_metadata)
        except RecursionError as error:
            raise DataException("the schema is nested too deeply") from error
        serializer = RegistrySerializer(
            self._registry,
            self._part,
            msgspec.json.encode(avro).decode(),
            auto_register=self.settings[_AUTO_REGISTER],
            normalize=self.settings[_NORMALIZE],
            subject_name=self._strategy,
        )
        return _Writing(write, serializer)

    def _make_reading(self, schema_id: SchemaId) -> AvroReading:
        schema = self._schema_of(schema_id)
        return avro_reading(schema.json, schema.referenced)

    def _schema_of(self, schema_id: SchemaId) -> AvroSchema:
        from waylog.serialization.avro_schema import AvroSchema

        schema = self._registry.schema_of(schema_id)
        if not isinstance(schema, AvroSchema):
            raise SerializationError("the schema is not of type AVRO")
        return schema
