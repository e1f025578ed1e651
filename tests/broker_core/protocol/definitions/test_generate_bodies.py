"""The types of bodies are those of the tables, and say what the codec does."""

from __future__ import annotations

import typing
from collections.abc import Sequence
from typing import Any

import pytest

from broker_core.protocol.decoder import decode
from broker_core.protocol.definitions import bodies
from broker_core.protocol.definitions.generate_bodies import PATH, all_apis, generate
from broker_core.protocol.encoder import encode
from broker_core.protocol.schema import AnyApi, Api


def test_the_committed_types_are_those_of_the_tables() -> None:
    wanted = generate(all_apis())
    assert PATH.read_text() == wanted, (
        "run python -m broker_core.protocol.definitions.generate_bodies"
    )


@pytest.mark.parametrize("api", all_apis(), ids=lambda api: api.name)
def test_a_body_that_was_read_has_exactly_the_fields_of_its_type(api: AnyApi) -> None:
    for version in range(api.versions[0], api.versions[1] + 1):
        for direction, plan in (
            ("Request", api.request_plan(version)),
            ("Response", api.response_plan(version)),
        ):
            hints = typing.get_type_hints(getattr(bodies, api.name + direction))
            empty: dict[str, Any] = {
                each.name: {} for each in plan.fields if each.struct is not None and not each.array
            }
            body, _ = decode(plan, memoryview(encode(plan, empty)))
            assert body.keys() == hints.keys()
            for name, value in body.items():
                assert _fits(value, hints[name]), (version, direction, name, value)


def _fits(value: object, hint: Any) -> bool:
    origin = typing.get_origin(hint) or hint
    if origin is Sequence:
        return isinstance(value, list | tuple)
    if typing.is_typeddict(origin):
        return isinstance(value, dict)
    alternatives = typing.get_args(hint)
    if alternatives:
        return any(_fits(value, each) for each in alternatives)
    return isinstance(value, origin)


def test_a_request_names_what_has_no_default_and_an_answer_what_it_likes() -> None:
    api: AnyApi = Api(
        key=-1,
        name="Try",
        versions=(1, 3),
        flexible_from=2,
        request="""
    always int32 0+
    gone string 0-2
    with_default int8 0+ default -1
    nullable string 0+ nullable 2+
    entries [] 0+
        value bytes 0+
        entries [] 0+
            at float64 0+
    tagged {} 2+ tag 0
        id uuid 2+
""",
        response="""
    responses [] 0+
        records records 0+ nullable 0+
    old_names []string 0-0 nullable 0+
""",
    )
    _, text = generate([api]).split("import Part\n")
    assert (
        text
        == """

class TryRequest(TypedDict):
    always: int
    gone: NotRequired[str]
    with_default: NotRequired[int]
    nullable: str | None
    entries: Sequence[TryRequestEntry]
    tagged: NotRequired[TryRequestTagged | None]


class TryRequestEntry(TypedDict):
    value: bytes
    entries: Sequence[TryRequestEntryEntry]


class TryRequestEntryEntry(TypedDict):
    at: float


class TryRequestTagged(TypedDict):
    id: bytes


class TryResponse(TypedDict, total=False):
    responses: Sequence[TryResponseResult]
    old_names: Sequence[str] | None


class TryResponseResult(TypedDict, total=False):
    records: Part | None
"""
    )
