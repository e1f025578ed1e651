"""Comparisons of Avro: as Apache's package decides, in a number of steps that is bounded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from hypothesis import given
from hypothesis import strategies as st

from gateway.schema_registry.avro_type import parse_avro
from gateway.schema_registry.errors import RegistryError
from gateway.schema_registry.parsed import ParsedSchema
from gateway.schema_registry.schema_types import incompatibilities

_PRIMITIVES = ("null", "int", "long", "double", "string", "bytes")


def parsed(schema: Any) -> ParsedSchema:
    return parse_avro(json.dumps(schema), (), (), normalize=False)


def record(name: str, *fields: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def union(numbers: range) -> list[Any]:
    return [record(f"U{number}", {"name": "f", "type": "int"}) for number in numbers]


@st.composite
def schemas(draw: st.DrawFn) -> Any:
    """Return a record whose fields are unions of records, enums, fixed and primitive types."""
    names = iter(draw(st.permutations(["A", "B", "C", "D", "E", "F"])))

    def named() -> Any:
        name = next(names, None)
        if name is None:
            return "int"
        kind = draw(st.sampled_from(("record", "enum", "fixed")))
        aliases = draw(st.lists(st.sampled_from("ABCDEF"), max_size=1))
        more = {"aliases": aliases} if aliases else {}
        if kind == "enum":
            symbols = draw(st.sets(st.sampled_from("xyz"), min_size=1))
            return {"type": kind, "name": name, "symbols": sorted(symbols), **more}
        if kind == "fixed":
            return {"type": kind, "name": name, "size": draw(st.integers(1, 2)), **more}
        field = {"name": "f", "type": draw(st.sampled_from(_PRIMITIVES))}
        return record(name, field, **more)

    def branches() -> Any:
        plain = draw(st.sets(st.sampled_from(_PRIMITIVES), max_size=3))
        others = [named() for _ in range(draw(st.integers(0, 2)))]
        found = [*sorted(plain), *(each for each in others if isinstance(each, dict))]
        found = list(draw(st.permutations(found)))
        return found if len(found) > 1 else (found or ["int"])[0]

    fields = []
    for name in draw(st.sets(st.sampled_from("abc"), min_size=1)):
        kind = branches()
        if draw(st.booleans()):
            kind = {"type": "array", "items": kind}
        field = {"name": name, "type": kind}
        if draw(st.booleans()) and "null" in kind and kind[0] == "null":
            field["default"] = None
        fields.append(field)
    return record("R", *fields)


@given(schemas(), schemas())
def test_the_answer_is_that_of_apaches_package(reader: Any, writer: Any) -> None:
    one, other = parsed(reader), parsed(writer)
    checker = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]
    expected = checker.get_compatibility(one.comparable, other.comparable)
    fits = expected.compatibility is SchemaCompatibilityType.compatible
    assert (not incompatibilities(one, other)) == fits


def test_large_unions_are_compared_by_the_names_of_their_branches() -> None:
    large, reverse = parsed(union(range(2000))), parsed(union(range(2000))[::-1])
    assert incompatibilities(large, reverse) == []
    other = parsed(union(range(2000, 4000)))
    (reason,) = incompatibilities(large, other)
    assert "MISSING_UNION_BRANCH" in reason
    assert len(reason) < 10_000


def test_large_records_are_compared_field_by_field() -> None:
    fields = [{"name": f"f{number}", "type": "int"} for number in range(3000)]
    others = [{"name": f"g{number}", "type": "int"} for number in range(3000)]
    assert incompatibilities(parsed(record("R", *fields)), parsed(record("R", *fields))) == []
    (reason,) = incompatibilities(parsed(record("R", *fields)), parsed(record("R", *others)))
    assert len(reason) < 10_000


def test_what_needs_too_many_steps_is_refused() -> None:
    # Each field is a union of all: the branches of one are met by those of the other one.
    names = [f"U{number}" for number in range(320)]
    first = {"name": "f", "type": union(range(320))}
    fields = [{"name": f"f{number}", "type": ["null", *names]} for number in range(320)]
    tangled = parsed(record("R", first, *fields))
    with pytest.raises(RegistryError, match="takes more than 100000 steps"):
        incompatibilities(tangled, parsed(record("R", first, *fields)))


def test_a_branch_is_found_by_another_name() -> None:
    field = {"name": "f", "type": "int"}
    old = parsed(["null", record("Old", field), record("Kept", field)])
    new = parsed(["null", record("New", field, aliases=["Old"]), record("Kept", field)])
    other = parsed(["null", record("New", field, aliases=["Older"]), record("Kept", field)])
    assert incompatibilities(new, old) == []
    assert incompatibilities(other, old) != []
