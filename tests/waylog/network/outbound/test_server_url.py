"""URLs of servers, and what is none."""

from __future__ import annotations

import pytest

from waylog.network.outbound.server_url import BadServerUrl, LoginInUrl, server_url

WEB = ("http", "https")


@pytest.mark.parametrize(
    "url",
    [
        *("http://example.org", "https://example.org:8443/a?b=c#d", "http://127.0.0.1/"),
        *(
            "http://[2001:db8::1]:80/",
            "http://[::ffff:192.0.2.1]/",
            "http://1.example/",
            "http://0x.example/",
            "http://a1/",
        ),
    ],
)
def test_a_server_is_named(url: str) -> None:
    assert server_url(url, WEB).geturl() == url


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://example.org", "not http://HOST or https://HOST"),
        ("https://", "not http://HOST or https://HOST"),
        ("https://example.org:0/", "not http://HOST or https://HOST"),
        ("https://example.org:port/", "not http://HOST or https://HOST"),
        ("https://[::1", "not http://HOST or https://HOST"),
        ("https://example.org/a b", "percent-encoded"),
        ("https://example.org/\n", "percent-encoded"),
        ("https://exämple.org/", "percent-encoded"),
        ("http://2130706433/", "four decimal numbers"),
        ("http://0x7f000001/", "four decimal numbers"),
        ("http://0X7F.1/", "four decimal numbers"),
        ("http://127.1/", "four decimal numbers"),
        ("http://127.0.0.01/", "four decimal numbers"),
        ("http://127.0.0.1./", "four decimal numbers"),
        ("http://300.1.1.1/", "four decimal numbers"),
        ("http://example.0x/", "four decimal numbers"),
    ],
)
def test_what_names_no_server_is_refused(url: str, reason: str) -> None:
    with pytest.raises(BadServerUrl, match=reason):
        server_url(url, WEB)


def test_a_login_is_refused_and_not_shown() -> None:
    with pytest.raises(LoginInUrl) as refusal:
        server_url("https://anna:geheim@example.org/", WEB)
    assert "geheim" not in str(refusal.value)
