"""The names in Host that an HTTP listener answers to."""

from __future__ import annotations

import pytest

from waylog.network.served_hosts import ServedHosts, is_authority


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8080", "localhost", "LOCALHOST.:80", "[::1]:8080", "[::1]"]
)
def test_names_of_this_machine_are_served(host: str) -> None:
    assert is_authority(host)
    assert ServedHosts().serves(host)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1:8080@evil.example", "127.0.0.1@evil.example", "evil.example@127.0.0.1"),
        *("127.0.0.1:@evil.example", "localhost:80:80", "localhost:http", "localhost/x"),
        *("localhost?x", "localhost#x", "localhost\\x", "[::1]x", "[::1]:8080@evil", "[::1"),
        *(
            "localhost evil.example",
            "127.0.0.1,evil.example@x",
            "[127.0.0.1]@x",
            "localhost:\u0661",
        ),
    ],
)
def test_what_is_more_than_a_host_and_a_port_is_not_served(host: str) -> None:
    assert not is_authority(host)
    assert not ServedHosts().serves(host)


def test_names_that_devices_were_given_are_sound() -> None:
    for host in ("", "my_server.lan:8080", "müller.example", "xn--mller-kva.example", "a.b-c:"):
        assert is_authority(host)
