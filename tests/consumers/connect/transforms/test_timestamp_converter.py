"""Times are converted between all forms."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.logical_types import (
    DATE,
    OPTIONAL_TIMESTAMP,
    TIME,
    TIMESTAMP,
    timestamp_to_ms,
)
from consumers.connect.data.schemas import INT8, INT64, OPTIONAL_INT64, STRING, Schema, struct_of
from consumers.connect.data.structs import Struct
from tests.consumers.connect.transforms.records_for_transforms import applied, fields, make, record

TIME_OF_TESTS = datetime(1970, 1, 2, 0, 0, 0, 1000, tzinfo=UTC)
MS = 86_400_001
PATTERN = "yyyy MM dd HH mm ss SSS z"
TEXT = "1970 01 02 00 00 00 001 UTC"


@pytest.mark.parametrize(
    ("target", "schema", "value"),
    [
        ("unix", INT64, MS),
        ("string", STRING, TEXT),
        ("Date", DATE, date(1970, 1, 2)),
        ("Time", TIME, time(0, 0, 0, 1000)),
        ("Timestamp", TIMESTAMP, TIME_OF_TESTS),
    ],
)
def test_any_form_becomes_any_other(target: str, schema: Schema, value: Any) -> None:
    transform = make("TimestampConverter", target_type=target, format=PATTERN)
    for from_schema, from_value in ((INT64, MS), (STRING, TEXT), (TIMESTAMP, TIME_OF_TESTS)):
        found = applied(transform, record(from_value, from_schema))
        assert (found.value, found.value_schema) == (value, schema)
        assert applied(transform, record(from_value)).value == value
        of_field = make("TimestampConverter", target_type=target, format=PATTERN, field="ts")
        assert applied(of_field, record({"ts": from_value, "x": 1})).value == {"ts": value, "x": 1}
        with_field = struct_of({"ts": from_schema, "x": INT8})
        struct = Struct(with_field, {"ts": from_value, "x": 1})
        found = applied(of_field, record(struct, with_field))
        assert fields(found.value) == {"ts": value, "x": 1}
        assert found.value_schema == struct_of({"ts": schema, "x": INT8})


def test_dates_and_times_of_day_become_times() -> None:
    transform = make("TimestampConverter", target_type="Timestamp")
    assert applied(transform, record(date(1970, 1, 2), DATE)).value == datetime(
        1970, 1, 2, tzinfo=UTC
    )
    assert applied(transform, record(time(1), TIME)).value == datetime(1970, 1, 1, 1, tzinfo=UTC)


def test_null_stays_null_with_its_new_schema() -> None:
    transform = make("TimestampConverter", target_type="Timestamp")
    found = applied(transform, record(None, OPTIONAL_INT64))
    assert (found.value, found.value_schema) == (None, OPTIONAL_TIMESTAMP)
    assert applied(transform, record(None)).value is None


@pytest.mark.parametrize(
    ("precision", "unix"),
    [
        ("seconds", 1_700_000_000),
        ("milliseconds", 1_700_000_000_000),
        ("microseconds", 1_700_000_000_000_000),
        ("nanoseconds", 1_700_000_000_000_000_000),
    ],
)
def test_numbers_have_the_unit_that_is_set(precision: str, unix: int) -> None:
    instant = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    to_time = make("TimestampConverter", target_type="Timestamp", unix_precision=precision)
    assert applied(to_time, record(unix)).value == instant
    to_number = make("TimestampConverter", target_type="unix", unix_precision=precision)
    assert applied(to_number, record(instant, TIMESTAMP)).value == unix


@pytest.mark.parametrize(
    "value", [1.5, True, [1], {"a": 1}, "text", b"x", 10**30, "1970 01 02", object()]
)
def test_what_is_no_time_is_refused(value: Any) -> None:
    for properties in ({"format": PATTERN}, {}):
        with pytest.raises(DataException):
            make("TimestampConverter", target_type="unix", **properties).apply(record(value))


def test_a_schema_that_is_no_times_is_refused() -> None:
    transform = make("TimestampConverter", target_type="unix")
    with pytest.raises(DataException, match="does not correspond to a known timestamp type"):
        transform.apply(record(1, INT8))
    with pytest.raises(DataException):
        make("TimestampConverter", target_type="unix", field="x").apply(record(1, INT64))


@pytest.mark.parametrize(
    "properties",
    [
        {"target_type": "string"},
        {"target_type": "none"},
        {"target_type": "string", "format": "bbb"},
        {"target_type": "unix", "unix_precision": "years"},
        {},
    ],
)
def test_settings_that_are_none_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigException):
        make("TimestampConverter", **properties)


@given(st.datetimes(timezones=st.just(UTC)))
def test_numbers_and_times_are_the_same(instant: datetime) -> None:
    to_number = make("TimestampConverter", target_type="unix")
    to_time = make("TimestampConverter", target_type="Timestamp")
    number = applied(to_number, record(instant, TIMESTAMP)).value
    assert number == timestamp_to_ms(TIMESTAMP, instant)
    back = applied(to_time, record(number, INT64)).value
    assert timestamp_to_ms(TIMESTAMP, back) == number


def test_numbers_before_1970_are_cut_towards_1970() -> None:
    to_seconds = make("TimestampConverter", target_type="unix", unix_precision="seconds")
    before = datetime(1969, 12, 31, 23, 59, 58, 500_000, tzinfo=UTC)
    assert applied(to_seconds, record(before, TIMESTAMP)).value == -1
