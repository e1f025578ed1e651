"""The hash of a coordinator's keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.server.coordination.string_hash import java_string_hash


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("group", 98629247), ("größe", 98762257), ("\U0001f600", 1772899)],
)
def test_hashes_are_those_of_java(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


@given(st.text())
def test_a_hash_is_the_polynomial_of_javas_documentation(text: str) -> None:
    encoded = text.encode("utf-16-le")
    units = [int.from_bytes(encoded[at : at + 2], "little") for at in range(0, len(encoded), 2)]
    total = sum(unit * 31 ** (len(units) - 1 - at) for at, unit in enumerate(units))
    assert java_string_hash(text) % 2**32 == total % 2**32
    assert -(2**31) <= java_string_hash(text) < 2**31
