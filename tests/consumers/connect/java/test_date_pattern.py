"""Times are written and read by Java's patterns."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.connect.java.date_pattern import DatePattern, DatePatternError

TIME = datetime(2024, 2, 29, 15, 4, 5, 67_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyyMMdd", "20240229"),
        ("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", "2024-02-29T15:04:05.067Z"),
        ("EEE, d MMM yyyy HH:mm:ss z", "Thu, 29 Feb 2024 15:04:05 UTC"),
        ("EEEE MMMM yy", "Thursday February 24"),
        ("h:mm a K k", "3:04 PM 3 15"),
        ("D w W F u", "60 9 5 5 4"),
        ("Z X XXX G", "+0000 Z Z AD"),
        ("''yyyy 'o''clock'", "'2024 o'clock"),
        ("YYYY", "2024"),
    ],
)
def test_a_time_is_written(pattern: str, text: str) -> None:
    assert DatePattern(pattern).format(TIME) == text


def test_the_last_days_of_a_year_may_be_of_the_next_years_first_week() -> None:
    assert DatePattern("YYYY-ww").format(datetime(2024, 12, 31, tzinfo=UTC)) == "2025-01"
    assert DatePattern("YYYY-ww").format(datetime(2024, 12, 28, tzinfo=UTC)) == "2024-52"


def test_a_time_of_another_zone_is_written_in_utc() -> None:
    there = TIME.astimezone(timezone(timedelta(hours=5)))
    assert DatePattern("HH").format(there) == "15"


@pytest.mark.parametrize(
    ("pattern", "text", "time"),
    [
        ("yyyyMMdd", "20240229", datetime(2024, 2, 29, tzinfo=UTC)),
        ("yyyy-MM-dd HH:mm:ss.SSS", "2024-02-29 15:04:05.067", TIME),
        ("yyyy-MM-dd'T'HH:mm:ssX", "2024-02-29T17:04:05+02", TIME.replace(microsecond=0)),
        ("dd MMM yyyy", "29 feb 2024 and more", datetime(2024, 2, 29, tzinfo=UTC)),
        ("yyyy-MM-dd", "2024-13-32", datetime(2025, 2, 1, tzinfo=UTC)),
        ("yy", "49", datetime(2049, 1, 1, tzinfo=UTC)),
        ("yy", "50", datetime(1950, 1, 1, tzinfo=UTC)),
        ("hh a", "12 AM", datetime(1970, 1, 1, tzinfo=UTC)),
        ("hh a", "12 PM", datetime(1970, 1, 1, 12, tzinfo=UTC)),
        ("yyyy D", "2024 60", datetime(2024, 2, 29, tzinfo=UTC)),
        ("G yyyy k", "AD 2024 24", datetime(2024, 1, 1, tzinfo=UTC)),
        ("yyyy kk", "2024   5", datetime(2024, 1, 1, 5, tzinfo=UTC)),
        ("HH z", "12 GMT-3:30", datetime(1970, 1, 1, 15, 30, tzinfo=UTC)),
        # Java counts all digits as milliseconds.
        ("ss.SSS", "1.1000", datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)),
    ],
)
def test_a_time_is_read_leniently(pattern: str, text: str, time: datetime) -> None:
    assert DatePattern(pattern).parse(text) == time


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy", "x"),
        ("yyyy-MM", "2024"),
        ("MMM", "xyz"),
        ("yyyy", "999999"),
        ("ww", "1"),
        ("z", "?"),
    ],
)
def test_a_text_of_another_form_is_refused(pattern: str, text: str) -> None:
    with pytest.raises(DatePatternError):
        DatePattern(pattern).parse(text)


@pytest.mark.parametrize("pattern", ["yyyy-bb", "'open", "XXXX"])
def test_a_pattern_that_is_not_valid_is_refused(pattern: str) -> None:
    with pytest.raises(DatePatternError):
        DatePattern(pattern)


@given(
    st.datetimes(min_value=datetime(1000, 1, 1), timezones=st.just(UTC)),
    st.sampled_from(
        ["yyyy-MM-dd HH:mm:ss.SSS", "yyyyMMddHHmmssSSS", "EEE d MMMM yyyy hh:mm:ss.SSS a Z"]
    ),
)
def test_what_is_written_is_read_again(time: datetime, pattern: str) -> None:
    time = time.replace(microsecond=time.microsecond // 1000 * 1000)
    there_and_back = DatePattern(pattern)
    assert there_and_back.parse(there_and_back.format(time)) == time


@given(st.text(alphabet="yMdHhmsSaEzZX'-: 0123456789GDk", max_size=15), st.text(max_size=20))
def test_no_pattern_and_no_text_raise_another_error(pattern: str, text: str) -> None:
    try:
        DatePattern(pattern).parse(text)
    except DatePatternError:
        return
