"""Validators say what is wrong as Kafka's do."""

from __future__ import annotations

from typing import Any

import pytest

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.configuration.validators import (
    Validator,
    all_of,
    at_least,
    between,
    non_empty,
    non_empty_list,
    non_empty_without_control_characters,
    non_null,
    one_of,
    one_of_ignoring_case,
    optional,
    unique_aliases,
    valid_regex,
    valid_regexes,
)


@pytest.mark.parametrize(
    ("validator", "value"),
    [
        (between(1, 3), 3),
        (at_least(0), 0),
        (one_of("a", "b"), "b"),
        (one_of_ignoring_case("A"), "a"),
        (non_null, ""),
        (non_empty, None),
        (non_empty, "x"),
        (non_empty_without_control_characters, None),
        (non_empty_without_control_characters, "a b"),
        (non_empty_list, ["x"]),
        (unique_aliases, ["a", "b"]),
        (valid_regex, "a.*"),
        (valid_regexes, ["a", "b"]),
        (valid_regexes, None),
        (optional(at_least(1)), None),
        (all_of(non_null, non_empty), "x"),
    ],
)
def test_what_is_valid_is_accepted(validator: Validator, value: Any) -> None:
    validator("x", value)


@pytest.mark.parametrize(
    ("validator", "value", "message"),
    [
        (between(1, 3), 4, "value 4 for configuration x: Value must be no more than 3"),
        (at_least(1), None, "value null for configuration x: Value must be non-null"),
        (one_of("a", "b"), None, "value null for configuration x: String must be one of: a, b"),
        (one_of_ignoring_case("a"), "b", "x: String must be one of (case insensitive): A"),
        (non_null, None, "Invalid value null for configuration x: entry must be non null"),
        (non_empty, "", "String must be non-empty"),
        (non_empty_without_control_characters, "", "String may not be empty"),
        (
            non_empty_without_control_characters,
            "a\nb\x00",
            "Invalid value a b  for configuration x: String may not contain control sequences but "
            "had the following ASCII chars: 10, 0",
        ),
        (non_empty_list, [], "Invalid value [] for configuration x: Empty list"),
        (unique_aliases, ["a", "a"], "value [a, a] for configuration x: Duplicate alias"),
        (unique_aliases, None, "entry must be non null"),
        (valid_regex, "(", "Invalid value ( for configuration x: Invalid regex: "),
        (valid_regex, None, "Invalid regex: null"),
        (valid_regexes, ["a", "("], "value [a, (] for configuration x: Syntax error in regular"),
        (optional(at_least(1)), 0, "Value must be at least 1"),
        (all_of(non_null, non_empty), "", "String must be non-empty"),
    ],
)
def test_what_is_not_valid_is_told(validator: Validator, value: Any, message: str) -> None:
    with pytest.raises(ConfigException) as caught:
        validator("x", value)
    assert message in str(caught.value)
