"""Regular expressions of clients: which are refused, and that none takes long."""

from __future__ import annotations

import itertools
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


def test_a_name_that_takes_exponential_time_elsewhere_takes_none() -> None:
    pattern = Pattern("(a+)+")
    assert pattern.matching(["a" * 30_000 + "b", "a" * 30_000]) == ["a" * 30_000]


def test_matching_ends_when_it_takes_too_long() -> None:
    with pytest.raises(InvalidRegularExpression, match="takes too long"):
        Pattern("(.?){100}").matching(itertools.repeat("a" * 249))


@given(st.lists(st.text("ab-", max_size=8)))
def test_a_pattern_stands_for_the_names_that_match_it_as_a_whole(names: list[str]) -> None:
    expression = "(a|b-)*-?b{1,2}"
    assert Pattern(expression).matching(names) == [
        each for each in names if re.fullmatch(expression, each)
    ]
