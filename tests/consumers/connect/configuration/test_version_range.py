"""Ranges of versions in Maven's form (KIP-891)."""

from __future__ import annotations

import pytest

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.configuration.version_range import (
    VersionRange,
    check_version,
    requirement,
    valid_range,
)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("[1.0,2.0)", ["1.0", "1", "1.5.7", "2.0-rc1"], ["0.9", "2.0", "2.0.0", "3", "1-rc"]),
        ("(1.0,2.0]", ["1.0.1", "2.0"], ["1.0", "1", "2.0.1"]),
        ("[1.5,)", ["1.5", "9"], ["1.4.9", "1.5-snapshot"]),
        ("(,1.0]", ["0", "1.0", "1.0-alpha"], ["1.0.1", "1.0-sp"]),
        ("[1.0]", ["1", "1.0.0", "1-ga"], ["1.0.1"]),
        ("[1,2),[3,4)", ["1", "3.9"], ["2", "4"]),
        (" [ 1 , 2 ] , [3] ", ["2", "3"], ["2.5"]),
        ("[1.0-alpha,1.0-beta]", ["1.0-alpha", "1.0-beta", "1.0-a"], ["1.0-rc", "1.0"]),
        ("[4.3.1-foo]", ["4.3.1-FOO"], ["4.3.1-bar", "4.3.1"]),
        ("(,)", ["1", "0.0.1-snapshot"], []),
    ],
)
def test_a_range_contains(text: str, inside: list[str], outside: list[str]) -> None:
    found = VersionRange(text)
    assert [each for each in inside if not found.contains(each)] == []
    assert [each for each in outside if found.contains(each)] == []


@pytest.mark.parametrize(
    "text", ["[1", "1]x", "[2,1]", "(1)", "[]", "[1,2", "[1,2)[3]", "[1,2,3]", "[1,2) x", ","]
)
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ConfigException, match="configuration n"):
        valid_range("n", f"[{text}" if text[0] not in "[(" else text)


def test_a_version_alone_is_that_one() -> None:
    assert requirement(None) is requirement("latest") is requirement(" ") is None
    wanted = requirement("1.2")
    assert wanted is not None
    assert wanted.contains("1.2.0")
    assert not wanted.contains("1.3")
    valid_range("n", None)
    check_version("n", "[1,", "C", "1")
    check_version("n", "[1,2)", "C", "1")
    with pytest.raises(ConfigException, match=r"Plugin C not found .* \[2\], available .* \[1\]"):
        check_version("n", "2", "C", "1")
