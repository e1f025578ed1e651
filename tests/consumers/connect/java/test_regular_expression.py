"""Expressions for Java match the same texts here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.connect.java.regular_expression import (
    JavaRegexError,
    check_replacement,
    compile_java,
    replace_first,
)


@pytest.mark.parametrize(
    ("expression", "text", "matches"),
    [
        ("my-prefix-.*", "my-prefix-a", True),
        ("(?<year>\\d{4})-\\k<year>", "2024-2024", True),
        ("\\Qa.b\\E.", "a.bc", True),
        ("\\Qa.b\\E.", "axbc", False),
        ("\\p{Alpha}+", "abc", True),
        ("[\\p{Digit}x]+", "1x2", True),
        ("\\P{Upper}+", "abc", True),
        ("[]a]+", "]a", True),
        ("a\\h[\\h]b\\z", "a \tb", True),
        ("ab\\Z", "ab", True),
        ("[]x]y]", "xy]", True),
        ("[a||~~]+", "|~", True),
        ("a++b", "aaab", True),
        ("\\w+", "ä", False),
        ("(?i)TOPIC", "topic", True),
    ],
)
def test_whole_texts_match(expression: str, text: str, matches: bool) -> None:
    assert bool(compile_java(expression).fullmatch(text)) is matches


@pytest.mark.parametrize(
    "expression", ["[", "(", "*a", "\\p{Greek}", "[a&&b]", "[a[b]]", "a\\", "[\\P{Alpha}]"]
)
def test_what_cannot_be_compiled_is_refused(expression: str) -> None:
    with pytest.raises(JavaRegexError):
        compile_java(expression)


@given(st.text(alphabet="ab[]()\\{}?*+<>pPQEdk&^-|.", max_size=20))
def test_no_text_raises_another_error(expression: str) -> None:
    try:
        compile_java(expression)
    except JavaRegexError:
        return


@pytest.mark.parametrize(
    ("expression", "replacement", "text", "replaced"),
    [
        ("(.*)-(.*)", "$2.$1", "a-b", "b.a"),
        ("(?<head>\\w)x", "${head}y", "axax", "ayax"),
        ("(a)", "$10", "a", "a0"),
        ("()" * 9 + "(b)", "[$10]", "b", "[b]"),
        ("a", "\\$1", "a", "$1"),
        ("(a)|(b)", "[$2]", "a", "[]"),
        ("z", "y", "abc", "abc"),
    ],
)
def test_groups_are_put_into_the_replacement(
    expression: str, replacement: str, text: str, replaced: str
) -> None:
    assert replace_first(compile_java(expression), replacement, text) == replaced


@pytest.mark.parametrize("replacement", ["$2", "${name}", "${a", "$", "\\", "$x"])
def test_a_replacement_with_groups_that_there_are_not_is_refused(replacement: str) -> None:
    with pytest.raises(JavaRegexError):
        check_replacement(compile_java("(a)"), replacement)
