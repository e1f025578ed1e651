"""ExtractField: one field in place of all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from consumers.connect.configuration.definitions import ConfigDef, ConfigKey, ConfigType
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.records import Record
from consumers.connect.transforms.field_path import FIELD_SYNTAX_VERSION, FieldPath
from consumers.connect.transforms.transform import (
    REPLACE_NULL,
    VALUE,
    Side,
    Transform,
    require_map,
    require_struct,
)

_PURPOSE: Final = "field extraction"


class ExtractField(Transform):
    """Puts one field, which may be within others, in place of the key or value."""

    kafka_name = "org.apache.kafka.connect.transforms.ExtractField"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(name="field", type=ConfigType.STRING, documentation="Name of the field."),
            FIELD_SYNTAX_VERSION,
            REPLACE_NULL,
        ]
    )

    def __init__(self, properties: Mapping[str, Any], side: Side = VALUE) -> None:
        """Raises ConfigException."""
        super().__init__(properties, side)
        self._name: Final[str] = self.settings["field"]
        self._path: Final = FieldPath(self._name, self.settings[FIELD_SYNTAX_VERSION.name])
        self._with_default: Final[bool] = self.settings[REPLACE_NULL.name]

    def apply(self, record: Record) -> Record:
        """Return the record with the field alone.

        A field that a map does not have is null; one that a schema does not have is DataException.
        """
        schema = self.side.schema(record)
        value = self.side.value(record)
        if schema is None:
            if value is not None:
                value = self._path.value_in_map(require_map(value, _PURPOSE))
            return self.side.changed(record, None, value)
        field = self._path.field_of(schema)
        if field is None:
            raise DataException(f"Unknown field: {self._name}")
        if value is not None:
            struct = require_struct(value, _PURPOSE)
            value = self._path.value_in_struct(struct, with_default=self._with_default)
        return self.side.changed(record, field.schema, value)
