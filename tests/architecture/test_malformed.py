"""Whoever decodes what others have written is ready for everything that decoding raises."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("waylog", "broker_core", "gateway", "geoservice", "consumers", "spark", "load_tests")
NEEDED = {"DecodeError", "ValueError", "RecursionError"}


def caught(node: ast.expr | None) -> Iterator[str]:
    """Yield the names of the exceptions of an `except` clause."""
    for each in ast.walk(node) if node is not None else ():
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Attribute):
            yield each.attr


def careless(source: str) -> list[int]:
    """Return the lines where a DecodeError is caught, but not all that goes with it."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Try | ast.With):
            continue
        names: set[str] = set()
        if isinstance(node, ast.Try):
            names = {name for handler in node.handlers for name in caught(handler.type)}
        else:
            for item in node.items:
                call = item.context_expr
                if isinstance(call, ast.Call) and "suppress" in caught(call.func):
                    names.update(name for each in call.args for name in caught(each))
        if names & {"DecodeError", "ValidationError"} and not names >= NEEDED:
            lines.append(node.lineno)
    return lines


@pytest.mark.parametrize("package", PACKAGES)
def test_who_catches_a_decode_error_catches_what_goes_with_it(package: str) -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line}": "catch waylog.malformed.MALFORMED"
        for path in (ROOT / package).rglob("*.py")
        for line in careless(path.read_text("utf-8"))
    }
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    f()\nexcept msgspec.DecodeError:\n    pass\n",
        "try:\n    f()\nexcept (DecodeError, RecursionError):\n    pass\n",
        "with suppress(msgspec.ValidationError, ValueError):\n    f()\n",
    ],
)
def test_the_check_finds_what_it_is_for(source: str) -> None:
    assert len(careless(source)) == 1


# The broker reads records by a reader of its own.
@pytest.mark.parametrize("package", sorted({*PACKAGES} - {"broker_core"}))
def test_headers_of_records_are_read_in_the_way_that_survives_odd_names(package: str) -> None:
    found = {
        f"{path.relative_to(ROOT)}:{node.lineno}": "call waylog.kafka.record_headers.headers_of"
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "headers"
        and not node.args
    }
    assert found == {}
