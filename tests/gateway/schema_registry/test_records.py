"""Records of `_schemas`, byte by byte those of Confluent's registry."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.schema_registry.records import (
    DeletedSubject,
    ModeRecord,
    Reference,
    SchemaRecord,
    SchemaValue,
    config_record,
    deleted_subject_record,
    mode_record,
    no_operation_record,
    no_schema_record,
    read_record,
    schema_record,
)
from waylog.malformed import MALFORMED

VALUE = SchemaValue(subject="s", version=2, id=7, schema='"string"')


def test_records_are_confluents() -> None:
    assert schema_record(VALUE) == (
        b'{"keytype":"SCHEMA","subject":"s","version":2,"magic":1}',
        b'{"subject":"s","version":2,"id":7,"schema":"\\"string\\"","deleted":false}',
    )
    assert config_record(None, "FULL") == (
        b'{"keytype":"CONFIG","subject":null,"magic":0}',
        b'{"subject":null,"compatibilityLevel":"FULL"}',
    )
    assert mode_record("s", None) == (b'{"keytype":"MODE","subject":"s","magic":0}', None)
    assert deleted_subject_record("s", 2) == (
        b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}',
        b'{"subject":"s","version":2}',
    )
    assert no_operation_record() == (b'{"keytype":"NOOP","magic":0}', None)


@pytest.mark.parametrize(
    "value",
    [
        VALUE,
        SchemaValue(*("s", 3, 8, "{}", "JSON"), references=(Reference("x", "t", 1),), deleted=True),
    ],
)
def test_a_version_comes_back(value: SchemaValue) -> None:
    assert read_record(*schema_record(value)) == SchemaRecord("s", value.version, value)
    assert read_record(*no_schema_record("s", 2)) == SchemaRecord("s", 2, None)


def test_records_of_other_registries_are_read() -> None:
    """Confluent's have more members, Karapace's keys another order."""
    value = (
        b'{"subject":"s","version":2,"id":7,"md5":"x","guid":"y","ruleSet":null,'
        b'"schema":"\\"string\\"","deleted":false,"ts":1700000000000,"offset":4}'
    )
    key = b'{"keytype":"SCHEMA","subject":"s","version":2,"magic":1}'
    assert read_record(key, value) == SchemaRecord("s", 2, VALUE)
    key = b'{"subject":"s","magic":0,"keytype":"MODE"}'
    assert read_record(key, b'{"mode":"READONLY"}') == ModeRecord("s", "READONLY")
    assert read_record(key, b"null") == ModeRecord("s", None)
    clear = b'{"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}'
    assert read_record(clear, b'{"subject":"s","version":3}') == DeletedSubject("s", 3)
    for kind in (b"NOOP", b"CONTEXT", b"SOMETHING_NEW"):
        assert read_record(b'{"keytype":"' + kind + b'","magic":0}', b"null") is None
    assert read_record(None, b"x") is None


@given(
    st.binary(max_size=60) | st.just(b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'),
    st.none() | st.binary(max_size=60),
)
def test_any_record_is_read_or_malformed(key: bytes, value: bytes | None) -> None:
    with contextlib.suppress(*MALFORMED):
        read_record(key, value)
