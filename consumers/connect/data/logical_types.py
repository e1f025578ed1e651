"""Logical types: values with a meaning, kept as one of the plain types.

| schema | kept as | a value is |
|---|---|---|
| `decimal_schema` | BYTES: the unscaled number, two's complement | Decimal of that scale |
| DATE | INT32: days since 1970-01-01 | date |
| TIME | INT32: milliseconds since midnight | time without a zone |
| TIMESTAMP | INT64: milliseconds since 1970-01-01 UTC | aware datetime |

All functions raise DataException: for values of another kind, with parts of a millisecond dropped,
and for times outside of the years 1 to 9999, which Java's dates reach but Python's do not.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple

from consumers.connect.data.exceptions import DataException
from consumers.connect.data.schemas import (
    DATE_NAME,
    DECIMAL_NAME,
    TIME_NAME,
    TIMESTAMP_NAME,
    Schema,
    Type,
)

SCALE: Final = "scale"

DATE: Final = Schema(Type.INT32, name=DATE_NAME, version=1)
TIME: Final = Schema(Type.INT32, name=TIME_NAME, version=1)
TIMESTAMP: Final = Schema(Type.INT64, name=TIMESTAMP_NAME, version=1)
OPTIONAL_DATE: Final = DATE.replace(optional=True)
OPTIONAL_TIME: Final = TIME.replace(optional=True)
OPTIONAL_TIMESTAMP: Final = TIMESTAMP.replace(optional=True)

_DAY_MS: Final = 86_400_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAY: Final = date(1970, 1, 1)
_MILLISECOND: Final = timedelta(milliseconds=1)
#: Arithmetic that never rounds.
_EXACT: Final = decimal.Context(
    prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[]
)
#: Bytes of an unscaled number; a longer one would take minutes to convert.
_UNSCALED_BYTES_MAX: Final = 4096
_SCALE_MAX: Final = 10_000


def decimal_schema(scale: int, *, optional: bool = False) -> Schema:
    """Return the schema of decimals with so many digits after the point."""
    parameters = {SCALE: str(scale)}
    return Schema(
        Type.BYTES, name=DECIMAL_NAME, version=1, parameters=parameters, optional=optional
    )


def scale_of(schema: Schema) -> int:
    """Return the scale of a decimal's schema."""
    text = (schema.parameters or {}).get(SCALE)
    if text is None:
        raise DataException("Invalid Decimal schema: scale parameter not found.")
    try:
        scale = int(text)
    except ValueError as error:
        raise DataException("Invalid scale parameter found in Decimal schema: " + text) from error
    if abs(scale) > _SCALE_MAX:
        raise DataException(f"Invalid scale parameter found in Decimal schema: {text}")
    return scale


def decimal_to_bytes(schema: Schema, value: Any) -> bytes:
    """Return the unscaled number of a decimal, which must have the schema's scale."""
    if not isinstance(value, Decimal) or not value.is_finite():
        raise DataException(
            f"Invalid type for Decimal, expected a finite Decimal but was {_kind(value)}"
        )
    scale = scale_of(schema)
    exponent = value.as_tuple().exponent
    if exponent != -scale:
        raise DataException(
            "Decimal value has mismatching scale for given Decimal schema. "
            f"Schema has scale {scale}, value has scale {-int(exponent)}."
        )
    unscaled = int(_EXACT.scaleb(value, scale))
    # One bit more than the number has, for the sign.
    bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length() + 1
    return unscaled.to_bytes((bits + 7) // 8, "big", signed=True)


def decimal_from_bytes(schema: Schema, data: bytes) -> Decimal:
    """Return the decimal of an unscaled number."""
    return decimal_of(data, scale_of(schema))


def decimal_of(data: bytes, scale: int) -> Decimal:
    """Return the decimal of an unscaled number with so many digits after the point."""
    if not 0 < len(data) <= _UNSCALED_BYTES_MAX:
        raise DataException(f"Invalid bytes for Decimal field: {len(data)} bytes")
    if abs(scale) > _SCALE_MAX:
        raise DataException(f"Invalid scale of a Decimal field: {scale}")
    unscaled = int.from_bytes(data, "big", signed=True)
    return _EXACT.scaleb(Decimal(unscaled), -scale)


def date_to_days(_: Schema, value: Any) -> int:
    """Return the days from 1970-01-01 to a date."""
    if not isinstance(value, date) or isinstance(value, datetime):
        raise DataException(f"Invalid type for Date, expected Date but was {_kind(value)}")
    return (value - _FIRST_DAY).days


def date_from_days(_: Schema, days: int) -> date:
    """Return the date so many days after 1970-01-01."""
    try:
        return _FIRST_DAY + timedelta(days=days)
    except OverflowError as error:
        raise DataException(f"Date is out of range: {days} days since 1970-01-01") from error


def time_to_ms(_: Schema, value: Any) -> int:
    """Return the milliseconds from midnight to a time of day."""
    if not isinstance(value, time):
        raise DataException(f"Invalid type for Time, expected Date but was {_kind(value)}")
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1000 + value.microsecond // 1000


def time_from_ms(_: Schema, ms: int) -> time:
    """Return the time of day so many milliseconds after midnight."""
    if not 0 <= ms < _DAY_MS:
        raise DataException(
            "Time values must use number of milliseconds greater than 0 and less than 86400000"
        )
    seconds, milliseconds = divmod(ms, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return time(hour, minute, second, milliseconds * 1000)


def timestamp_to_ms(_: Schema, value: Any) -> int:
    """Return the milliseconds from 1970-01-01 UTC to an aware time."""
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise DataException(
            f"Invalid type for Timestamp, expected an aware datetime but was {_kind(value)}"
        )
    return (value - _EPOCH) // _MILLISECOND


def timestamp_from_ms(_: Schema, ms: int) -> datetime:
    """Return the time so many milliseconds after 1970-01-01 UTC."""
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except OverflowError as error:
        raise DataException(f"Timestamp is out of range: {ms} ms since 1970-01-01") from error


def _kind(value: Any) -> str:
    return "naive datetime" if isinstance(value, datetime) else type(value).__name__


class LogicalType(NamedTuple):
    """How values of a logical type are kept."""

    type: Type  # the plain type
    to_plain: Callable[[Schema, Any], Any]
    from_plain: Callable[[Schema, Any], Any]


#: By the schema's name.
LOGICAL_TYPES: Final = {
    DECIMAL_NAME: LogicalType(Type.BYTES, decimal_to_bytes, decimal_from_bytes),
    DATE_NAME: LogicalType(Type.INT32, date_to_days, date_from_days),
    TIME_NAME: LogicalType(Type.INT32, time_to_ms, time_from_ms),
    TIMESTAMP_NAME: LogicalType(Type.INT64, timestamp_to_ms, timestamp_from_ms),
}


def logical_type_of(schema: Schema | None) -> LogicalType | None:
    """Return the logical type of a schema, None for a plain one.

    A name alone does not make one: a schema of another type is plain.
    """
    if schema is None or schema.name is None:
        return None
    logical = LOGICAL_TYPES.get(schema.name)
    return logical if logical is not None and logical.type is schema.type else None
