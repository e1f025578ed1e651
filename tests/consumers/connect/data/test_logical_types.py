"""Decimals and times are kept as Kafka Connect keeps them."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.connect.data.exceptions import DataException
from consumers.connect.data.logical_types import (
    DATE,
    LOGICAL_TYPES,
    TIME,
    TIMESTAMP,
    decimal_schema,
    logical_type_of,
)
from consumers.connect.data.schemas import DATE_NAME, DECIMAL_NAME, Schema, Type


def to_plain(schema: Schema, value: Any) -> Any:
    logical = logical_type_of(schema)
    assert logical is not None
    return logical.to_plain(schema, value)


def from_plain(schema: Schema, value: Any) -> Any:
    logical = logical_type_of(schema)
    assert logical is not None
    return logical.from_plain(schema, value)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        # From the tests of Kafka: 156 of scale 2.
        ("1.56", b"\x00\x9c"),
        ("-1.56", b"\xff\x64"),
        ("0.00", b"\x00"),
        ("-1.28", b"\x80"),
        ("1.27", b"\x7f"),
    ],
)
def test_a_decimal_is_its_unscaled_number(value: str, data: bytes) -> None:
    schema = decimal_schema(2)
    assert to_plain(schema, Decimal(value)) == data
    assert from_plain(schema, data) == Decimal(value)
    assert str(from_plain(schema, data)) == value


@given(st.integers(min_value=-(10**60), max_value=10**60), st.integers(-20, 40))
def test_no_digit_of_a_decimal_is_lost(unscaled: int, scale: int) -> None:
    digits = Decimal(unscaled).as_tuple()
    value = Decimal((digits.sign, digits.digits, -scale))
    schema = decimal_schema(scale)
    assert from_plain(schema, to_plain(schema, value)).as_tuple() == value.as_tuple()


def test_a_decimal_of_another_scale_is_refused() -> None:
    with pytest.raises(DataException, match="Schema has scale 2, value has scale 1"):
        to_plain(decimal_schema(2), Decimal("1.5"))
    for value in (Decimal("NaN"), 1.5, "1"):
        with pytest.raises(DataException):
            to_plain(decimal_schema(2), value)


def test_a_schema_of_decimals_without_a_scale_is_refused() -> None:
    for parameters in (None, {"scale": "x"}, {"scale": "9999999999"}):
        schema = Schema(Type.BYTES, name=DECIMAL_NAME, parameters=parameters)
        with pytest.raises(DataException):
            from_plain(schema, b"\x01")
    with pytest.raises(DataException):
        from_plain(decimal_schema(0), b"")


@given(st.dates())
def test_a_date_is_its_days(value: date) -> None:
    assert from_plain(DATE, to_plain(DATE, value)) == value


@given(st.times())
def test_a_time_of_day_is_its_milliseconds(value: time) -> None:
    value = value.replace(microsecond=value.microsecond // 1000 * 1000)
    assert from_plain(TIME, to_plain(TIME, value)) == value


@given(st.datetimes(min_value=datetime(1, 1, 2), timezones=st.just(timezone(timedelta(hours=2)))))
def test_a_time_is_its_milliseconds_in_utc(value: datetime) -> None:
    value = value.replace(microsecond=value.microsecond // 1000 * 1000)
    assert from_plain(TIMESTAMP, to_plain(TIMESTAMP, value)) == value


def test_known_times() -> None:
    assert to_plain(DATE, date(1970, 1, 2)) == 1
    assert to_plain(TIME, time(0, 0, 1, 5000)) == 1005
    assert to_plain(TIMESTAMP, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == 1000
    assert from_plain(TIMESTAMP, -1) == datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("schema", "plain"),
    [(DATE, 10**9), (TIME, 86_400_000), (TIME, -1), (TIMESTAMP, 2**62), (TIMESTAMP, -(2**62))],
)
def test_a_time_that_nobody_can_hold_is_refused(schema: Schema, plain: int) -> None:
    with pytest.raises(DataException):
        from_plain(schema, plain)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (DATE, datetime(2024, 1, 1, tzinfo=UTC)),
        (DATE, 1),
        (TIME, date(2024, 1, 1)),
        (TIMESTAMP, datetime(2024, 1, 1)),
        (TIMESTAMP, 1),
    ],
)
def test_a_value_of_another_kind_is_refused(schema: Schema, value: Any) -> None:
    with pytest.raises(DataException):
        to_plain(schema, value)


def test_a_name_alone_makes_no_logical_type() -> None:
    assert logical_type_of(Schema(Type.STRING, name=DATE_NAME)) is None
    assert logical_type_of(None) is None
    assert len(LOGICAL_TYPES) == 4
