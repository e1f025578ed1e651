"""What statuses mean, and how long a server wants to be left alone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from consumers.connect.http.answers.status import Meaning, meaning_of, retry_after_s, status_text

NOW = datetime(2025, 11, 1, 11, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("meaning", "statuses"),
    [
        (Meaning.DELIVERED, (200, 201, 202, 204)),
        (Meaning.LATER, (408, 425, 429, 500, 502, 503, 504, 520, 599)),
        (Meaning.REFUSED, (400, 403, 404, 409, 410, 413, 415, 422, 451)),
        (Meaning.SET_UP, (301, 302, 307, 308, 401, 405, 407, 501, 505)),
    ],
)
def test_what_statuses_mean(meaning: Meaning, statuses: tuple[int, ...]) -> None:
    assert {status: meaning_of(status) for status in statuses} == dict.fromkeys(statuses, meaning)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("0", 0.0),
        (" 120 ", 120.0),
        ("86400", 600.0),
        ("9" * 400, 600.0),
        ("Sat, 01 Nov 2025 11:00:30 GMT", 30.0),
        ("Sat, 01 Nov 2025 10:00:30 GMT", 0.0),
        ("Sun, 02 Nov 2025 11:00:30 GMT", 600.0),
        ("soon", None),
        ("-5", None),
        ("", None),
        ("٣", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str | None, seconds: float | None) -> None:
    assert retry_after_s(text, NOW) == seconds


def test_a_status_without_a_name_is_a_number() -> None:
    assert status_text(404) == "404 Not Found"
    assert status_text(520) == "520"
