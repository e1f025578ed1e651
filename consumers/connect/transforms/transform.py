"""What a transform is, and what most of them need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final, NamedTuple

from consumers.connect.configuration.definitions import ConfigDef, ConfigKey, ConfigType, Importance
from consumers.connect.configuration.validators import non_empty_list
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.records import Record, changed
from consumers.connect.data.schemas import Schema
from consumers.connect.data.structs import Struct

#: Schemas whose changed form a transform remembers.
SCHEMAS_REMEMBERED: Final = 16
#: Topics that have been matched with an expression.
TOPICS_REMEMBERED: Final = 1000
FIELDS: Final = ConfigKey(
    name="fields",
    type=ConfigType.LIST,
    validator=non_empty_list,
    importance=Importance.HIGH,
    documentation="Names of the fields.",
)
REPLACE_NULL: Final = ConfigKey(
    name="replace.null.with.default",
    type=ConfigType.BOOLEAN,
    default=True,
    documentation="Whether fields that are null get the default of their schema.",
)


class Side(NamedTuple):
    """The part of a record that a transform works on: its key, or its value."""

    name: str  # of the Java class: Key, Value
    member: str
    schema_member: str

    def value(self, record: Record) -> Any:
        """Return the key or the value."""
        return getattr(record, self.member)

    def schema(self, record: Record) -> Schema | None:
        """Return its schema."""
        schema: Schema | None = getattr(record, self.schema_member)
        return schema

    def changed(self, record: Record, schema: Schema | None, value: Any) -> Record:
        """Return the record with another key or value."""
        return changed(record, **{self.member: value, self.schema_member: schema})


KEY: Final = Side("Key", "key", "key_schema")
VALUE: Final = Side("Value", "value", "value_schema")


class Transform(ABC):
    """Changes one record after the other. `apply` raises DataException and nothing else."""

    #: The full name of the class in Kafka Connect, without `$Key` or `$Value`.
    kafka_name: ClassVar[str]
    config: ClassVar[ConfigDef] = ConfigDef()
    #: Whether it is one of the key or of the value, not of the record.
    has_sides: ClassVar[bool] = True

    def __init__(self, properties: Mapping[str, Any], side: Side = VALUE) -> None:
        """`properties` are those of the transform, without prefix; raises ConfigException."""
        self.side: Final = side
        self.settings: Final = self.config.parse(properties)

    @property
    def class_name(self) -> str:
        """The name of the class as Kafka Connect reports it."""
        return f"{self.kafka_name}${self.side.name}" if self.has_sides else self.kafka_name

    @abstractmethod
    def apply(self, record: Record) -> Record | None:
        """Return the record as it goes on, None if it is left out; raises DataException."""


def require_map(value: Any, purpose: str) -> dict[str, Any]:
    """Return a map; DataException for anything else."""
    if not isinstance(value, dict):
        raise DataException(
            f"Only Map objects supported in absence of schema for [{purpose}], "
            f"found: {_class_name(value)}"
        )
    return value


def require_struct(value: Any, purpose: str) -> Struct:
    """Return a struct; DataException for anything else."""
    if not isinstance(value, Struct):
        raise DataException(
            f"Only Struct objects supported for [{purpose}], found: {_class_name(value)}"
        )
    return value


def _class_name(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def field_values(struct: Struct, *, with_defaults: bool) -> tuple[Any, ...]:
    """Return a struct's values in the order of its fields."""
    return struct.values_with_defaults() if with_defaults else struct.values
