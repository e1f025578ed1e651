from __future__ import annotations

from pathlib import Path

import pytest

from waylog.config import (
    ConfigError,
    Endpoint,
    load_properties,
    parse_endpoint,
    save_properties,
)


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("127.0.0.1:8080", Endpoint("127.0.0.1", 8080)),
        (":1883", Endpoint("127.0.0.1", 1883)),
        ("[::1]:9092", Endpoint("::1", 9092)),
        ("broker.example:0", Endpoint("broker.example", 0)),
    ],
)
def test_addresses_are_understood(text: str, endpoint: Endpoint) -> None:
    assert parse_endpoint(text) == endpoint


@pytest.mark.parametrize("text", ["8080", "host", "host:", "host:http", "host:70000", ""])
def test_a_wrong_address_is_named_in_the_error(text: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        parse_endpoint(text)


def test_an_ipv6_address_is_printed_so_that_it_can_be_parsed_again() -> None:
    assert parse_endpoint(str(Endpoint("::1", 80))) == Endpoint("::1", 80)


def test_a_bound_listener_is_reached_at_its_host_with_the_port_that_was_chosen() -> None:
    bound = Endpoint("127.0.0.1", 40_000)
    assert Endpoint("localhost", 0).bound_to(bound) == Endpoint("localhost", 40_000)
    assert Endpoint("", 0).bound_to(bound) == bound


def test_properties_survive_the_file(tmp_path: Path) -> None:
    properties = {"log.dirs": "/a b", "listeners": "PLAINTEXT://h:1", "x": "1=2"}
    save_properties(tmp_path / "folder" / "server.properties", properties)
    assert load_properties(tmp_path / "folder" / "server.properties") == properties


def test_comments_and_empty_lines_are_no_properties(tmp_path: Path) -> None:
    path = tmp_path / "p"
    path.write_text("# one\n\n! two\n a = b \n")
    assert load_properties(path) == {"a": "b"}


def test_a_line_without_a_value_is_named_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "p"
    path.write_text("a=1\nnonsense\n")
    with pytest.raises(ConfigError, match="line 2"):
        load_properties(path)


def test_a_missing_file_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_properties(tmp_path / "absent")
