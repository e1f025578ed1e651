"""The text of a value: as Java's `toString` writes it, and as Connect's headers hold it."""

from __future__ import annotations

import base64
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

from consumers.connect.data.exceptions import DataException
from consumers.connect.data.schemas import Schema, Type
from consumers.connect.data.structs import Struct
from consumers.connect.java.number_text import float32_text, float64_text


def time_text(value: date | time) -> str:
    """Return a date, a time of day or a time in UTC as ISO 8601 with milliseconds."""
    if isinstance(value, datetime):
        utc = value.astimezone(UTC) if value.tzinfo is not None else value
        return f"{utc:%Y-%m-%dT%H:%M:%S}.{utc.microsecond // 1000:03}Z".rjust(24, "0")
    if isinstance(value, date):
        return value.isoformat()
    return f"{value:%H:%M:%S}.{value.microsecond // 1000:03}Z"


def _scalar_text(value: Any, schema: Schema | None) -> str | None:
    """Return the text of a value without parts, None for others."""
    if isinstance(value, str):
        return value
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        narrow = schema is not None and schema.type is Type.FLOAT32
        return float32_text(value) if narrow else float64_text(value)
    if isinstance(value, (int, Decimal)):
        return format(value) if isinstance(value, Decimal) else _integer_text(value)
    if isinstance(value, bytes):
        # Java writes the address of the array here.
        return base64.b64encode(value).decode()
    if isinstance(value, (date, time)):
        return time_text(value)
    return None


def _integer_text(value: int) -> str:
    try:
        return str(value)
    except ValueError as error:
        raise DataException("The number has too many digits") from error


def java_text(value: Any, schema: Schema | None = None) -> str:
    """Return what `toString` returns, as StringConverter and Cast write: {a=1, b=[2, 3]}.

    Bytes are Base64 and times ISO 8601, where Java would write an address, and a time of the
    worker's zone. Raises DataException for a value of an unknown class, or nested too deeply.
    """
    try:
        return _java_text(value, schema)
    except RecursionError as error:
        raise DataException("The value is nested too deeply") from error


def _java_text(value: Any, schema: Schema | None) -> str:
    text = _scalar_text(value, schema)
    if text is not None:
        return text
    if isinstance(value, (list, tuple)):
        elements = schema.value_schema if schema is not None else None
        return "[" + ", ".join(_java_text(each, elements) for each in value) + "]"
    if isinstance(value, dict):
        keys = schema.key_schema if schema is not None else None
        values = schema.value_schema if schema is not None else None
        entries = (
            f"{_java_text(key, keys)}={_java_text(each, values)}" for key, each in value.items()
        )
        return "{" + ", ".join(entries) + "}"
    if isinstance(value, Struct):
        fields = (
            f"{field.name}={_java_text(each, field.schema)}"
            for field, each in zip(value.schema.fields, value.values, strict=True)
            if each is not None
        )
        return "Struct{" + ",".join(fields) + "}"
    raise DataException(f"A value of type {type(value).__name__} has no text")


def header_text(value: Any, schema: Schema | None = None) -> str:
    """Return the text from which `parse_text` reads the value again: {"a":1,"b":[2,3]}.

    It is that of Kafka's `Values.convertToString`. Raises DataException.
    """
    try:
        return _header_text(value, schema, embedded=False)
    except RecursionError as error:
        raise DataException("The value is nested too deeply") from error


def _header_text(value: Any, schema: Schema | None, *, embedded: bool = True) -> str:
    text = _scalar_text(value, schema)
    if text is not None:
        if embedded and isinstance(value, (str, bytes)):
            escaped = text.replace("\\", "\\\\").replace('"', '\\"')
            return f'"{escaped}"'
        return text
    if isinstance(value, (list, tuple)):
        elements = schema.value_schema if schema is not None else None
        return "[" + ",".join(_header_text(each, elements) for each in value) + "]"
    if isinstance(value, dict):
        keys = schema.key_schema if schema is not None else None
        values = schema.value_schema if schema is not None else None
        entries = (
            f"{_header_text(key, keys)}:{_header_text(each, values)}" for key, each in value.items()
        )
        return "{" + ",".join(entries) + "}"
    if isinstance(value, Struct):
        fields = (
            f"{_header_text(field.name, None)}:{_header_text(each, field.schema)}"
            for field, each in zip(value.schema.fields, value.values_with_defaults(), strict=True)
        )
        return "{" + ",".join(fields) + "}"
    raise DataException(f"Failed to serialize unexpected value type {type(value).__name__}")
