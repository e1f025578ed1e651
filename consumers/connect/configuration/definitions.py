"""Which properties there are: what Kafka's `ConfigDef` does.

A definition says of each property its type, default, importance, validator, recommender and place
in a form. `parse` returns typed values or raises for the first error; `validate` finds all errors.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from consumers.connect.configuration.exceptions import ConfigException, invalid_value, missing
from consumers.connect.configuration.password import HIDDEN, Password
from consumers.connect.configuration.validators import Validator
from consumers.connect.java.number_text import (
    TRIMMED,
    fits,
    float64_text,
    parse_double,
    parse_integer,
)

_COMMA: Final = re.compile(r"\s*,\s*", re.ASCII)


class ConfigType(enum.Enum):
    """The type of a property's value."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"  # 32 bits
    SHORT = "SHORT"  # 16 bits
    LONG = "LONG"  # 64 bits
    DOUBLE = "DOUBLE"
    LIST = "LIST"  # texts, separated by commas
    CLASS = "CLASS"  # the name of a class; the validator knows the classes
    PASSWORD = "PASSWORD"  # noqa: S105 - the name of the type


_BITS: Final = {ConfigType.INT: 32, ConfigType.SHORT: 16, ConfigType.LONG: 64}


class Importance(enum.Enum):
    """How likely it is that a user has to set the property."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class Width(enum.Enum):
    """How wide a form shows the property."""

    NONE = "NONE"
    SHORT = "SHORT"
    MEDIUM = "MEDIUM"
    LONG = "LONG"


class _NoDefault(enum.Enum):
    NO_DEFAULT = "NO_DEFAULT"


#: The default of a property that must be set.
NO_DEFAULT: Final = _NoDefault.NO_DEFAULT


class Recommender(Protocol):
    """Says what a form offers for a property, given the other properties."""

    def valid_values(self, name: str, parsed: Mapping[str, Any]) -> Sequence[Any]:
        """Return the values to choose from, none if any can be given."""

    def visible(self, name: str, parsed: Mapping[str, Any]) -> bool:
        """Return whether the property matters."""


class ConfigKey(msgspec.Struct, frozen=True, kw_only=True):
    """The definition of one property."""

    name: str
    type: ConfigType
    default: Any = NO_DEFAULT
    validator: Validator | None = None
    importance: Importance = Importance.MEDIUM
    documentation: str = ""
    group: str | None = None
    order: int = -1  # in the group
    width: Width = Width.NONE
    display_name: str | None = None  # None: the name
    dependents: tuple[str, ...] = ()  # properties that matter only with this one
    recommender: Recommender | None = None

    @property
    def required(self) -> bool:
        """Tell whether the property must be set."""
        return self.default is NO_DEFAULT


def grouped_key(
    name: str, type_: ConfigType, group: str, order: int, documentation: str, **more: Any
) -> ConfigKey:
    """Return the definition of a property of medium width that has its place in a group."""
    return ConfigKey(
        name=name,
        type=type_,
        group=group,
        order=order,
        documentation=documentation,
        width=Width.MEDIUM,
        **more,
    )


class ConfigValue(msgspec.Struct, kw_only=True):
    """What validation has found out about one property."""

    name: str
    value: Any = None
    recommended_values: list[Any] = []
    errors: list[str] = []
    visible: bool = True


class ConfigDef:
    """The definitions of properties, in their order. It never changes."""

    __slots__ = ("keys",)

    def __init__(self, keys: Iterable[ConfigKey] = ()) -> None:
        """Raises ConfigException for a property that is defined twice."""
        self.keys: Final[dict[str, ConfigKey]] = {}
        for key in keys:
            if key.name in self.keys:
                raise ConfigException(f"Configuration {key.name} is defined twice.")
            self.keys[key.name] = key

    @property
    def groups(self) -> list[str]:
        """The groups in the order of their first properties."""
        return list(dict.fromkeys(key.group for key in self.keys.values() if key.group is not None))

    def with_keys(self, keys: Iterable[ConfigKey]) -> ConfigDef:
        """Return a definition with more properties; raises ConfigException."""
        return ConfigDef([*self.keys.values(), *keys])

    def with_defaults(self, defaults: Mapping[str, Any]) -> ConfigDef:
        """Return a definition with other defaults for some properties."""
        return ConfigDef(
            msgspec.structs.replace(key, default=defaults[name]) if name in defaults else key
            for name, key in self.keys.items()
        )

    def embedded(self, prefix: str, group: str, first_order: int) -> list[ConfigKey]:
        """Return the properties as they are named behind a prefix, in a group of their own."""
        embedded: list[ConfigKey] = []
        ordered = sorted(self.keys.values(), key=_sort_key)
        for order, key in enumerate(ordered, first_order):
            embedded.append(
                msgspec.structs.replace(
                    key,
                    name=prefix + key.name,
                    display_name=key.display_name or key.name,
                    group=group if key.group is None else f"{group}: {key.group}",
                    order=order,
                    dependents=tuple(prefix + each for each in key.dependents),
                )
            )
        return embedded

    def parse(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of all defined properties; raises ConfigException for the first error.

        Properties that are not defined are ignored.
        """
        return {
            name: _parse_key(key, properties.get(name), name in properties)
            for name, key in self.keys.items()
        }

    def validate(self, properties: Mapping[str, Any]) -> dict[str, ConfigValue]:
        """Return what there is to say about each property; never raises."""
        found = {name: ConfigValue(name=name) for name in self.keys}
        parsed: dict[str, Any] = {}
        parents = self._without_parents()
        for name in parents:
            self._parse_for_validation(name, properties, parsed, found)
        seen: set[str] = set()
        for name in parents:
            self._recommend(name, parsed, found, seen)
        return found

    def _without_parents(self) -> list[str]:
        """Return the properties on which no other depends, and report those that do not exist."""
        children = {each for key in self.keys.values() for each in key.dependents}
        return [name for name in self.keys if name not in children]

    def _parse_for_validation(
        self,
        name: str,
        properties: Mapping[str, Any],
        parsed: dict[str, Any],
        found: dict[str, ConfigValue],
    ) -> None:
        if name in parsed:
            return
        key = self.keys.get(name)
        if key is None:
            # Kafka words it so; a mistake of the connector's author.
            error = f"{name} is referred in the dependents, but not defined."
            found[name] = ConfigValue(name=name, errors=[error], visible=False)
            return
        value = None
        errors: list[str] = []
        if name in properties:
            try:
                value = parse_type(name, properties[name], key.type)
            except ConfigException as error:
                errors.append(str(error))
        elif key.required:
            errors.append(str(missing(name)))
        else:
            value = key.default
        if key.validator is not None:
            try:
                key.validator(name, value)
            except ConfigException as error:
                errors.append(str(error))
        found[name] = ConfigValue(name=name, value=value, errors=errors)
        parsed[name] = value
        for dependent in key.dependents:
            self._parse_for_validation(dependent, properties, parsed, found)

    def _recommend(
        self,
        name: str,
        parsed: Mapping[str, Any],
        found: dict[str, ConfigValue],
        seen: set[str],
    ) -> None:
        key = self.keys.get(name)
        if key is None or name in seen:
            return
        seen.add(name)
        if key.recommender is not None:
            try:
                found[name].recommended_values = list(key.recommender.valid_values(name, parsed))
                found[name].visible = key.recommender.visible(name, parsed)
            except ConfigException as error:
                found[name].errors.append(str(error))
        for dependent in key.dependents:
            self._recommend(dependent, parsed, found, seen)


