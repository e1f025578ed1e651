"""Headers, topics, predicates, and transforms one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.records import Header, SinkRecord
from consumers.connect.data.schemas import (
    FLOAT64,
    INT8,
    INT32,
    INT64,
    OPTIONAL_INT32,
    STRING,
    Schema,
    array_of,
    struct_of,
)
from consumers.connect.data.structs import Struct
from consumers.connect.transforms.by_name import TRANSFORMS, transform_plugins
from consumers.connect.transforms.chain import TransformChain
from tests.consumers.connect.transforms.records_for_transforms import applied, fields, make, record

PERSON = struct_of({"name": STRING, "age": OPTIONAL_INT32})
ADA = Struct(PERSON, {"name": "ada", "age": 36})


def test_headers_are_dropped_and_inserted() -> None:
    given = record("x", headers=(Header("a", 1), Header("b", 2), Header("a", 3)))
    assert applied(make("DropHeaders", headers="a,c"), given).headers == (Header("b", 2),)
    inserted = applied(make("InsertHeader", header="n", value_literal="42"), given)
    assert inserted.headers[-1] == Header("n", 42, INT8)
    assert len(inserted.headers) == 4
    with pytest.raises(ConfigException):
        make("DropHeaders")
    with pytest.raises(ConfigException):
        make("InsertHeader", header="x")


def test_fields_are_moved_and_copied_to_headers() -> None:
    move = make("HeaderFrom$Value", fields="age", headers="h", operation="move")
    found = applied(move, record(ADA, PERSON))
    assert found.headers == (Header("h", 36, OPTIONAL_INT32),)
    assert fields(found.value) == {"name": "ada"}
    found = applied(move, record({"age": 1, "x": 2}))
    assert (found.headers, found.value) == ((Header("h", 1),), {"x": 2})
    copy = make("HeaderFrom$Key", fields="age,none", headers="h,i", operation="copy")
    found = applied(copy, record(key={"age": 1}))
    assert (found.headers, found.key) == ((Header("h", 1), Header("i", None)), {"age": 1})
    with pytest.raises(DataException, match="Unknown field: none"):
        copy.apply(record(key=ADA, key_schema=PERSON))
    with pytest.raises(DataException):
        move.apply(record(None))
    with pytest.raises(ConfigException, match="same number of elements"):
        make("HeaderFrom", fields="a,b", headers="h", operation="copy")


def test_topics_are_renamed() -> None:
    router = make("RegexRouter", regex="before-(.*)", replacement="after-$1")
    found = applied(router, record("x", topic="before-a"))
    assert (found.topic, found.original_topic) == ("after-a", "before-a")
    assert applied(router, record("x", topic="other")).topic == "other"
    with pytest.raises(ConfigException, match="No group 2"):
        make("RegexRouter", regex="(a)", replacement="$2")
    with pytest.raises(ConfigException, match="Invalid regex"):
        make("RegexRouter", regex="(", replacement="")


def test_topics_get_the_time() -> None:
    assert applied(make("TimestampRouter"), record("x")).topic == "topic-20231114"
    router = make("TimestampRouter", topic_format="${timestamp}.${topic}", timestamp_format="yyyy")
    assert applied(router, record("x", topic="${timestamp}")).topic == "2023.${timestamp}"
    for timestamp in (None, 2**62):
        with pytest.raises(DataException):
            router.apply(record("x", timestamp=timestamp))
    with pytest.raises(ConfigException):
        make("TimestampRouter", timestamp_format="bbb")


#: From Kafka's documentation, "Predicates".
PREDICATES = {
    "transforms": "FilterFoo, ExtractBar",
    "transforms.FilterFoo.type": "org.apache.kafka.connect.transforms.Filter",
    "transforms.FilterFoo.predicate": "IsFoo",
    "transforms.ExtractBar.type": "org.apache.kafka.connect.transforms.ExtractField$Key",
    "transforms.ExtractBar.field": "other_field",
    "transforms.ExtractBar.predicate": "IsBar",
    "transforms.ExtractBar.negate": "true",
    "predicates": "IsFoo, IsBar",
    "predicates.IsFoo.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
    "predicates.IsFoo.pattern": "foo",
    "predicates.IsBar.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
    "predicates.IsBar.pattern": "bar",
}


def test_the_example_of_kafkas_documentation_filters_and_extracts() -> None:
    chain = TransformChain(PREDICATES)
    key = {"other_field": 7}
    assert chain.apply(record("x", topic="foo", key=key)) is None
    bar = chain.apply(record("x", topic="bar", key=key))
    other = chain.apply(record("x", topic="other", key=key))
    assert bar is not None
    assert other is not None
    assert (bar.key, other.key) == (key, 7)


def test_the_quick_start_of_kafkas_documentation_makes_a_map() -> None:
    chain = TransformChain(
        {
            "transforms": "MakeMap, InsertSource",
            "transforms.MakeMap.type": "org.apache.kafka.connect.transforms.HoistField$Value",
            "transforms.MakeMap.field": "line",
            "transforms.InsertSource.type": "org.apache.kafka.connect.transforms.InsertField$Value",
            "transforms.InsertSource.static.field": "data_source",
            "transforms.InsertSource.static.value": "test-file-source",
        }
    )
    found = chain.apply(record("foo"))
    assert found is not None
    assert found.value == {"line": "foo", "data_source": "test-file-source"}
    assert [stage.transform.class_name for stage in chain.stages] == [
        "org.apache.kafka.connect.transforms.HoistField$Value",
        "org.apache.kafka.connect.transforms.InsertField$Value",
    ]


@pytest.mark.parametrize(
    ("type_", "properties", "given", "is_true"),
    [
        ("HasHeaderKey", {"name": "h"}, record("x", headers=(Header("h", 1),)), True),
        ("HasHeaderKey", {"name": "h"}, record("x", headers=(Header("i", 1),)), False),
        ("RecordIsTombstone", {}, record(None), True),
        ("RecordIsTombstone", {}, record("x"), False),
        ("TopicNameMatches", {"pattern": "to.*"}, record("x"), True),
        ("TopicNameMatches", {"pattern": "to"}, record("x"), False),
    ],
)
def test_a_predicate_decides(
    type_: str, properties: Mapping[str, str], given: SinkRecord, is_true: bool
) -> None:
    base = {
        "transforms": "f",
        "transforms.f.type": "Filter",
        "transforms.f.predicate": "p",
        "predicates": "p",
        "predicates.p.type": f"org.apache.kafka.connect.transforms.predicates.{type_}",
    } | {f"predicates.p.{name}": text for name, text in properties.items()}
    assert (TransformChain(base).apply(given) is None) is is_true
    negated = TransformChain(base | {"transforms.f.negate": "true"})
    assert (negated.apply(given) is None) is not is_true


@pytest.mark.parametrize(
    "changes",
    [
        {"transforms.FilterFoo.type": "com.example.None"},
        {"predicates.IsFoo.type": "com.example.None"},
        {"transforms.FilterFoo.predicate": "none"},
        {"transforms": "none"},
        {"predicates.IsFoo.pattern": "("},
        {"transforms.ExtractBar.negate": "maybe"},
    ],
)
def test_a_chain_that_is_none_is_refused(changes: Mapping[str, str]) -> None:
    with pytest.raises(ConfigException):
        TransformChain({**PREDICATES, **changes})


def test_all_transforms_of_kafka_are_there() -> None:
    plugins = transform_plugins()
    names = {
        plugin.name.removeprefix("org.apache.kafka.connect.transforms.")
        for by_name in plugins.values()
        for plugin in by_name.values()
    }
    both: tuple[str, ...] = (
        "Cast",
        "ExtractField",
        "Flatten",
        "HeaderFrom",
        "HoistField",
        "InsertField",
    )
    both += ("MaskField", "ReplaceField", "SetSchemaMetadata", "TimestampConverter")
    assert names == {
        *(f"{name}${side}" for name in both for side in ("Key", "Value")),
        *("DropHeaders", "Filter", "InsertHeader", "RegexRouter", "TimestampRouter", "ValueToKey"),
        *(f"predicates.{each}" for each in ("HasHeaderKey", "RecordIsTombstone")),
        "predicates.TopicNameMatches",
    }


#: Each transform, set up to have something to do with the records below.
SETTINGS: dict[str, list[dict[str, str]]] = {
    "Cast": [{"spec": "a:int8,b:string"}, {"spec": "float32"}, {"spec": "boolean"}],
    "DropHeaders": [{"headers": "a"}],
    "ExtractField": [{"field": "a"}, {"field": "a.b", "field.syntax.version": "V2"}],
    "Filter": [{}],
    "Flatten": [{}],
    "HeaderFrom": [{"fields": "a", "headers": "h", "operation": each} for each in ("move", "copy")],
    "HoistField": [{"field": "a"}],
    "InsertField": [{"topic.field": "a", "offset.field": "o", "timestamp.field": "t!"}],
    "InsertHeader": [{"header": "h", "value.literal": "[1]"}],
    "MaskField": [{"fields": "a,b"}, {"fields": "a", "replacement": "5"}],
    "RegexRouter": [{"regex": "(t)(o)?.*", "replacement": "$1$2x"}],
    "ReplaceField": [{"exclude": "a"}, {"include": "a", "renames": "a:b"}, {"renames": "a:b"}],
    "SetSchemaMetadata": [{"schema.name": "n"}],
    "TimestampConverter": [
        {"target.type": target, "format": "yyyy-MM-dd", "field": field}
        for target in ("string", "unix", "Date", "Time", "Timestamp")
        for field in ("", "a")
    ],
    "TimestampRouter": [{}],
    "ValueToKey": [{"fields": "a,b"}],
}

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.decimals()
    | st.datetimes()
    | st.dates()
    | st.times()
    | st.builds(object),
    lambda values: (
        st.lists(values, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "c", 1]), values, max_size=3)
    ),
    max_leaves=6,
)
NESTED = struct_of({"a": struct_of({"b": INT32}), "b": STRING, "c": array_of(FLOAT64)})
structs = st.one_of(
    st.builds(
        lambda a, b, c: Struct(
            NESTED, {"a": Struct(NESTED.fields[0].schema, {"b": a}), "b": b, "c": c}
        ),
        st.integers(-(2**31), 2**31 - 1),
        st.text(max_size=5),
        st.lists(st.floats(), max_size=2),
    ).map(lambda value: (NESTED, value)),
    st.sampled_from([(PERSON, ADA), (PERSON, None), (NESTED, None), (PERSON, {"a": 1})]),
    st.integers(-(2**63), 2**63 - 1).map(lambda value: (INT64, value)),
    st.text(max_size=10).map(lambda value: (STRING, value)),
)


@given(
    plain.map(lambda value: (None, value)) | structs,
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.data(),
)
def test_no_transform_raises_another_error(
    schema_and_value: tuple[Schema | None, Any], timestamp: int | None, data: st.DataObject
) -> None:
    schema, value = schema_and_value
    given = record(
        value, schema, key=value, key_schema=schema, timestamp=timestamp, headers=(Header("a", 1),)
    )
    name = data.draw(st.sampled_from(sorted(TRANSFORMS)))
    settings = SETTINGS[TRANSFORMS[name].transform.__name__]
    transform = TRANSFORMS[name].make(data.draw(st.sampled_from(settings)))
    for _ in range(2):  # the second time with a remembered schema
        try:
            found = transform.apply(given)
        except DataException:
            continue
        assert found is None or found.offset == given.offset
        for side_schema, side in (
            ((found.value_schema, found.value), (found.key_schema, found.key)) if found else ()
        ):
            if isinstance(side, Struct):
                assert side_schema == side.schema
