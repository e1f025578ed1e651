"""Properties are parsed and validated in Kafka's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.connect.configuration.definitions import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    parse_type,
    texts_of_json,
    value_text,
)
from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.configuration.password import Password
from consumers.connect.configuration.validators import at_least


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (ConfigType.BOOLEAN, " TRUE ", True),
        (ConfigType.BOOLEAN, False, False),
        (ConfigType.STRING, " a b ", "a b"),
        (ConfigType.INT, "+5", 5),
        (ConfigType.INT, 5, 5),
        (ConfigType.SHORT, "-32768", -32768),
        (ConfigType.LONG, str(2**63 - 1), 2**63 - 1),
        (ConfigType.DOUBLE, "1.5e3d", 1500.0),
        (ConfigType.DOUBLE, 1, 1.0),
        (ConfigType.LIST, " a , b,c ", ["a", "b", "c"]),
        (ConfigType.LIST, "", []),
        (ConfigType.LIST, ["a"], ["a"]),
        (ConfigType.PASSWORD, "x", Password("x")),
        (ConfigType.INT, None, None),
    ],
)
def test_texts_are_parsed(type_: ConfigType, text: Any, value: Any) -> None:
    assert parse_type("name", text, type_) == value


@pytest.mark.parametrize(
    ("type_", "text", "message"),
    [
        (
            ConfigType.BOOLEAN,
            "yes",
            "Invalid value yes for configuration x: Expected value to be either true or false",
        ),
        (ConfigType.INT, "abc", "Invalid value abc for configuration x: Not a number of type INT"),
        (ConfigType.INT, "1_0", "Invalid value 1_0 for configuration x: Not a number of type INT"),
        (
            ConfigType.INT,
            str(2**31),
            "Invalid value 2147483648 for configuration x: Not a number of type INT",
        ),
        (ConfigType.DOUBLE, "1,5", "Invalid value 1,5 for configuration x: Not a number of type "),
        (ConfigType.LIST, 1, "Invalid value 1 for configuration x: Expected a comma separated "),
        (ConfigType.STRING, 1, "Invalid value 1 for configuration x: Expected value to be a str"),
    ],
)
def test_what_is_no_such_value_is_refused(type_: ConfigType, text: Any, message: str) -> None:
    with pytest.raises(ConfigException) as caught:
        parse_type("x", text, type_)
    assert str(caught.value).startswith(message)


def test_a_password_is_not_shown() -> None:
    password = Password("secret")
    assert "secret" not in f"{password} {password!r}"
    assert password.value == "secret"
    assert value_text(password) == "[hidden]"
    with pytest.raises(ConfigException) as caught:
        parse_type("x", ["secret"], ConfigType.PASSWORD)
    assert "secret" not in str(caught.value)


DEFINITION = ConfigDef(
    [
        ConfigKey(name="file", type=ConfigType.STRING),
        ConfigKey(name="tasks.max", type=ConfigType.INT, default=1, validator=at_least(1)),
        ConfigKey(name="password", type=ConfigType.PASSWORD, default=None),
    ]
)


def test_defaults_are_used_and_unknown_properties_ignored() -> None:
    assert DEFINITION.parse({"file": "x", "other": "y"}) == {
        "file": "x",
        "tasks.max": 1,
        "password": None,
    }


def test_the_first_error_is_raised() -> None:
    with pytest.raises(ConfigException) as caught:
        DEFINITION.parse({})
    assert str(caught.value) == 'Missing required configuration "file" which has no default value.'


def test_validation_finds_all_errors() -> None:
    found = DEFINITION.validate({"tasks.max": "0"})
    assert found["file"].errors == [
        'Missing required configuration "file" which has no default value.'
    ]
    assert found["tasks.max"].errors == [
        "Invalid value 0 for configuration tasks.max: Value must be at least 1"
    ]
    assert found["password"].errors == []
    found = DEFINITION.validate({"file": "x", "tasks.max": "many"})
    # Kafka validates the missing number, too.
    assert found["tasks.max"].errors == [
        "Invalid value many for configuration tasks.max: Not a number of type INT",
        "Invalid value null for configuration tasks.max: Value must be non-null",
    ]


class _OneMode:
    def valid_values(self, name: str, parsed: Mapping[str, Any]) -> list[str]:
        return [f"{name}-{parsed['mode']}"]

    def visible(self, name: str, parsed: Mapping[str, Any]) -> bool:
        return name != "detail" or parsed["mode"] == "on"


def test_a_recommender_sees_the_other_values() -> None:
    definition = ConfigDef(
        [
            ConfigKey(
                name="mode", type=ConfigType.STRING, default="off", dependents=("detail", "gone")
            ),
            ConfigKey(name="detail", type=ConfigType.STRING, default=None, recommender=_OneMode()),
        ]
    )
    found = definition.validate({})
    assert not found["detail"].visible
    assert definition.validate({"mode": "on"})["detail"].visible
    assert found["detail"].recommended_values == ["detail-off"]
    assert found["gone"].errors == ["gone is referred in the dependents, but not defined."]


def test_properties_that_depend_on_each_other_end() -> None:
    definition = ConfigDef(
        [
            ConfigKey(name="root", type=ConfigType.INT, default=1, dependents=("a",)),
            ConfigKey(name="a", type=ConfigType.INT, default=1, dependents=("b",)),
            ConfigKey(name="b", type=ConfigType.INT, default=1, dependents=("a",)),
        ]
    )
    assert all(not each.errors for each in definition.validate({}).values())


def test_a_property_cannot_be_defined_twice() -> None:
    with pytest.raises(ConfigException, match="Configuration file is defined twice"):
        DEFINITION.with_keys([ConfigKey(name="file", type=ConfigType.INT)])


def test_json_values_become_texts() -> None:
    texts = texts_of_json({"a": 1, "b": True, "c": "x", "d": None, "e": 1.5})
    assert texts == {"a": "1", "b": "true", "c": "x", "d": None, "e": "1.5"}
    with pytest.raises(ConfigException):
        texts_of_json({"a": {}})


@given(st.dictionaries(st.sampled_from(["file", "tasks.max", "password"]), st.text()))
def test_parse_raises_only_what_validation_finds(properties: dict[str, str]) -> None:
    errors = [each for found in DEFINITION.validate(properties).values() for each in found.errors]
    try:
        DEFINITION.parse(properties)
    except ConfigException as error:
        assert str(error) in errors
    else:
        assert not errors