def _sort_key(key: ConfigKey) -> tuple[str, int, bool, int, str]:
    """The order of Kafka's pages: by group, required ones first, then by importance and name."""
    importance = list(Importance).index(key.importance)
    return (key.group or "", key.order, not key.required, importance, key.name)


def _parse_key(key: ConfigKey, value: Any, is_set: bool) -> Any:
    if is_set:
        value = parse_type(key.name, value, key.type)
    elif key.required:
        raise missing(key.name)
    else:
        value = key.default
    if key.validator is not None:
        key.validator(key.name, value)
    return value


def parse_type(name: str, value: Any, type_: ConfigType) -> Any:
    """Return the value of a text, or a value that has the type already; None stays None.

    Raises ConfigException, which does not show what was meant as a password.
    """
    if value is None:
        return None
    text = value.strip(TRIMMED) if isinstance(value, str) else None
    match type_:
        case ConfigType.BOOLEAN:
            if isinstance(value, bool):
                return value
            if text is not None and text.lower() in ("true", "false"):
                return text.lower() == "true"
            raise invalid_value(name, value, "Expected value to be either true or false")
        case ConfigType.STRING | ConfigType.CLASS:
            if text is None:
                raise invalid_value(name, value, _not_a("string", value))
            return text
        case ConfigType.PASSWORD:
            if isinstance(value, Password):
                return value
            if text is None:
                raise invalid_value(name, HIDDEN, _not_a("string", value))
            return Password(text)
        case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
            return _parse_integer(name, value, text, type_)
        case ConfigType.DOUBLE:
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return float(value)
            if text is None:
                raise invalid_value(name, value, _not_a("double", value))
            double = parse_double(text)
            if double is None:
                raise invalid_value(name, value, "Not a number of type DOUBLE")
            return double
        case ConfigType.LIST:
            if isinstance(value, list):
                return value
            if text is None:
                raise invalid_value(name, value, "Expected a comma separated list.")
            return _COMMA.split(text) if text else []


def _parse_integer(name: str, value: Any, text: str | None, type_: ConfigType) -> int:
    bits = _BITS[type_]
    number: int | None
    if isinstance(value, int) and not isinstance(value, bool):
        number = value if fits(value, bits) else None
    elif text is None:
        kind = {16: "16-bit integer (short)", 32: "32-bit integer", 64: "64-bit integer (long)"}
        raise invalid_value(name, value, _not_a(kind[bits], value))
    else:
        number = parse_integer(text, bits)
    if number is None:
        raise invalid_value(name, value, f"Not a number of type {type_.value}")
    return number


def _not_a(kind: str, value: Any) -> str:
    return f"Expected value to be a {kind}, but it was a {type(value).__name__}"


def value_text(value: Any) -> str | None:
    """Return a parsed value as answers show it: a password hidden, a list with commas."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return float64_text(value)
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)


def texts_of_json(body: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the properties of a JSON object as texts.

    Numbers and booleans count as their text, as the REST interface of Kafka Connect reads them;
    raises ConfigException for arrays and objects.
    """
    texts: dict[str, str | None] = {}
    for name, value in body.items():
        if isinstance(value, (list, dict)):
            raise ConfigException(f"The value of configuration {name} is not a string")
        texts[name] = value_text(value)
    return texts
