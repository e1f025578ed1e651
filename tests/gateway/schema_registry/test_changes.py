"""What a registry decides, without a log: a state, requests, and the records that they make."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
)

from gateway.schema_registry import changes, schemas
from gateway.schema_registry.changes import Changes, Decision
from gateway.schema_registry.errors import RegistryError
from gateway.schema_registry.queries import Queries
from gateway.schema_registry.records import (
    Record,
    Reference,
    SchemaValue,
    read_record,
    schema_record,
)
from gateway.schema_registry.schemas import LEVELS, SchemaRequest, Schemas
from gateway.schema_registry.state import State

A = {"name": "a", "type": "int"}
WITH_DEFAULT = {"name": "b", "type": "int", "default": 0}
WITHOUT_DEFAULT = {"name": "b", "type": "int"}


def avro(*fields: dict[str, Any], name: str = "R") -> SchemaRequest:
    return SchemaRequest(
        json.dumps({"type": "record", "name": name, "fields": list(fields or (A,))})
    )


class Made:
    """A registry in memory: what it decides is read at once."""

    def __init__(self, records: list[Record] | None = None) -> None:
        self.records: list[Record] = []
        self.state = State()
        self.schemas = Schemas(self.state)
        self.changes = Changes(self.schemas)
        self.queries = Queries(self.schemas)
        for each in records or []:
            self._read(each)

    def _read(self, record: Record) -> None:
        self.records.append(record)
        read = read_record(*record)
        if read is not None:
            self.state.apply(read)

    def do(self, decision: Decision) -> Any:
        for each in decision.records:
            self._read(each)
        return decision.answer

    def register(self, subject: str, request: SchemaRequest, *, normalize: bool = False) -> int:
        answer = self.do(self.changes.register(subject, request, normalize=normalize))
        number: int = answer["id"]
        return number

    def shown(self) -> Any:
        """Return all that can be asked for."""
        subjects = self.queries.subjects("", deleted=True, deleted_only=False)
        return (
            self.queries.schemas("", deleted=True, latest_only=False),
            [(each, self.state.level(each), self.state.mode(each)) for each in [None, *subjects]],
        )


def refused(code: int) -> Any:
    return pytest.raises(RegistryError, check=lambda error: error.code == code)


@pytest.fixture
def made() -> Made:
    return Made()


def test_the_same_schema_has_one_id_in_all_subjects(made: Made) -> None:
    assert made.register("s", avro()) == 1
    assert made.register("s", avro()) == 1
    assert made.register("t", avro()) == 1
    assert made.register("s", avro(A, WITH_DEFAULT)) == 2
    assert made.queries.versions("s", deleted=False, deleted_only=False) == [1, 2]
    assert made.queries.versions_of(1, deleted=False) == [
        {"subject": "s", "version": 1},
        {"subject": "t", "version": 1},
    ]


def test_what_is_written_in_another_way_is_the_same_schema(made: Made) -> None:
    first = '{"type":"record","name":"R","namespace":"n","fields":[{"name":"a","type":"int"}]}'
    other = ' {"fields": [{"type": {"type": "int"}, "name": "a"}], "name": "n.R", "type":"record"}'
    assert made.register("s", SchemaRequest(first)) == made.register("s", SchemaRequest(other))
    documented = first.replace('"name":"a"', '"doc":"d","name":"a"')
    assert made.register("s", SchemaRequest(documented)) == 2


def test_normalizing_sorts_attributes(made: Made) -> None:
    one = SchemaRequest('{"type":"string","x":1,"y":2}')
    other = SchemaRequest('{"y":2,"x":1,"type":"string"}')
    assert made.register("s", one, normalize=True) == made.register("s", other, normalize=True)


def test_the_very_text_is_found_before_what_means_the_same(made: Made) -> None:
    text = '{"type":"record","name":"L","fields":[{"name":"a","type":["null","int"]}]}'
    plain = SchemaRequest(text)
    first = made.register("s", plain)
    second = made.register("s", plain, normalize=True)
    assert first != second
    for normalize, version, number in ((False, 1, first), (True, 2, second)):
        found = made.queries.lookup("s", plain, deleted=False, normalize=normalize)
        assert (found["version"], found["id"]) == (version, number)
        assert made.register("s", plain, normalize=normalize) == number
        assert made.register(f"t{normalize}", plain, normalize=normalize) == number


def test_a_preparation_changes_no_answer(made: Made) -> None:
    made.do(made.changes.set_level("s", "FULL_TRANSITIVE"))
    requests = [avro(), avro(A, WITH_DEFAULT), avro(A, WITHOUT_DEFAULT), SchemaRequest('"int"')]
    answers: list[int | str] = []
    for prepares in (True, False):
        registry = Made(made.records)
        for request in requests:
            if prepares:
                list(registry.schemas.preparation("s", request, registering=True))
            try:
                answers.append(registry.register("s", request))
            except RegistryError as error:
                answers.append(str(error))
    assert answers[: len(requests)] == answers[len(requests) :]


def test_a_comparison_with_all_versions_has_an_end(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.do(made.changes.set_level("s", "BACKWARD_TRANSITIVE"))
    made.register("s", avro())
    monkeypatch.setattr(schemas, "_COMPARING_S", -1.0)
    list(made.schemas.preparation("s", avro(), registering=True))  # nothing is to be compared
    with refused(42201):
        list(made.schemas.preparation("s", avro(A, WITH_DEFAULT), registering=True))


@pytest.mark.parametrize(
    ("level", "later", "fits"),
    [
        ("BACKWARD", avro(A, WITH_DEFAULT), True),
        ("BACKWARD", avro(A, WITHOUT_DEFAULT), False),
        ("FORWARD", avro(A, WITHOUT_DEFAULT), True),
        ("FULL", avro(A, WITHOUT_DEFAULT), False),
        ("FULL", avro(A, WITH_DEFAULT), True),
        ("BACKWARD", avro({"name": "a", "type": "long"}), True),
        ("FORWARD", avro({"name": "a", "type": "long"}), False),
        ("BACKWARD", avro({"name": "a", "type": "string"}), False),
        ("BACKWARD", avro(name="Q"), False),
        ("NONE", SchemaRequest('"string"'), True),
    ],
)
def test_compatibility_is_as_the_level_says(
    made: Made, level: str, later: SchemaRequest, fits: bool
) -> None:
    made.do(made.changes.set_level("s", level.lower()))
    made.register("s", avro())
    answer = made.queries.compatibility("s", None, later, verbose=True)
    assert answer["is_compatible"] == fits
    if fits:
        assert made.register("s", later) == 2
    else:
        assert answer["messages"]
        with refused(409):
            made.register("s", later)


def test_a_transitive_level_compares_with_all_versions(made: Made) -> None:
    made.do(made.changes.set_level("s", "NONE"))
    made.register("s", avro(A, WITHOUT_DEFAULT))
    made.register("s", avro())
    again = avro(A, {"name": "b", "type": "string", "default": ""})
    made.do(made.changes.set_level("s", "BACKWARD"))
    assert made.queries.compatibility("s", None, again, verbose=False)["is_compatible"]
    made.do(made.changes.set_level("s", "BACKWARD_TRANSITIVE"))
    assert not made.queries.compatibility("s", None, again, verbose=False)["is_compatible"]


def test_json_schemas_are_compared(made: Made) -> None:
    made.register("s", SchemaRequest('{"type":"object"}', "JSON"))
    with refused(409):
        made.register("s", SchemaRequest('{"type":"array"}', "JSON"))
    with refused(409):
        made.register("s", avro())
    made.do(made.changes.set_level("s", "NONE"))
    made.register("s", SchemaRequest('{"type":"array"}', "JSON"))
    shown = made.queries.version("s", "latest", deleted=False)
    assert (shown["version"], shown["schemaType"], shown["schema"]) == (
        *(2, "JSON"), '{"type":"array"}',
    )  # fmt: skip


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        *(
            (SchemaRequest("{"), 42201),
            (SchemaRequest('"nope"'), 42201),
            (SchemaRequest(""), 42201),
        ),
        (SchemaRequest('{"type":"array","items":"null"}'), 42201),
        (SchemaRequest('[["null"]]'), 42201),
        (SchemaRequest("[" * 5000), 42201),
        (SchemaRequest('{"type":"enum","name":"E","symbols":["a-b"]}'), 42201),
        (avro({"name": "a", "type": "int", "default": "x"}), 42201),
        (SchemaRequest("{}", "THRIFT"), 422),
        (SchemaRequest('"string"', references=[Reference("x", "missing", 1)]), 42201),
        (SchemaRequest('"string"', id=7), 42205),
    ],
)
def test_what_is_no_schema_is_refused(made: Made, request_: SchemaRequest, code: int) -> None:
    with refused(code):
        made.register("s", request_)
    assert made.records == []


def test_a_schema_that_others_use_is_not_deleted(made: Made) -> None:
    made.register("point", avro(name="geo.Point"))
    line = {"type": "record", "name": "Line", "fields": [{"name": "to", "type": "geo.Point"}]}
    references = [Reference("geo.Point", "point", 1)]
    request = SchemaRequest(json.dumps(line), references=references)
    made.register("line", request)
    assert made.queries.referenced_by("point", "1") == [2]
    assert made.queries.lookup("line", request, deleted=False, normalize=False)["id"] == 2
    with refused(42206):
        made.changes.delete_subject("point", permanent=False)
    with refused(42206):
        made.changes.delete_version("point", "1", permanent=False)
    made.do(made.changes.delete_subject("line", permanent=False))
    assert made.do(made.changes.delete_subject("point", permanent=False)) == [1]
    # Nor does anything new use what is deleted.
    with refused(42201):
        made.register("other", request)


def _line(version: int) -> SchemaRequest:
    line = {"type": "record", "name": "Line", "fields": [{"name": "to", "type": "geo.Point"}]}
    return SchemaRequest(json.dumps(line), references=[Reference("geo.Point", "point", version)])


def test_a_reference_to_the_newest_version_gets_its_number(made: Made) -> None:
    made.register("point", avro(name="geo.Point"))
    made.register("point", avro(A, WITH_DEFAULT, name="geo.Point"))
    number = made.register("line", _line(-1))
    shown = made.queries.version("line", "1", deleted=False)
    assert shown["references"] == (Reference("geo.Point", "point", 2),)
    assert made.register("line", _line(2)) == made.register("other", _line(-1)) == number
    for version in (-1, 2):
        assert made.queries.lookup("line", _line(version), deleted=False, normalize=False)
        assert made.queries.compatibility("line", None, _line(version), verbose=False)
    assert made.queries.referenced_by("point", "2") == [number]
    with refused(42206):
        made.changes.delete_subject("point", permanent=False)
    # A later version of what is referred to makes it another schema, and leaves the former one.
    made.register("point", avro(A, {**WITH_DEFAULT, "name": "c"}, name="geo.Point"))
    assert made.register("line", _line(-1)) != number
    assert made.queries.version("line", "1", deleted=False) == shown
    with pytest.raises(RegistryError, match="version -1"):
        made.register("line", SchemaRequest('"int"', references=[Reference("x", "none", -1)]))


def test_a_stored_reference_to_the_newest_version_keeps_it(made: Made) -> None:
    made.register("point", avro(name="geo.Point"))
    value = SchemaValue(
        "line", 1, 7, _line(-1).schema, references=(Reference("geo.Point", "point", -1),)
    )
    made = Made([*made.records, schema_record(value)])
    assert made.queries.referenced_by("point", "1") == [7]
    with refused(42206):
        made.changes.delete_version("point", "1", permanent=False)
    assert made.register("line", _line(-1)) == 7


def test_a_subject_is_deleted_softly_first(made: Made) -> None:
    made.register("s", avro())
    made.do(made.changes.set_level("s", "FULL"))
    with refused(40405):
        made.changes.delete_subject("s", permanent=True)
    assert made.do(made.changes.delete_subject("s", permanent=False)) == [1]
    assert made.queries.subjects("", deleted=False, deleted_only=False) == []
    assert made.queries.subjects("", deleted=False, deleted_only=True) == ["s"]
    guid = made.queries.schema(1)["guid"]  # records with the id are still read
    assert made.queries.schema_with_guid(guid)
    with refused(40404):
        made.changes.delete_subject("s", permanent=False)
    assert made.register("s", avro()) == 1
    assert made.queries.versions("s", deleted=False, deleted_only=False) == [2]
    made.do(made.changes.delete_subject("s", permanent=False))
    assert made.do(made.changes.delete_subject("s", permanent=True)) == [1, 2]
    with refused(40403):
        made.queries.schema(1)
    with refused(40403):
        made.queries.schema_with_guid(guid)
    with refused(40401):
        made.changes.delete_subject("s", permanent=True)
    with refused(40408):
        made.queries.level("s", default_to_global=False)
    assert made.register("s", avro(A, WITH_DEFAULT)) == 2, "no id is given twice"


def test_a_version_is_deleted_softly_first(made: Made) -> None:
    made.register("s", avro())
    made.register("s", avro(A, WITH_DEFAULT))
    with refused(40407):
        made.changes.delete_version("s", "1", permanent=True)
    assert made.do(made.changes.delete_version("s", "latest", permanent=False)) == 2
    with refused(40406):
        made.changes.delete_version("s", "2", permanent=False)
    with refused(40402):
        made.queries.version("s", "2", deleted=False)
    assert made.queries.version("s", "2", deleted=True)["version"] == 2
    assert made.do(made.changes.delete_version("s", "2", permanent=True)) == 2
    with refused(40402):
        made.changes.delete_version("s", "2", permanent=True)
    for text in ("0", "x", "-2", str(2**31), "٣"):
        with refused(42202):
            made.queries.version("s", text, deleted=False)


def test_a_mode_says_what_may_be_written(made: Made) -> None:
    made.register("s", avro())
    made.do(made.changes.set_mode(None, "readonly", force=False))
    assert made.register("s", avro()) == 1, "nothing is written"
    with refused(42205):
        made.register("t", avro())
    with refused(42205):
        made.changes.delete_subject("s", permanent=False)
    with refused(42205):
        made.changes.set_level("s", "NONE")
    with refused(42205):
        made.changes.set_mode(None, "IMPORT", force=False)
    made.do(made.changes.set_mode("t", "IMPORT", force=False))
    imported = avro()
    imported.id, imported.version = 40, 9
    assert made.register("t", imported) == 40
    assert made.queries.version("t", "9", deleted=False)["id"] == 40
    other = avro(A, WITH_DEFAULT)
    other.id = 40
    with refused(42205):
        made.register("t", other)
    made.do(made.changes.delete_mode(None))
    assert made.register("s", avro(A, WITH_DEFAULT)) == 41


@pytest.mark.parametrize(("code", "word"), [(42203, "sideways"), (42204, "sideways")])
def test_unknown_levels_and_modes_are_refused(made: Made, code: int, word: str) -> None:
    with refused(code):
        if code == 42203:
            made.changes.set_level("s", word)
        else:
            made.changes.set_mode("s", word, force=False)


@pytest.mark.parametrize("subject", ["__GLOBAL", "__EMPTY", ":.ctx:s", ":.:s", ":.ctx:", ":*:"])
def test_names_that_mean_something_else_to_confluent_are_refused(made: Made, subject: str) -> None:
    with refused(42208):
        made.register(subject, avro())
    with refused(42208):
        made.changes.set_level(subject, "NONE")
    with refused(42208):
        made.changes.set_mode(subject, "READONLY", force=False)
    assert made.register(":s", avro()) == 1
    # What was registered under such a name before can still be deleted.
    made = Made([schema_record(SchemaValue(subject, 1, 1, '"int"'))])
    assert made.do(made.changes.delete_subject(subject, permanent=False)) == [1]


def test_texts_of_another_registry_are_the_same_schemas(made: Made) -> None:
    text = '{"fields": [{"type": "int", "name": "a"}], "name": "R", "type": "record"}'
    value = SchemaValue(subject="s", version=1, id=70, schema=text)
    made = Made([schema_record(value)])
    assert made.register("s", avro()) == 70
    assert made.register("t", avro()) == 70
    guid = made.queries.version("s", "1", deleted=False)["guid"]
    assert made.queries.schema_with_guid(guid.upper())["schema"] == text


_FIELDS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["int", "long", "string"]), st.booleans()),
    max_size=3,
    unique_by=lambda each: each[0],
)


def _request(fields: list[tuple[str, str, bool]]) -> SchemaRequest:
    return avro(
        *(
            {"name": name, "type": kind} | ({"default": _ZERO[kind]} if has_default else {})
            for name, kind, has_default in fields
        ),
        {"name": "z", "type": "int"},
    )


_ZERO: dict[str, Any] = {"int": 0, "long": 0, "string": ""}
_SUBJECTS = st.sampled_from(["s", "t"])


class Histories(RuleBasedStateMachine):
    """Any requests in any order; the registry is read again from its topic now and then."""

    registered = Bundle("registered")

    @initialize()
    def begin(self) -> None:
        self.made = Made()
        self.texts: dict[int, str] = {}

    def _do(self, decide: Any) -> Any:
        before, records = self.made.shown(), len(self.made.records)
        try:
            return self.made.do(decide())
        except RegistryError as error:
            assert 400 <= error.status < 500
            assert (self.made.shown(), len(self.made.records)) == (before, records)
            return None

    @rule(target=registered, subject=_SUBJECTS, fields=_FIELDS)
    def register(self, subject: str, fields: list[tuple[str, str, bool]]) -> Any:
        request = _request(fields)
        known = self.made.queries.compatibility(subject, None, request, verbose=False)
        answer = self._do(lambda: self.made.changes.register(subject, request, normalize=False))
        if answer is None:
            assert not known["is_compatible"]
            return (subject, 0, request)
        number, text = answer["id"], answer["schema"]
        assert self.texts.setdefault(number, text) == text, "an id is one schema for ever"
        found = self.made.queries.lookup(subject, request, deleted=False, normalize=False)
        assert found["id"] == number
        return (subject, found["version"], request)

    @rule(each=consumes(registered), permanent=st.booleans())
    def delete_version(self, each: tuple[str, int, SchemaRequest], permanent: bool) -> None:
        subject, version, _ = each
        if version:
            self._do(
                lambda: self.made.changes.delete_version(subject, str(version), permanent=permanent)
            )

    @rule(subject=_SUBJECTS, permanent=st.booleans())
    def delete_subject(self, subject: str, permanent: bool) -> None:
        gone = self._do(lambda: self.made.changes.delete_subject(subject, permanent=permanent))
        if gone is not None:
            assert not self.made.state.versions(subject)
            assert bool(self.made.state.versions(subject, deleted=True)) != permanent

    @rule(subject=_SUBJECTS | st.none(), level=st.sampled_from(LEVELS))
    def set_level(self, subject: str | None, level: str) -> None:
        self._do(lambda: self.made.changes.set_level(subject, level))

    @rule(subject=_SUBJECTS)
    def delete_level(self, subject: str) -> None:
        self._do(lambda: self.made.changes.delete_level(subject))

    @rule(compacted=st.booleans())
    def read_again(self, compacted: bool) -> None:
        records = self.made.records
        if compacted:
            newest = {key: number for number, (key, _) in enumerate(records)}
            records = [records[number] for number in sorted(newest.values())]
            records = [(key, value) for key, value in records if value is not None]
        again = Made(records)
        assert again.shown() == self.made.shown()
        id_max = self.made.state.id_max
        self.made = again
        # A compacted topic has forgotten ids of schemas that are deleted for ever.
        self.made.state.id_max = id_max

    @invariant()
    def versions_in_use_have_schemas(self) -> None:
        if not hasattr(self, "made"):
            return
        ids: dict[str, int] = {}
        for value in self.made.state.all_versions():
            assert ids.setdefault(value.schema, value.id) == value.id
            assert self.made.queries.schema(value.id)["schema"] == value.schema

    @invariant()
    def what_there_is_is_counted(self) -> None:
        if not hasattr(self, "made"):
            return
        state = self.made.state
        versions = list(state.all_versions())
        living = [each for each in versions if not each.deleted]
        assert (state.size, state.living) == (len(versions), len(living))
        assert state.text_bytes == sum(len(each.schema) for each in versions)


Histories.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestHistories = Histories.TestCase


@pytest.mark.parametrize(
    ("bound", "most", "subject"),
    [("SUBJECTS_MAX", 1, "other"), ("VERSIONS_MAX", 2, "s"), ("TEXT_BYTES_MAX", 200, "s")],
)
def test_a_registry_keeps_a_bounded_number_of_schemas(
    made: Made, monkeypatch: pytest.MonkeyPatch, bound: str, most: int, subject: str
) -> None:
    monkeypatch.setattr(changes, bound, most)
    made.register("s", avro())
    made.register("s", avro(A, WITH_DEFAULT))
    with refused(42200):
        made.register(subject, avro(A, WITH_DEFAULT, {"name": "c", "type": "int", "default": 1}))
    # What is there already is no new one, and what is deleted for ever makes room.
    assert made.register("s", avro()) == 1
    made.do(made.changes.delete_subject("s", permanent=False))
    made.do(made.changes.delete_subject("s", permanent=True))
    assert (made.state.size, made.state.living, made.state.text_bytes) == (0, 0, 0)
    made.register(subject, avro())


def test_a_normalized_schema_is_found_again(made: Made) -> None:
    request = SchemaRequest(
        '{"name":"R","type":"record","doc":"d","fields":[{"type":"int","doc":"x","name":"a"}]}'
    )
    assert made.register("s", request, normalize=True) == 1
    assert made.register("s", request, normalize=True) == 1
    assert made.register("other", request, normalize=True) == 1
    assert made.queries.versions("s", deleted=False, deleted_only=False) == [1]
    found = made.queries.lookup("s", request, deleted=False, normalize=True)
    assert (found["id"], found["version"]) == (1, 1)
