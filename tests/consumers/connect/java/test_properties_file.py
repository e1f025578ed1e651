"""Properties files are read as Java reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.connect.java.properties_file import PropertiesError, parse_properties


def test_names_and_values_are_read() -> None:
    text = """
# a comment
! another
user=ada
password : p=w:d
  indented   value with spaces
empty
long = one, \\
       two
escaped\\ name = \\u0041\\t\\\\
last=1
last=2
open=end\\"""
    assert parse_properties(text) == {
        "user": "ada",
        "password": "p=w:d",
        "indented": "value with spaces",
        "empty": "",
        "long": "one, two",
        "escaped name": "A\t\\",
        "last": "2",
        "open": "end",
    }


def test_a_line_that_is_only_continued_is_none() -> None:
    assert parse_properties("\\\n! a comment\n\\\n\na=b") == {"a": "b"}


def test_a_character_beyond_16_bits_has_two_escapes() -> None:
    assert parse_properties("a=\\ud83d\\ude00") == {"a": "\U0001f600"}


def test_a_broken_escape_does_not_show_the_line() -> None:
    with pytest.raises(PropertiesError) as caught:
        parse_properties("password=secret\\u12")
    assert "secret" not in str(caught.value)


@given(st.text())
def test_no_text_raises_another_error(text: str) -> None:
    try:
        parse_properties(text)
    except PropertiesError:
        return
