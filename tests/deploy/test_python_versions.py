"""Constructs that some of the supported Python versions do not accept."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("broker_core", "consumers", "gateway", "geoservice", "load_tests", "spark", "waylog")

_NUMBERED = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|WHERE)\b.*\?\d", re.DOTALL)


def texts(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def numbered(source: str) -> list[int]:
    return [line for line, text in texts(source) if _NUMBERED.search(text)]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_statement_of_sqlite_numbers_its_parameters(package: str) -> None:
    # Python 3.12.0 to 3.12.3 take `?1` for a named parameter, and warn (python/cpython#117995).
    found = {
        f"{path.relative_to(ROOT)}:{line}"
        for path in (ROOT / package).rglob("*.py")
        for line in numbered(path.read_text(encoding="utf-8"))
    }
    assert found == set()


def test_a_numbered_parameter_is_found() -> None:
    assert numbered('execute("SELECT 1 "\n"FROM users WHERE name = ?1", ("ada",))') == [1]
    assert numbered('execute("SELECT 1 FROM users WHERE name = ?", ("ada",))') == []
