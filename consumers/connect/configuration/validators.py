"""What values a property may have.

A validator is called with the name of the property and its parsed value, which is None where the
value could not be parsed; it raises ConfigException. Messages are those of Kafka's `ConfigDef`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any

from consumers.connect.configuration.exceptions import invalid_value
from consumers.connect.java.regular_expression import JavaRegexError, compile_java
from waylog.topic_names import TOPIC_NAME_RULE, is_topic_name

Validator = Callable[[str, Any], None]


def at_least(minimum: float) -> Validator:
    """Numbers from the minimum."""
    return between(minimum, None)


def between(minimum: float | None, maximum: float | None) -> Validator:
    """Numbers from the minimum to the maximum, both included; None is no limit."""

    def validate(name: str, value: Any) -> None:
        if value is None:
            raise invalid_value(name, None, "Value must be non-null")
        if minimum is not None and value < minimum:
            raise invalid_value(name, value, f"Value must be at least {minimum}")
        if maximum is not None and value > maximum:
            raise invalid_value(name, value, f"Value must be no more than {maximum}")

    return validate


def one_of(*texts: str) -> Validator:
    """One of these texts."""

    def validate(name: str, value: Any) -> None:
        if value not in texts:
            raise invalid_value(name, value, "String must be one of: " + ", ".join(texts))

    return validate


def one_of_ignoring_case(*texts: str) -> Validator:
    """One of these texts, in capitals or not."""
    accepted = {text.upper() for text in texts}
    reason = "String must be one of (case insensitive): " + ", ".join(sorted(accepted))

    def validate(name: str, value: Any) -> None:
        if value is None or value.upper() not in accepted:
            raise invalid_value(name, value, reason)

    return validate


def non_null(name: str, value: Any) -> None:
    """Any value, but it must be one."""
    if value is None:
        raise invalid_value(name, None, "entry must be non null")


def non_empty(name: str, value: Any) -> None:
    """A text of at least one character, or none at all."""
    if value == "":
        raise invalid_value(name, value, "String must be non-empty")


def non_empty_without_control_characters(name: str, value: Any) -> None:
    """A text that can be shown on one line."""
    if value is None:
        return  # a missing value has been reported already
    if not value:
        raise invalid_value(name, value, "String may not be empty")
    found = [str(ord(each)) for each in value if unicodedata.category(each) == "Cc"]
    if found:
        # The characters themselves would spoil the log.
        visible = "".join(" " if unicodedata.category(each) == "Cc" else each for each in value)
        raise invalid_value(
            name,
            visible,
            "String may not contain control sequences but had the following ASCII chars: "
            + ", ".join(found),
        )


def non_empty_list(name: str, value: Any) -> None:
    """A list of at least one element."""
    if not value:
        raise invalid_value(name, value, "Empty list")


def topic_name(name: str, value: Any) -> None:
    """The name of a topic, or none at all."""
    if value and not is_topic_name(value):
        raise invalid_value(name, value, f"A topic has a name of {TOPIC_NAME_RULE}")


def topic_names(name: str, value: Any) -> None:
    """A list of names of topics, which may be empty."""
    for each in value or ():
        topic_name(name, each)


def unique_aliases(name: str, value: Any) -> None:
    """A list in which no name comes twice."""
    non_null(name, value)
    if len(set(value)) < len(value):
        raise invalid_value(name, value, "Duplicate alias provided.")


def valid_regex(name: str, value: Any) -> None:
    """A regular expression as Java writes them."""
    if value is None:
        raise invalid_value(name, None, "Invalid regex: null")
    try:
        compile_java(value)
    except JavaRegexError as error:
        raise invalid_value(name, value, f"Invalid regex: {error}") from error


def valid_regexes(name: str, value: Any) -> None:
    """A list of regular expressions as Java writes them."""
    for each in value or ():
        try:
            compile_java(each)
        except JavaRegexError as error:
            reason = f"Syntax error in regular expression: {error}"
            raise invalid_value(name, value, reason) from error


def optional(validator: Validator) -> Validator:
    """What the validator accepts, or nothing."""

    def validate(name: str, value: Any) -> None:
        if value is not None:
            validator(name, value)

    return validate


def all_of(*validators: Validator) -> Validator:
    """What all of these accept; the first that does not says why."""

    def validate(name: str, value: Any) -> None:
        for validator in validators:
            validator(name, value)

    return validate
