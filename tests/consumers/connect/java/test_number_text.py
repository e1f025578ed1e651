"""Numbers are written and cut as Java does."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.connect.java.number_text import (
    float32_text,
    float64_text,
    integer_of_decimal,
    to_float32,
    truncate,
    wrap,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (100.0, "100.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (1.5e300, "1.5E300"),
        (-123456789.125, "-1.23456789125E8"),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
    ],
)
def test_doubles_are_written_as_java_writes_them(value: float, text: str) -> None:
    assert float64_text(value) == text


def test_floats_of_32_bits_have_no_more_digits_than_they_need() -> None:
    assert float32_text(to_float32(0.1)) == "0.1"
    assert float32_text(to_float32(16777216.0)) == "1.6777216E7"
    assert float32_text(1e300) == "Infinity"


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_what_is_written_is_read_as_the_same_number(value: float) -> None:
    assert float(float64_text(value)) == value
    assert to_float32(float(float32_text(value))) == to_float32(value)


@pytest.mark.parametrize(
    ("value", "bits", "whole"),
    [
        (1.9, 32, 1),
        (-1.9, 32, -1),
        (math.nan, 8, 0),
        (3e9, 32, 2**31 - 1),
        (-math.inf, 64, -(2**63)),
    ],
)
def test_floats_are_cut_as_java_casts_them(value: float, bits: int, whole: int) -> None:
    assert truncate(value, bits) == whole


def test_a_float_becomes_a_byte_by_way_of_an_int() -> None:
    assert truncate(300.7, 8) == 44
    assert truncate(1e20, 8) == -1


@given(st.integers(), st.sampled_from([8, 16, 32, 64]))
def test_wrapped_numbers_fit_and_keep_their_lowest_bits(value: int, bits: int) -> None:
    wrapped = wrap(value, bits)
    assert -(1 << (bits - 1)) <= wrapped < 1 << (bits - 1)
    assert (wrapped - value) % (1 << bits) == 0


def test_a_decimal_of_a_billion_digits_costs_nothing() -> None:
    assert integer_of_decimal(Decimal("1e999999")) == 0
    assert integer_of_decimal(Decimal("-12.7")) == -12
    assert integer_of_decimal(Decimal("0.5")) == 0
