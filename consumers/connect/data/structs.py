"""Structs: values with named fields, as their schema lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from consumers.connect.data.exceptions import DataException
from consumers.connect.data.schemas import Schema, Type, validate_value


class Struct:
    """A value of a STRUCT schema. It never changes."""

    __slots__ = ("schema", "values")

    schema: Final[Schema]
    values: Final[tuple[Any, ...]]  # in the order of the schema's fields, without defaults

    def __init__(self, schema: Schema, fields: Mapping[str, Any]) -> None:
        """A field that is not named is None, which its schema must allow by being optional or by
        having a default. Raises DataException.
        """
        if schema.type is not Type.STRUCT:
            raise DataException(f"Not a struct schema: {schema}")
        for name in fields:
            if name not in schema.fields_by_name:
                raise DataException(f"{name} is not a valid field name")
        self.schema = schema
        self.values = tuple(fields.get(field.name) for field in schema.fields)
        validate_fields(self)

    @staticmethod
    def of(schema: Schema, values: Sequence[Any]) -> Struct:
        """Return a struct of values in the order of the fields that are known to be valid."""
        struct: Struct = object.__new__(Struct)
        struct.schema = schema  # type: ignore[misc]
        struct.values = tuple(values)  # type: ignore[misc]
        return struct

    def get(self, name: str) -> Any:
        """Return a field's value, its default for None; DataException for an unknown field."""
        field = self.schema.fields_by_name.get(name)
        if field is None:
            raise DataException(f"{name} is not a valid field name")
        value = self.values[field.index]
        return field.schema.default if value is None else value

    def get_without_default(self, name: str) -> Any:
        """Return a field's value; DataException for an unknown field."""
        field = self.schema.fields_by_name.get(name)
        if field is None:
            raise DataException(f"{name} is not a valid field name")
        return self.values[field.index]

    def values_with_defaults(self) -> tuple[Any, ...]:
        """Return all values in the order of the fields, with defaults for None."""
        return tuple(
            field.schema.default if value is None else value
            for field, value in zip(self.schema.fields, self.values, strict=True)
        )

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Struct):
            return False
        return self.values == other.values and self.schema == other.schema

    def __hash__(self) -> int:
        # Arrays and maps among the values have none.
        return hash(self.schema)

    def __repr__(self) -> str:
        return f"Struct({self.schema!r}, {self.values!r})"


def validate_fields(struct: Struct) -> None:
    """Raise DataException if a value is not of its field's schema."""
    for field, value in zip(struct.schema.fields, struct.values, strict=True):
        if value is not None or field.schema.default is None:
            validate_value(field.schema, value, f'field: "{field.name}"')
