"""Of a tile server only what cannot break out of the page's policy is taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.web.tile_server import Name, content_security_policy, tile_server


@pytest.mark.parametrize(
    ("url", "kind", "origin"),
    [
        ("https://t.example.org/{z}/{x}/{y}.png", "raster", "https://t.example.org"),
        ("http://127.0.0.1:8080/a/{z}/{y}/{x}", "raster", "http://127.0.0.1:8080"),
        ("https://T.example.org/{z}/{x}/{y}.pbf?key=a%3Bb", "vector", "https://t.example.org"),
        ("https://t.example.org/t?l=a&z={z}&x={x}&y={y}", "raster", "https://t.example.org"),
        ("https://[::1]:9/{z}/{x}/{y}.mvt", "vector", "https://[::1]:9"),
        ("https://t.example.org/tiles.json", "tilejson", "https://t.example.org"),
    ],
)
def test_templates_and_tilejsons_are_taken(url: str, kind: str, origin: str) -> None:
    made = tile_server("map", url, " © somebody ")
    assert (made.url, made.kind, made.origin, made.attribution) == (
        *(url, kind, origin),
        "© somebody",
    )


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://t.example.org/{z}/{x}.png", "{y} is missing"),
        ("https://t.example.org/map", "{z} and {x} and {y} is missing"),
        ("ftp://t.example.org/{z}/{x}/{y}.png", "begins with https://"),
        ("//t.example.org/{z}/{x}/{y}.png", "begins with https://"),
        ("t.example.org/{z}/{x}/{y}.png", "begins with https://"),
        ("https://a:b@t.example.org/{z}/{x}/{y}.png", "a user or a password"),
        ("https://a@t.example.org/{z}/{x}/{y}.png", "a user or a password"),
        ("https://t.example.org/{z}/{x}/{y}.png;script-src *", "';' cannot be in it"),
        ("https://t.example.org/{z}/{x}/{y}.png'", "cannot be in it"),
        ('https://t.example.org/"/{z}/{x}/{y}.png', "cannot be in it"),
        ("https://t.example.org, https://e.example/{z}/{x}/{y}.png", "cannot be in it"),
        ("https://t.example.org/{z}/{x}/{y}.png\r\nX: y", "cannot be in it"),
        ("https://tö.example.org/{z}/{x}/{y}.png", "cannot be in it"),
        ("https://*.example.org/{z}/{x}/{y}.png", "the name of one server"),
        ("https://{s}.example.org/{z}/{x}/{y}.png", "the name of one server"),
        ("https://{z}.example.org/{x}/{y}.png?{z}", "the name of one server"),
        ("https://t.example.org/{z}/{x}/{y}/{q}.png", "may be in braces"),
        ("https://t.example.org/{z}/{x}/{y}}.png", "may be in braces"),
        ("https://t.example.org:99999/{z}/{x}/{y}.png", "Port out of range"),
        ("https:///{z}/{x}/{y}.png", "the name of one server"),
        ("https://t.example.org/{z}/{x}/{y}?" + "a" * 2000, "at most 2000"),
    ],
)
def test_what_is_wrong_is_said(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r".") as found:
        tile_server("map", url)
    assert reason in str(found.value)


def test_a_refusal_tells_no_password() -> None:
    with pytest.raises(ValueError, match="password") as found:
        tile_server("map", "https://anna:hunter2@t.example.org/{z}/{x}/{y}.png")
    assert "hunter2" not in str(found.value)


@pytest.mark.parametrize("attribution", ["", " ", "a\nb", "x" * 301])
def test_an_attribution_is_a_line(attribution: str) -> None:
    with pytest.raises(ValueError, match="attribution"):
        tile_server("map", "https://t.example.org/{z}/{x}/{y}.png", attribution)


def test_satellite_pictures_are_pictures() -> None:
    with pytest.raises(ValueError, match="no pictures"):
        tile_server("satellite", "https://t.example.org/{z}/{x}/{y}.pbf")


@given(
    st.sampled_from(("map", "satellite")),
    st.text(alphabet="az09.-:/@;,'\" \n*{}[]%&?\\", max_size=30),
    st.sampled_from(("", "/{z}/{x}/{y}.png", "/t.json")),
)
def test_whatever_is_taken_adds_one_origin_to_the_policy(name: Name, text: str, end: str) -> None:
    try:
        made = tile_server(name, f"https://{text}{end}")
    except ValueError:
        return
    policy = content_security_policy([made])
    assert policy.count(";") == content_security_policy().count(";")
    assert policy.replace(f" {made.origin}", "") == content_security_policy()
    assert made.origin.isascii()
    assert not set(made.origin) & set(" ;,'\"*@{}\n")
