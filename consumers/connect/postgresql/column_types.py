"""Types of columns: what a field becomes, and how a value is written into a column that exists.

| schema | column | value without a schema | column |
|---|---|---|---|
| INT8, INT16; INT32; INT64 | smallint; integer; bigint | whole number | bigint |
| FLOAT32; FLOAT64 | real; double precision | other number | double precision |
| BOOLEAN; STRING; BYTES | boolean; text; bytea | true, text | boolean, text |
| Decimal; Date; Time; Timestamp | numeric; date; time; timestamptz | | |
| ARRAY, MAP, STRUCT | jsonb | array, object | jsonb |

Fields that `timestamp.fields` names are timestamptz, from milliseconds since 1970-01-01 UTC.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from consumers.connect.data.exceptions import DataException
from consumers.connect.data.json_text import json_bytes
from consumers.connect.data.logical_types import logical_type_of
from consumers.connect.data.schemas import (
    DATE_NAME,
    DECIMAL_NAME,
    TIME_NAME,
    TIMESTAMP_NAME,
    Schema,
    Type,
)
from consumers.connect.data.structs import Struct

TIMESTAMPTZ: Final = "timestamptz"
_PLAIN: Final = {
    Type.INT8: "smallint",
    Type.INT16: "smallint",
    Type.INT32: "integer",
    Type.INT64: "bigint",
    Type.FLOAT32: "real",
    Type.FLOAT64: "double precision",
    Type.BOOLEAN: "boolean",
    Type.STRING: "text",
    Type.BYTES: "bytea",
}
_LOGICAL: Final = {
    DECIMAL_NAME: "numeric",
    DATE_NAME: "date",
    TIME_NAME: "time",
    TIMESTAMP_NAME: TIMESTAMPTZ,
}
#: In the order in which they are asked: a boolean is a whole number to Python, a datetime a date.
_OF_VALUES: Final[tuple[tuple[type, str], ...]] = (
    (bool, "boolean"),
    (int, "bigint"),
    (float, "double precision"),
    (str, "text"),
    (bytes, "bytea"),
    (Decimal, "numeric"),
    (datetime, TIMESTAMPTZ),
    (date, "date"),
    (time, "time"),
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Convert = Callable[[Any], Any]


class ColumnKind(enum.Enum):
    """What matters of a column's type for writing into it."""

    TEXT = "text"
    WHOLE = "whole"
    JSON = "json"
    TIMESTAMP = "timestamp"
    PLACE = "place"  # geometry or geography
    GENERATED = "generated"  # nobody can write it
    OTHER = "other"


def type_of_schema(schema: Schema) -> str:
    """Return the type of a column for values of a schema."""
    if logical_type_of(schema) is not None:
        return _LOGICAL[schema.name or ""]
    return _PLAIN.get(schema.type, "jsonb")


def type_of_value(value: Any) -> str | None:
    """Return the type of a column for a value without a schema, None if it says nothing."""
    if value is None:
        return None
    for class_, type_ in _OF_VALUES:
        if isinstance(value, class_):
            return type_
    return "jsonb"


def wider(first: str | None, second: str | None) -> str | None:
    """Return the type that takes values of both."""
    if first == second or second is None:
        return first
    if first is None:
        return second
    if {first, second} == {"bigint", "double precision"}:
        return "double precision"
    # A member that is a number here and a text there.
    return "jsonb" if "jsonb" in (first, second) else "text"


def kind_of(type_name: str, category: str, *, generated: bool) -> ColumnKind:
    """Return the kind of a column by its type's name and category (`pg_type`)."""
    if generated:
        return ColumnKind.GENERATED
    if type_name in ("json", "jsonb"):
        return ColumnKind.JSON
    if type_name in ("geometry", "geography"):
        return ColumnKind.PLACE
    if type_name in ("int2", "int4", "int8"):
        return ColumnKind.WHOLE
    if type_name in ("timestamp", "timestamptz"):
        return ColumnKind.TIMESTAMP
    return ColumnKind.TEXT if category == "S" else ColumnKind.OTHER


def converter_of(kind: ColumnKind) -> tuple[type | None, Convert] | None:
    """Return how values, never None, are converted for a column; None: they go there as they are.

    Values of the class that comes first need no conversion. The functions raise DataException.
    """
    return _CONVERTERS.get(kind)


def _json(value: Any) -> str:
    return json_bytes(value).decode()


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _json(value) if isinstance(value, (dict, list, Struct)) else value


def _whole(value: Any) -> Any:
    """14.0 is a whole number, too; what is none is for the database to refuse."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _timestamp(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return _EPOCH + timedelta(milliseconds=value)
        except OverflowError as error:
            raise DataException(f"{value} ms is not a time in the years 1 to 9999") from error
    return value


_CONVERTERS: Final[dict[ColumnKind, tuple[type | None, Convert]]] = {
    ColumnKind.JSON: (None, _json),
    ColumnKind.TEXT: (str, _text),
    ColumnKind.WHOLE: (int, _whole),
    ColumnKind.TIMESTAMP: (datetime, _timestamp),
}
