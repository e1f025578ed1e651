from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waylog.replay.readers.times import format_time, parse_time

NOON = 1748779200000  # 2025-06-01T12:00:00Z


@pytest.mark.parametrize(
    "text",
    [
        *(1748779200, 1748779200.0, 1748779200000, 1748779200000000, "1748779200", "1748779200000"),
        *("2025-06-01T12:00:00Z", "2025-06-01T14:00:00+02:00", "2025-06-01T05:00:00-0700"),
        *("2025-06-01 12:00:00", "2025-06-01 12:00:00.000000000", "01/06/2025 12:00"),
        *("1.6.2025 12:00:00", "20250601T120000Z"),
    ],
)
def test_the_usual_spellings_of_a_time_are_read(text: object) -> None:
    assert parse_time(text) == NOON


def test_milliseconds_are_exact() -> None:
    assert parse_time("2025-05-30T22:00:24.674Z") == 1748642424674


@pytest.mark.parametrize(
    "value",
    [None, True, "", "soon", "32/01/2025 10:00", float("nan"), float("inf"), 1e30, [], "9" * 400],
)
def test_what_is_not_a_time_raises_value_error(value: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_time(value)


@given(st.integers(min_value=-62_135_596_800_000, max_value=253_402_300_799_999))
def test_a_formatted_time_is_read_back(time_ms: int) -> None:
    assert parse_time(format_time(time_ms)) == time_ms


@given(st.text(max_size=40))
def test_no_text_raises_anything_but_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(parse_time(text), int)
