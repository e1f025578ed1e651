"""Regular expressions of clients: which are refused, and that none takes long."""

from __future__ import annotations

import itertools
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.coordinator.patterns import Pattern
from broker_core.errors import InvalidRegularExpression


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("(", "is not a valid regular expression"),
        ("(a)\\1", "is not a valid regular expression"),
        ("a" * 2_049, "at most 2048 characters"),
        ("(.*a)?" * 340, "too complex"),
        ("((.?){30}){30}", "too complex"),
        ("(((a{10}){10}){10}){10}", "not a valid"),
    ],
)
def test_what_is_no_expression_or_costs_too_much_is_refused(expression: str, reason: str) -> None:
    with pytest.raises(InvalidRegularExpression, match=reason):
        Pattern(expression)


def test_what_is_just_short_and_simple_enough_is_matched() -> None:
    assert Pattern("[" + "a" * 2_046 + "]").matching(["a", "b"]) == ["a"]
    assert Pattern("a" * 950).matching(["a" * 950, "a" * 949]) == ["a" * 950]
    with pytest.raises(InvalidRegularExpression, match="too complex"):
        Pattern("a" * 1_050)


def test_a_name_that_takes_exponential_time_elsewhere_takes_none() -> None:
    pattern = Pattern("(a+)+")
    assert pattern.matching(["a" * 900 + "b", "a" * 900]) == ["a" * 900]


def test_a_name_of_any_length_takes_no_time() -> None:
    assert Pattern("a*").matching(["a" * 10_000_000, "a"]) == ["a"]


def test_names_and_expressions_may_have_any_characters() -> None:
    names = ["größe", "grosse", "\U0001f600", "a\nb"]
    assert Pattern("gr(ö|o).*").matching(names) == names[:2]
    assert Pattern("\U0001f600").matching(names) == ["\U0001f600"]


def test_ten_thousand_ordinary_names_are_matched() -> None:
    names = [f"team-{number % 7}.topic-{number}" for number in range(10_000)]
    assert len(Pattern("team-(1|3)\\.topic-[0-9]+").matching(names)) == 2_858


def test_matching_ends_when_it_takes_too_long() -> None:
    with pytest.raises(InvalidRegularExpression, match="takes too long"):
        Pattern("[ab]*a[ab]{450}[^ab]*").matching(
            "".join(random.choices("ab", k=900)) for _ in itertools.count()
        )


@given(st.lists(st.text("ab-", max_size=8)))
def test_a_pattern_stands_for_the_names_that_match_it_as_a_whole(names: list[str]) -> None:
    expression = "(a|b-)*-?b{1,2}"
    assert Pattern(expression).matching(names) == [
        each for each in names if re.fullmatch(expression, each)
    ]
