"""Transforms of fields do what Kafka's documentation of each says."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.logical_types import OPTIONAL_TIMESTAMP, TIMESTAMP, decimal_schema
from consumers.connect.data.records import SourceRecord
from consumers.connect.data.schemas import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    INT8,
    INT32,
    INT64,
    OPTIONAL_INT32,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    Type,
    array_of,
    map_of,
    struct_of,
)
from consumers.connect.data.structs import Struct
from tests.consumers.connect.transforms.records_for_transforms import applied, fields, make, record

PERSON = struct_of({"name": STRING, "age": INT32}, name="person")
ADA = Struct(PERSON, {"name": "ada", "age": 36})
NESTED = struct_of({"id": INT32, "who": PERSON})


def test_insert_field_adds_where_a_record_comes_from() -> None:
    transform = make(
        "InsertField$Value",
        topic_field="topic_field!",
        partition_field="partition_field",
        offset_field="offset_field?",
        timestamp_field="timestamp_field",
        static_field="static",
        static_value="x",
    )
    bare = applied(transform, record({"magic": 42}))
    assert bare.value == {
        "magic": 42,
        "topic_field": "topic",
        "partition_field": 3,
        "offset_field": 42,
        "timestamp_field": 1_700_000_000_123,
        "static": "x",
    }
    found = applied(transform, record(ADA, PERSON))
    schema = found.value_schema
    assert schema is not None
    assert schema.name == "person"
    assert schema.fields_by_name["topic_field"].schema == STRING
    assert schema.fields_by_name["partition_field"].schema == OPTIONAL_INT32
    assert schema.fields_by_name["offset_field"].schema == OPTIONAL_INT64
    assert schema.fields_by_name["timestamp_field"].schema == OPTIONAL_TIMESTAMP
    time_of = datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
    assert fields(found.value)["timestamp_field"] == time_of
    assert found.value.schema is schema


def test_insert_field_leaves_tombstones_and_refuses_what_has_no_fields() -> None:
    transform = make("InsertField$Key", offset_field="o")
    assert transform.apply(record(None)) == record(None)
    with pytest.raises(DataException, match="Only Map objects supported"):
        transform.apply(record(key=5))
    with pytest.raises(DataException, match="Only Struct objects supported"):
        transform.apply(record(key=5, key_schema=INT8))
    with pytest.raises(DataException, match="Only SinkRecord supported"):
        transform.apply(SourceRecord(topic="t", key={}))
    with pytest.raises(DataException, match="duplication name"):
        make("InsertField", topic_field="name").apply(record(ADA, PERSON))
    required = make("InsertField", timestamp_field="t!")
    with pytest.raises(DataException):
        required.apply(record(ADA, PERSON, timestamp=None))


@pytest.mark.parametrize("properties", [{}, {"static_field": "x"}])
def test_insert_field_needs_a_field(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigException):
        make("InsertField", **properties)


def test_replace_field_leaves_out_and_renames() -> None:
    transform = make("ReplaceField", exclude="dont", renames="abc:xyz,foo:bar")
    value = {"dont": "x", "abc": 42, "foo": True, "etc": "etc"}
    assert applied(transform, record(value)).value == {"xyz": 42, "bar": True, "etc": "etc"}
    only = make("ReplaceField", include="name", renames="name:who")
    found = applied(only, record(ADA, PERSON))
    assert fields(found.value) == {"who": "ada"}
    with pytest.raises(DataException):
        make("ReplaceField", renames="name:age").apply(record(ADA, PERSON))
    with pytest.raises(ConfigException, match="Invalid rename mapping: a:b:c"):
        make("ReplaceField", renames="a:b:c")


def test_mask_field_hides_values() -> None:
    value = {
        "text": "x",
        "int": 5,
        "float": 1.5,
        "flag": True,
        "list": [1],
        "map": {"a": 1},
        "decimal": Decimal("1.5"),
        "time": datetime(2024, 1, 1, tzinfo=UTC),
        "date": date(2024, 1, 1),
        "clock": time(1),
        "none": None,
    }
    masked = applied(make("MaskField", fields=",".join(value)), record(value)).value
    assert masked == {
        "text": "",
        "int": 0,
        "float": 0.0,
        "flag": False,
        "list": [],
        "map": {},
        "decimal": Decimal(0),
        "time": datetime(1970, 1, 1, tzinfo=UTC),
        "date": date(1970, 1, 1),
        "clock": time(0),
        "none": None,
    }
    found = applied(make("MaskField", fields="age", replacement="7"), record(ADA, PERSON))
    assert fields(found.value) == {"name": "ada", "age": 7}
    assert found.value_schema == PERSON
    money = struct_of({"m": decimal_schema(2)})
    hidden = applied(
        make("MaskField", fields="m"), record(Struct(money, {"m": Decimal("5.00")}), money)
    )
    assert str(fields(hidden.value)["m"]) == "0.00"


@pytest.mark.parametrize(
    ("value", "replacement", "masked"),
    [
        (1, "2e3", 2000),
        (1.0, "2.5", 2.5),
        ("x", "y", "y"),
        (Decimal(1), "2.5", Decimal("2.5")),
        (1, "1e999999999", 0),
    ],
)
def test_a_mask_has_the_kind_of_the_value(value: Any, replacement: str, masked: Any) -> None:
    transform = make("MaskField", fields="f", replacement=replacement)
    assert applied(transform, record({"f": value})).value == {"f": masked}


@pytest.mark.parametrize("value", [True, [1], datetime(2024, 1, 1, tzinfo=UTC), b"x", object()])
def test_other_values_cannot_be_masked_by_a_replacement(value: Any) -> None:
    with pytest.raises(DataException, match="with custom replacement"):
        make("MaskField", fields="f", replacement="1").apply(record({"f": value}))
    with pytest.raises(DataException, match="Unable to convert x to number"):
        make("MaskField", fields="f", replacement="x").apply(record({"f": 1}))
    with pytest.raises(DataException, match="Cannot mask value of type: bytes"):
        make("MaskField", fields="f").apply(record({"f": b"x"}))


def test_value_to_key_makes_a_key() -> None:
    transform = make("ValueToKey", fields="age,name")
    assert applied(transform, record({"age": 1, "x": 2})).key == {"age": 1, "name": None}
    found = applied(transform, record(ADA, PERSON))
    assert fields(found.key) == {"age": 36, "name": "ada"}
    assert found.key_schema == struct_of({"age": INT32, "name": STRING})
    with pytest.raises(DataException, match="Field does not exist: none"):
        make("ValueToKey", fields="none").apply(record(ADA, PERSON))
    with pytest.raises(ConfigException, match="Empty list"):
        make("ValueToKey", fields="")


def test_hoist_field_puts_a_field_around() -> None:
    transform = make("HoistField$Key", field="magic")
    assert applied(transform, record(key=42)).key == {"magic": 42}
    assert applied(transform, record(key=None)).key == {"magic": None}
    found = applied(transform, record(key=42, key_schema=INT32))
    assert found.key_schema == struct_of({"magic": INT32})
    assert fields(found.key) == {"magic": 42}
    with pytest.raises(DataException):
        transform.apply(record(key=None, key_schema=INT32))


def test_extract_field_takes_one_field() -> None:
    transform = make("ExtractField", field="id")
    assert applied(transform, record({"id": 42, "cost": 4})).value == 42
    assert applied(transform, record({})).value is None
    assert applied(transform, record(None)).value is None
    found = applied(make("ExtractField", field="age"), record(ADA, PERSON))
    assert (found.value, found.value_schema) == (36, INT32)
    with pytest.raises(DataException, match="Unknown field: id"):
        transform.apply(record(ADA, PERSON))
    with pytest.raises(DataException):
        transform.apply(record("x", STRING))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a.b", 1),
        ("`x.y`.c", 2),
        ("a.none", None),
        ("none.b", None),
        ("`a`.`b`", 1),
        ("t`t", 3),
        ("`q\\`.z`", 4),
    ],
)
def test_a_path_leads_to_a_field_within_a_field(path: str, value: Any) -> None:
    transform = make("ExtractField", field=path, field_syntax_version="V2")
    given = {"a": {"b": 1}, "x.y": {"c": 2}, "t`t": 3, "q`.z": 4}
    assert applied(transform, record(given)).value == value


def test_a_path_leads_into_structs() -> None:
    transform = make("ExtractField", field="who.age", field_syntax_version="v2")
    struct = Struct(NESTED, {"id": 1, "who": ADA})
    found = applied(transform, record(struct, NESTED))
    assert (found.value, found.value_schema) == (36, INT32)
    with pytest.raises(DataException):
        make("ExtractField", field="id.x", field_syntax_version="V2").apply(record(struct, NESTED))
    with pytest.raises(DataException):
        make("ExtractField", field="id.x", field_syntax_version="V2").apply(record({"id": 1}))
    with pytest.raises(ConfigException, match="Incomplete backtick pair"):
        make("ExtractField", field="`a.b", field_syntax_version="V2")


def test_flatten_gives_fields_names_of_their_own() -> None:
    value = {"content": {"id": 42, "name": {"first": "David", "middle": None}}, "l": [{"a": 1}]}
    assert applied(make("Flatten"), record(value)).value == {
        "content.id": 42,
        "content.name.first": "David",
        "content.name.middle": None,
        "l": [{"a": 1}],
    }
    found = applied(
        make("Flatten", delimiter="#"), record(Struct(NESTED, {"id": 1, "who": ADA}), NESTED)
    )
    assert fields(found.value) == {"id": 1, "who#name": "ada", "who#age": 36}


def test_flatten_keeps_what_may_be_missing() -> None:
    inner = struct_of({"a": INT8, "b": Schema(Type.INT8, default=7)})
    maybe = struct_of({"inner": inner.replace(optional=True)})
    found = applied(make("Flatten"), record(Struct(maybe, {}), maybe))
    assert fields(found.value) == {"inner.a": None, "inner.b": None}
    schema = found.value_schema
    assert schema is not None
    assert schema.fields_by_name["inner.a"].schema == Schema(Type.INT8, optional=True)
    default = Struct(inner, {"a": 1})
    always = struct_of({"inner": inner.replace(default=default)})
    found = applied(make("Flatten"), record(Struct(always, {}), always))
    assert found.value.get("inner.a") == 1
    assert found.value.get("inner.b") == 7


def test_flatten_refuses_maps_in_structs_and_what_it_does_not_know() -> None:
    schema = struct_of({"m": map_of(STRING, INT8)})
    with pytest.raises(DataException, match="does not support MAP"):
        make("Flatten").apply(record(Struct(schema, {"m": {}}), schema))
    with pytest.raises(DataException, match="does not support object"):
        make("Flatten").apply(record({"a": {"b": object()}}))
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(DataException, match="too deeply"):
        make("Flatten").apply(record(deep))


@pytest.mark.parametrize(
    ("type_", "value", "cast"),
    [
        ("int8", 300, 44),
        ("int8", "12", 12),
        ("int16", True, 1),
        ("int32", 1.9, 1),
        ("int64", 1e30, 2**63 - 1),
        ("float32", 0.1, 0.10000000149011612),
        ("float64", "1.5", 1.5),
        ("float64", 3, 3.0),
        ("boolean", 0.5, False),
        ("boolean", "TRUE", True),
        ("boolean", 2, True),
        ("string", 1.0, "1.0"),
        ("string", True, "true"),
        ("string", b"ab", "YWI="),
        ("int8", None, None),
    ],
)
def test_cast_gives_values_another_type(type_: str, value: Any, cast: Any) -> None:
    assert applied(make("Cast", spec=type_), record(value)).value == cast
    assert applied(make("Cast", spec=f"f:{type_}"), record({"f": value, "g": 1})).value == {
        "f": cast,
        "g": 1,
    }


def test_cast_changes_the_schema() -> None:
    schema = struct_of(
        {
            "i": INT32,
            "o": OPTIONAL_STRING,
            "d": Schema(Type.STRING, default="5"),
            "t": TIMESTAMP,
            "m": decimal_schema(1),
            "k": BYTES,
        }
    )
    value = Struct(
        schema,
        {
            "i": 1,
            "d": "6",
            "t": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
            "m": Decimal("2.5"),
            "k": b"x",
        },
    )
    found = applied(
        make("Cast", spec="i:string,o:int8,d:int16,t:int64,m:float64,k:string"),
        record(value, schema),
    )
    assert fields(found.value) == {
        "i": "1",
        "o": None,
        "d": 6,
        "t": 1000,
        "m": 2.5,
        "k": "eA==",
    }
    new = found.value_schema
    assert new is not None
    assert new.fields_by_name["d"].schema == Schema(Type.INT16, default=5)
    assert new.fields_by_name["o"].schema == Schema(Type.INT8, optional=True)
    assert new.fields_by_name["t"].schema == INT64
    whole = applied(make("Cast", spec="int64"), record(datetime(1970, 1, 1, tzinfo=UTC), TIMESTAMP))
    assert (whole.value, whole.value_schema) == (0, INT64)
    text = applied(make("Cast", spec="t:string"), record(value, schema))
    assert fields(text.value)["t"] == "1970-01-01T00:00:01.000Z"


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("int8", "300"),
        ("int8", "x"),
        ("int32", b"x"),
        ("float64", "1,5"),
        ("int8", [1]),
        ("string", {"a": 1}),
        ("int8", object()),
        ("int8", datetime(2024, 1, 1, tzinfo=UTC)),
    ],
)
def test_what_cannot_be_cast_is_refused(type_: str, value: Any) -> None:
    with pytest.raises(DataException):
        make("Cast", spec=type_).apply(record(value))


@pytest.mark.parametrize(
    "spec", ["", "bytes", "f:map", "f:none", "a:b:c", "int8,int16", "int8,f:int8"]
)
def test_a_cast_that_is_none_is_refused(spec: str) -> None:
    with pytest.raises(ConfigException):
        make("Cast", spec=spec)


def test_set_schema_metadata_renames_the_schema() -> None:
    transform = make("SetSchemaMetadata", schema_name="order", schema_version="2")
    found = applied(transform, record(ADA, PERSON))
    assert found.value_schema == PERSON.replace(name="order", version=2)
    assert found.value.schema is found.value_schema
    assert fields(found.value) == fields(ADA)
    assert applied(transform, record(1, INT8)).value_schema == INT8.replace(name="order", version=2)
    assert transform.apply(record(None)) == record(None)
    with pytest.raises(DataException, match="Schema required"):
        transform.apply(record(1))
    with pytest.raises(ConfigException, match="Neither schema name nor version configured"):
        make("SetSchemaMetadata")
    listed = array_of(BOOLEAN)
    found = applied(transform, record([True], listed))
    assert found.value_schema == listed.replace(name="order", version=2)


def test_null_gets_its_default_unless_told_otherwise() -> None:
    schema = struct_of({"a": Schema(Type.STRING, optional=True, default="x"), "b": FLOAT64})
    given = record(Struct(schema, {"b": 1.0}), schema)
    for name, properties in (
        ("InsertField", {"topic_field": "t"}),
        ("ReplaceField", {"exclude": "b"}),
        ("MaskField", {"fields": "b"}),
        ("Cast", {"spec": "b:string"}),
        ("SetSchemaMetadata", {"schema_name": "n"}),
    ):
        with_default = applied(make(name, **properties), given).value
        without = applied(make(name, replace_null_with_default="false", **properties), given).value
        assert fields(with_default)["a"] == "x"
        assert fields(without)["a"] is None


def test_a_path_may_lead_nowhere() -> None:
    deep = struct_of({"a": struct_of({"b": INT8}).replace(optional=True)})
    empty = record(Struct(deep, {}), deep)
    assert (
        applied(make("ExtractField", field="a.b", field_syntax_version="V2"), empty).value is None
    )
    for path in ("a.none", "none.b"):
        with pytest.raises(DataException, match="Unknown field"):
            make("ExtractField", field=path, field_syntax_version="V2").apply(empty)
    kept = {"a`b.c": 1}
    path = "`a`b.c`"
    found = make("ExtractField", field=path, field_syntax_version="V2").apply(record(kept))
    assert found is not None
    assert found.value == 1


def test_tombstones_pass() -> None:
    for name, properties in (
        ("Flatten", {}),
        ("ReplaceField", {"exclude": "a"}),
        ("Cast", {"spec": "int8"}),
    ):
        assert make(name, **properties).apply(record(None, PERSON)) == record(None, PERSON)


def test_defaults_of_whole_structs_change_with_them() -> None:
    with_default = PERSON.replace(default=ADA)
    cast = applied(make("Cast", spec="age:string"), record(ADA, with_default))
    renamed = applied(make("SetSchemaMetadata", schema_name="n"), record(ADA, with_default))
    assert cast.value_schema is not None
    assert renamed.value_schema is not None
    # The value's own schema says which it is: ADA is of one without default.
    assert fields(cast.value)["age"] == "36"
    assert renamed.value_schema.default.get("name") == "ada"
    own = Struct(with_default, {"name": "bob", "age": 1})
    found = applied(make("Cast", spec="age:string"), record(own, with_default))
    assert found.value_schema is not None
    assert found.value_schema.default.get("age") == "36"


def test_a_replacement_for_a_decimal_must_have_its_scale() -> None:
    money = struct_of({"m": decimal_schema(2)})
    given = record(Struct(money, {"m": Decimal("5.00")}), money)
    found = applied(make("MaskField", fields="m", replacement="1.50"), given)
    assert fields(found.value)["m"] == Decimal("1.50")
    with pytest.raises(DataException, match="scale 2"):
        make("MaskField", fields="m", replacement="1.5").apply(given)
