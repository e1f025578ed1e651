"""The last lines of a process's log."""

from __future__ import annotations

import logging
import sys

import pytest

from waylog.observability.recent_lines import RecentLines, without_secrets


def record(message: str, *values: object, exception: bool = False) -> logging.LogRecord:
    info = sys.exc_info() if exception else None
    return logging.LogRecord("part", logging.WARNING, __file__, 1, message, values, info)


def test_the_newest_lines_are_kept_and_numbered() -> None:
    lines = RecentLines(3)
    for number in range(5):
        lines.emit(record("line %d", number))
    assert [(each.number, each.message) for each in lines.after(0)] == [
        (3, "line 2"), (4, "line 3"), (5, "line 4"),
    ]  # fmt: skip
    assert [each.number for each in lines.after(4)] == [5]
    assert lines.after(5) == []


def test_a_line_is_one_line_of_bounded_length() -> None:
    lines = RecentLines()
    lines.emit(record("%s", "a\nb" + "x" * 100_000))
    [line] = lines.after(0)
    assert "\n" not in line.message and len(line.message) < 4_000
    assert line.level == "WARNING" and line.logger == "part"


def test_an_exception_is_kept_with_its_end_cut() -> None:
    lines = RecentLines()
    try:
        raise ValueError("wl_secret " + "x" * 100_000)
    except ValueError:
        lines.emit(record("failed", exception=True))
    [line] = lines.after(0)
    assert "ValueError" in line.exception and len(line.exception) <= 4_000
    assert "wl_secret" not in line.exception


@pytest.mark.parametrize(
    "text",
    [
        "token wl_0123abcdEFG-_x of ada",
        "Authorization: Bearer hidden",
        "Authorization: Basic aGlkZGVu",
        "http://host/?token=hidden&lat=1",
        "password=hidden, user=ada",
        "api secret=hidden",
    ],
)
def test_what_looks_like_a_secret_is_not_kept(text: str) -> None:
    shown = without_secrets(text)
    assert "***" in shown
    assert not any(each in shown for each in ("wl_0", "hidden", "aGlk"))


def test_other_words_stay() -> None:
    text = "admin did change topic trips: retention.ms=60000"
    assert without_secrets(text) == text
