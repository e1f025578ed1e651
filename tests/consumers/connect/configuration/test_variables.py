"""Variables of configurations are replaced, and what they stand for is shown nowhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.configuration.variables import (
    DirectoryProvider,
    EnvironmentProvider,
    FileProvider,
    Variables,
)

FILES = {"/etc/secrets.properties": "user=ada\npassword=s3cret,x", "/run/secrets/token": "t0ken\n"}


def read(path: str) -> str:
    try:
        return FILES[path]
    except KeyError as error:
        raise FileNotFoundError(path) from error


VARIABLES = Variables(
    {
        "file": FileProvider(read, lambda path: path != "/etc/shadow"),
        "dir": DirectoryProvider(read, lambda path: not path.startswith("/etc")),
        "env": EnvironmentProvider({"HOST": "db1", "OTHER": "x"}, "H.*"),
    }
)


@pytest.mark.parametrize(
    ("text", "resolved"),
    [
        ("${file:/etc/secrets.properties:password}", "s3cret,x"),
        ("${dir:/run/secrets:token}", "t0ken\n"),
        ("jdbc://${env:HOST}/${env::HOST}", "jdbc://db1/db1"),
        ("${env:OTHER}", "${env:OTHER}"),
        ("${file:/etc/shadow:root}", "${file:/etc/shadow:root}"),
        ("${file:/etc/secrets.properties:none}", "${file:/etc/secrets.properties:none}"),
        ("${dir:/run/secrets:../token}", "${dir:/run/secrets:../token}"),
        ("${dir:/run/secrets:none}", "${dir:/run/secrets:none}"),
        ("${vault:a:b}", "${vault:a:b}"),
        ("${topic}-${timestamp}", "${topic}-${timestamp}"),
        ("plain", "plain"),
    ],
)
def test_variables_are_replaced(text: str, resolved: str) -> None:
    assert VARIABLES.resolve({"a": text}).properties == {"a": resolved}


def test_null_stays_null() -> None:
    assert VARIABLES.resolve({"a": None}).properties == {"a": None}


def test_a_file_that_cannot_be_read_is_told_without_its_text() -> None:
    with pytest.raises(ConfigException, match="Could not read properties from file /none"):
        VARIABLES.resolve({"a": "${file:/none:x}"})
    with pytest.raises(ConfigException, match="Path is not supported"):
        VARIABLES.resolve({"a": "${env:path:x}"})

    def read_broken(path: str) -> str:
        return b"\xffsecret".decode()

    broken = Variables({"file": FileProvider(read_broken, lambda path: True)})
    with pytest.raises(ConfigException) as caught:
        broken.resolve({"a": "${file:/x:y}"})
    assert caught.value.__cause__ is None
    assert "secret" not in str(caught.value)


def test_a_file_is_read_once_for_each_of_its_variables() -> None:
    reads: list[str] = []

    def read_counted(path: str) -> str:
        reads.append(path)
        return read(path)

    variables = Variables({"file": FileProvider(read_counted, lambda path: True)})
    variable = "${file:/etc/secrets.properties:user}"
    variables.resolve({"a": variable, "b": variable})
    assert len(reads) == 1


def test_messages_do_not_show_what_a_variable_stands_for() -> None:
    raw = "${file:/etc/secrets.properties:password}"
    resolved = VARIABLES.resolve({"a": raw, "b": "x"})
    own = resolved.without_secrets("Invalid value s3cret for configuration a: wrong", "a", raw)
    assert (
        own == f"Invalid value {raw} for configuration a: what its variable stands for is not valid"
    )
    assert resolved.without_secrets("b is not s3cret", "b", "x") == "b is not [hidden]"
    assert resolved.without_secrets("wrong", "a", raw) == "wrong"


@given(st.text(alphabet="${}:envfildHOST/", max_size=40))
def test_no_text_raises_another_error(text: str) -> None:
    try:
        VARIABLES.resolve({"a": text})
    except ConfigException:
        return


def test_a_provider_that_cannot_read_is_told() -> None:
    def refuse(path: str) -> str:
        raise PermissionError(path)

    variables = Variables({"dir": DirectoryProvider(refuse, lambda path: True)})
    with pytest.raises(ConfigException, match="Could not read file /a/b for property b"):
        variables.resolve({"x": "${dir:/a:b}"})
    refused = Variables({"dir": DirectoryProvider(read, lambda path: False)})
    assert refused.resolve({"x": "${dir:/a:b}"}).secrets == {}
    with pytest.raises(ConfigException, match=r"Invalid allowlist\.pattern"):
        EnvironmentProvider({}, "(")
