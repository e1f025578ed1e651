"""What the converters with a schema registry have in common; their properties are Confluent's.

Schemas of Connect become schemas of the registry, `TOPIC-key` and `TOPIC-value` unless another
strategy names the subjects, and schemas of the registry become Connect's.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from consumers.connect.configuration.definitions import (
    NO_DEFAULT,
    ConfigKey,
    ConfigType,
    Importance,
)
from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.configuration.password import Password
from consumers.connect.configuration.validators import at_least, one_of
from consumers.connect.converters.converter import CONVERTER_TYPE, AddedHeaders, Converter
from consumers.connect.data.exceptions import DataException, RetriableException
from consumers.connect.data.schemas import NULL, Schema, SchemaAndValue
from waylog.bounded_cache import BoundedCache
from waylog.config import ConfigError
from waylog.extras import install_command, is_installed
from waylog.serialization.by_name import is_in_header, strategy
from waylog.serialization.schema_ids import Framed, SchemaId, header_name, split
from waylog.serialization.serializer import (
    NO_HEADERS,
    RecordHeaders,
    RecordPart,
    SchemaRegistryUnavailable,
    SerializationError,
)

if TYPE_CHECKING:
    from waylog.serialization.registered_schemas import RecordSchema
    from waylog.serialization.registry_client import RegistryClient
    from waylog.serialization.registry_serializer import RegistrySerializer

_URL: Final = "schema.registry.url"
_AUTO_REGISTER: Final = "auto.register.schemas"
_LATEST: Final = "use.latest.version"
_NORMALIZE: Final = "normalize.schemas"
_CREDENTIALS_SOURCE: Final = "basic.auth.credentials.source"
_USER_INFO: Final = "basic.auth.user.info"
_OLD_USER_INFO: Final = "schema.registry.basic.auth.user.info"
_CA: Final = "schema.registry.ssl.ca.location"
_STRATEGY: Final = "{}.subject.name.strategy"
_TOPIC_NAME: Final = "io.confluent.kafka.serializers.subject.TopicNameStrategy"
_ID_SERIALIZER: Final = "{}.schema.id.serializer"
_PREFIX: Final = "io.confluent.kafka.serializers.schema.id.PrefixSchemaIdSerializer"
#: How many schemas each converter remembers.
CACHE_SIZE: Final = "schemas.cache.config"


class Writing(NamedTuple):
    """How values of a schema are written."""

    write: Callable[[Any], Any]
    serializer: RegistrySerializer


def converter_key(
    name: str,
    type_: ConfigType,
    default: Any,
    importance: Importance,
    documentation: str,
    **more: Any,
) -> ConfigKey:
    """Return a property of a converter."""
    return ConfigKey(
        name=name,
        type=type_,
        default=default,
        importance=importance,
        documentation=documentation,
        **more,
    )


def refused_if_true(reason: str) -> Callable[[str, Any], None]:
    """Return a validator for a property that only its default has an answer to."""

    def check(name: str, value: Any) -> None:
        if value:
            raise ConfigException(f"Invalid value {value} for configuration {name}: {reason}")

    return check


def registry_keys() -> list[ConfigKey]:
    """Return the properties that all converters with a registry have."""
    return [
        CONVERTER_TYPE,
        converter_key(_URL, ConfigType.LIST, NO_DEFAULT, Importance.HIGH,
                      "The schema registry, one or several addresses of it."),
        converter_key(_AUTO_REGISTER, ConfigType.BOOLEAN, True, Importance.MEDIUM,
                      "Whether schemas that the registry lacks are registered."),
        converter_key(_LATEST, ConfigType.BOOLEAN, False, Importance.LOW,
                      "Whether the newest schema of the subject is written, not the record's own.",
                      validator=refused_if_true("records are written with the schema that they "
                                                "have; use transforms to change it")),
        converter_key(_NORMALIZE, ConfigType.BOOLEAN, False, Importance.MEDIUM,
                      "Whether schemas are registered with their attributes sorted."),
        converter_key(CACHE_SIZE, ConfigType.INT, 1000, Importance.LOW,
                      "How many schemas the converter remembers.", validator=at_least(1)),
        converter_key(_CREDENTIALS_SOURCE, ConfigType.STRING, "URL", Importance.MEDIUM,
                      "Where the registry's credentials are.",
                      validator=one_of("URL", "USER_INFO")),
        converter_key(_USER_INFO, ConfigType.PASSWORD, "", Importance.MEDIUM, "USER:PASSWORD."),
        converter_key(_OLD_USER_INFO, ConfigType.PASSWORD, "", Importance.MEDIUM,
                      "The former name of basic.auth.user.info."),
        converter_key(_CA, ConfigType.STRING, None, Importance.MEDIUM,
                      "PEM: the authority of the registry's certificate."),
        *(
            converter_key(_STRATEGY.format(part), ConfigType.STRING, _TOPIC_NAME,
                          Importance.MEDIUM, f"How the subjects of {part}s are named.")
            for part in ("key", "value")
        ),
        *(
            converter_key(_ID_SERIALIZER.format(part), ConfigType.STRING, _PREFIX, Importance.LOW,
                          f"Whether schemas are named in front of {part}s "
                          "(PrefixSchemaIdSerializer), or in a header "
                          "(HeaderSchemaIdSerializer). Both are read.")
            for part in ("key", "value")
        ),
    ]  # fmt: skip


class RegistryConverter(Converter):
    """Reads and writes in the wire formats of Confluent's registry, of one type of schemas."""

    #: The type, as messages call it.
    format_name: ClassVar[str]
    #: The extras that have its libraries.
    extras: ClassVar[tuple[str, ...]] = ("avro",)

    def __init__(self, properties: Mapping[str, Any]) -> None:
        """Raises ConfigException."""
        super().__init__(properties)
        for extra in self.extras:
            if not is_installed(extra):
                raise ConfigException(
                    f"{type(self).__name__} needs more packages: {install_command(extra)}"
                )
        settings = self.settings
        self._part: Final = (
            RecordPart.KEY if settings["converter.type"] == "key" else RecordPart.VALUE
        )
        try:
            self._strategy: Final = strategy(self._texts(_STRATEGY), self._part)
            self._in_header: Final = is_in_header(self._texts(_ID_SERIALIZER), self._part)
        except ConfigError as error:
            raise ConfigException(str(error)) from None
        self._header: Final = header_name(self._part)
        self._registry: Final = self._connect()
        size: int = settings[CACHE_SIZE]
        self._writings: Final = BoundedCache(self._checked_writing, size)

    def _texts(self, name: str) -> dict[str, str]:
        of_part = name.format(self._part.value)
        return {of_part: self.settings[of_part]}

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

    def from_connect(
        self, topic: str, schema: Schema | None, value: Any, headers: AddedHeaders | None = None
    ) -> bytes | None:
        """Return the bytes; None for a tombstone.

        Raises RetriableException while the registry is away.
        """
        if headers and any(name == self._header for name, _ in headers):
            # It names the schema of a record that was read.
            headers[:] = [each for each in headers if each[0] != self._header]
        if value is None and (schema is None or schema.optional):
            return None
        if schema is None:
            raise DataException(
                f"Failed to serialize {self.format_name} data: the record has no schema. Schemas "
                "come from the source, or from a transform; JsonConverter takes records without"
            )
        try:
            writing = self._writings.get(schema)
            data, added = writing.serializer.serialize(topic, writing.write(value))
        except SchemaRegistryUnavailable as error:
            raise RetriableException(str(error)) from error
        except (SerializationError, RecursionError) as error:
            raise DataException(
                f"Failed to serialize {self.format_name} data from topic {topic}: {error}"
            ) from error
        if added:
            if headers is None:
                raise DataException("the schema is to be named in a header, and there are none")
            headers.extend(added)
        return data

    def to_connect(
        self, topic: str, data: bytes | None, headers: RecordHeaders = NO_HEADERS
    ) -> SchemaAndValue:
        """Return the value; of a tombstone none. Raises RetriableException as above."""
        if data is None:
            return NULL
        try:
            framed = split(self._part, data, headers)
            return self._read(framed)
        except SchemaRegistryUnavailable as error:
            raise RetriableException(str(error)) from error
        except (SerializationError, RecursionError) as error:
            raise DataException(
                f"Failed to deserialize data for topic {topic} to {self.format_name}: {error}"
            ) from error

    def _checked_writing(self, schema: Schema) -> Writing:
        try:
            return self._make_writing(schema)
        except RecursionError as error:
            raise DataException("the schema is nested too deeply") from error

    def _serializer(
        self, text: str, schema_type: str, message: str | None = None
    ) -> RegistrySerializer:
        """Return what writes values of a schema of the registry; raises SerializationError."""
        from waylog.serialization.registry_serializer import RegistrySerializer

        return RegistrySerializer(
            self._registry,
            self._part,
            text,
            schema_type=schema_type,
            message=message,
            auto_register=self.settings[_AUTO_REGISTER],
            normalize=self.settings[_NORMALIZE],
            in_header=self._in_header,
            subject_name=self._strategy,
        )

    def _schema_of(self, schema_id: SchemaId) -> RecordSchema:
        return self._registry.schema_of(schema_id)

    @abstractmethod
    def _make_writing(self, schema: Schema) -> Writing:
        """Return how a schema's values are written; raises DataException, SerializationError."""

    @abstractmethod
    def _read(self, framed: Framed) -> SchemaAndValue:
        """Return a value that is in no frame any more.

        Raises DataException, SerializationError and SchemaRegistryUnavailable.
        """
