"""What is wrong with a configuration, in Kafka's words."""

from __future__ import annotations

import re
from typing import Any, ClassVar


class ConfigException(Exception):
    """A property is missing or has a value that is not valid."""

    kafka_name: ClassVar[str] = "org.apache.kafka.common.config.ConfigException"


def invalid_value(name: str, value: Any, reason: str | None = None) -> ConfigException:
    """Return the error for a value; a Password is not shown."""
    text = f"Invalid value {shown(value)} for configuration {name}"
    return ConfigException(text if reason is None else f"{text}: {reason}")


def hidden_value(name: str, reason: str) -> ConfigException:
    """Return the error for a value of which nothing may be shown."""
    return ConfigException(f"Invalid value for configuration {name}: {reason}")


def missing(name: str) -> ConfigException:
    """Return the error for a property that is not set and has no default."""
    return ConfigException(f'Missing required configuration "{name}" which has no default value.')


def unknown_class(name: str, value: Any) -> ConfigException:
    """Return the error for a property that names a class which the worker does not have."""
    return invalid_value(name, value, f"Class {value} could not be found.")


def with_full_name(message: str, name: str, prefix: str) -> str:
    """Return a message about a property, with what is before its name in a configuration."""
    found = re.match(
        rf'((?:Invalid value .*? for |Missing required )?configuration "?){re.escape(name)}'
        r"(?![\w.])",
        message,
        re.DOTALL,
    )
    return message if found is None else found[1] + prefix + name + message[found.end() :]


def shown(value: Any) -> str:
    """Return a value as Java prints it: null, true, [a, b]."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(shown(each) for each in value) + "]"
    return str(value)
