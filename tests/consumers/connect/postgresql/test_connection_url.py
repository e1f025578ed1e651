"""Where the database is, and that a password in the URL is refused without being shown."""

from __future__ import annotations

import pytest

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.postgresql.connection_url import parse_url, shown_address


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://db/geo", {"host": "db", "port": "5432", "dbname": "geo"}),
        ("postgres://a%40b@db:5433", {"host": "db", "port": "5433", "user": "a@b"}),
        ("jdbc:postgresql://db:1/geo?user=anna", {"port": "1", "dbname": "geo", "user": "anna"}),
        ("postgresql://a,b:7/geo", {"host": "a,b", "port": "5432,7"}),
        ("postgresql://[::1]:7/geo", {"host": "::1", "port": "7"}),
        ("postgresql://%2Frun%2Fpg/geo", {"host": "/run/pg"}),
        ("postgresql:///geo?host=/run/pg", {"host": "/run/pg", "dbname": "geo"}),
        ("postgresql://db/g?connect_timeout=2", {"connect_timeout": "2"}),
    ],
)
def test_a_url_names_host_port_and_database(url: str, expected: dict[str, str]) -> None:
    found = parse_url("connection.url", url)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql://anna:s3cr3t@db/geo", "connection.password"),
        ("postgresql://db/geo?password=s3cr3t", "connection.password"),
        ("postgresql://db/geo?sslpassword=s3cr3t", "connection.password"),
        ("postgresql://db:s3cr3t/geo", "port"),
        ("postgresql://db:70000/s3cr3t", "port"),
        ("mysql://s3cr3t", "begin with postgresql://"),
        ("s3cr3t", "begin with postgresql://"),
        ("postgresql://[s3cr3t/geo", "not a URL"),
        ("postgresql://db/geo?s3cr3t", "not a URL"),
    ],
)
def test_what_is_refused_is_not_shown(url: str, reason: str) -> None:
    with pytest.raises(ConfigException) as raised:
        parse_url("connection.url", url)
    assert reason in str(raised.value)
    assert "connection.url" in str(raised.value)
    assert "s3cr3t" not in str(raised.value)


def test_messages_have_host_port_and_database() -> None:
    assert shown_address(parse_url("u", "postgresql://anna@db:7/geo")) == "db:7/geo"
    assert shown_address(parse_url("u", "postgresql:///?user=anna")) == "localhost:5432/anna"
