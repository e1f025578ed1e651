"""Each contradiction is found by validation, with its property and the reason."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.plugins.registry import ConnectorRegistry
from consumers.connect.postgresql.postgresql_sink import PostgreSqlSinkConnector
from consumers.connect.postgresql.properties import CONFIG, Settings

URL = "postgresql://anna@db/geo"


def errors(**properties: str) -> dict[str, list[str]]:
    given = {"connection.url": URL} | {
        name.replace("_", "."): value for name, value in properties.items()
    }
    found = PostgreSqlSinkConnector().validate(given)
    return {name: value.errors for name, value in found.items() if value.errors}


def test_the_url_is_all_that_is_required() -> None:
    assert errors() == {}
    assert list(PostgreSqlSinkConnector().validate({})["connection.url"].errors) == [
        'Missing required configuration "connection.url" which has no default value.'
    ]


@pytest.mark.parametrize(
    ("properties", "name", "reason"),
    [
        ({"insert_mode": "update"}, "insert.mode", "must be one of: insert, upsert"),
        ({"insert_mode": "upsert"}, "insert.mode", "needs a key: pk.mode is none"),
        ({"pk_mode": "record_value"}, "pk.fields", "needs the columns of the key"),
        ({"pk_mode": "record_key"}, "pk.fields", "needs the columns of the key"),
        ({"pk_mode": "kafka", "pk_fields": "a"}, "pk.fields", "three columns"),
        ({"pk_mode": "record_value", "pk_fields": "a,a"}, "pk.fields", "named twice"),
        ({"delete_enabled": "true"}, "delete.enabled", "needs pk.mode=record_key"),
        (
            {"delete_enabled": "true", "pk_mode": "record_key", "pk_fields": "a"},
            "delete.enabled",
            "needs insert.mode=upsert",
        ),
        ({"table_name_format": ""}, "table.name.format", "expected TABLE or SCHEMA.TABLE"),
        ({"table_name_format": "x" * 64}, "table.name.format", "63 bytes at most"),
        ({"table_name_format": "${bad}"}, "table.name.format", "only ${topic} is replaced"),
        ({"connection_url": "postgresql://h/d?foo=bar"}, "connection.url", "does not know a param"),
        ({"connection_url": "postgresql://h/d?sslmode=x"}, "connection.url", "one of disable"),
        ({"table_name_format": "a.b.c"}, "table.name.format", "more than SCHEMA.TABLE"),
        ({"batch_size": "0"}, "batch.size", "at least 1"),
        ({"max_retries": "-2"}, "max.retries", "at least -1"),
        ({"geometry_srid": "0"}, "geometry.srid", "at least 1"),
        ({"auto_create": "yes"}, "auto.create", "true or false"),
    ],
)
def test_what_is_wrong_is_told(properties: dict[str, str], name: str, reason: str) -> None:
    found = errors(**properties)
    assert list(found) == [name]
    assert reason in found[name][0]
    assert name in found[name][0]


@pytest.mark.parametrize(
    "properties", [{"insert.mode": "upsert"}, {"pk.mode": "kafka", "pk.fields": "a"}]
)
def test_a_task_refuses_what_validation_does(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigException):
        Settings.of({"connection.url": URL, **properties})


def test_a_url_with_a_password_is_not_shown_in_the_answer() -> None:
    found = PostgreSqlSinkConnector().validate({"connection.url": "postgresql://a:s3cr3t@db/x"})
    assert "s3cr3t" not in repr(found)
    assert found["connection.url"].errors


def test_the_password_shows_itself_nowhere() -> None:
    settings = Settings.of({"connection.url": URL, "connection.password": "s3cr3t"})
    assert "s3cr3t" not in repr(settings)


def test_every_property_is_documented() -> None:
    assert all(key.documentation and key.group for key in CONFIG.keys.values())


@pytest.mark.parametrize("name", ["PostgreSqlSink", "PostgreSqlSinkConnector"])
def test_the_connector_is_found_by_its_names(name: str) -> None:
    assert ConnectorRegistry().find(name).connector is PostgreSqlSinkConnector


def test_without_the_library_validation_says_how_to_get_it(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert "pip install 'waylog[postgresql]'" in errors()["connection.url"][0]
