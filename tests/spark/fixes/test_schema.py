"""Conversion of log records to rows."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark.fixes.schema import LogRecord, StoredFix, date_text, decode_records, id_hashes
from waylog.history.row_layout import FIX_FIELDS, HISTORY_SCHEMA
from waylog.messages import Fix, decode_fix, encode

FULL = Fix(
    id="0123456789abcdef01234567",
    device="demo/phone",
    user="demo",
    lat=-47.5,
    lon=179.9999999,
    time=1_767_225_600_000,
    received=1_767_225_600_250,
    accuracy=8.5,
    altitude=-3.0,
    vertical_accuracy=2.0,
    speed=1.5,
    course=359.5,
    battery=80.0,
    charging=True,
    trigger="u",
    source="owntracks",
    attributes={"wifi": "Café ☕", "nested": {"a": [1, None]}},
)


def test_the_columns_are_the_members_of_a_fix() -> None:
    names = [field.name for field in FIX_FIELDS]
    assert names == list(Fix.__struct_fields__) == list(StoredFix.__struct_fields__)
    required = {field.name for field in msgspec.structs.fields(Fix) if field.required}
    assert required == {field.name for field in FIX_FIELDS if not field.nullable}


def test_a_row_holds_every_member_of_its_fix() -> None:
    rows, unreadable = decode_records(3, [LogRecord(77, b"demo/phone", encode(FULL))])
    assert not unreadable
    row = rows.to_pylist()[0]
    assert (row.pop("kafka_partition"), row.pop("kafka_offset")) == (3, 77)
    attributes = json.loads(row.pop("attributes"))
    assert Fix(**row, attributes=attributes) == FULL


@pytest.mark.parametrize(
    ("member", "value", "stored"),
    [
        ("attributes", None, None),
        ("attributes", {}, "{}"),
        ("accuracy", None, None),
        ("battery", 7, 7.0),
        ("a_member_of_the_future", [1, 2], None),
    ],
)
def test_members_may_be_absent_null_or_unknown(member: str, value: Any, stored: Any) -> None:
    record = json.loads(encode(FULL)) | {member: value}
    rows, unreadable = decode_records(0, [LogRecord(0, None, json.dumps(record).encode())])
    assert not unreadable
    if member in HISTORY_SCHEMA.names:
        assert rows[member].to_pylist() == [stored]


@pytest.mark.parametrize(
    "change",
    [
        {"lat": 91},
        {"lon": -180.1},
        {"lat": "52.5"},
        {"time": 10**18},
        {"time": -(10**15)},
        {"time": 1.5},
        {"received": 2**70},
        {"id": None},
        {"device": 3},
    ],
)
def test_what_no_row_can_hold_is_unreadable(change: dict[str, Any]) -> None:
    record = json.dumps(json.loads(encode(FULL)) | change).encode()
    good = encode(FULL)
    rows, unreadable = decode_records(
        0, [LogRecord(5, None, good), LogRecord(6, b"key", record), LogRecord(7, None, good)]
    )
    assert rows["kafka_offset"].to_pylist() == [5, 7]
    assert [(each.offset, each.key, each.value) for each in unreadable] == [(6, b"key", record)]
    assert unreadable[0].reason.startswith("not a fix: ")


@settings(max_examples=400)
@given(
    st.lists(
        st.one_of(
            st.none(),
            st.binary(max_size=60),
            st.just(encode(FULL)),
            st.integers(0, 400).map(lambda cut: encode(FULL)[:cut]),
            st.tuples(st.integers(0, 300), st.integers(0, 255)).map(
                lambda flip: bytes(
                    flip[1] if place == flip[0] else each for place, each in enumerate(encode(FULL))
                )
            ),
        ),
        max_size=12,
    )
)
def test_whatever_is_in_the_log_becomes_a_row_or_is_reported(values: list[bytes | None]) -> None:
    records = [LogRecord(offset, None, value) for offset, value in enumerate(values)]
    rows, unreadable = decode_records(0, records)
    rows.validate(full=True)
    offsets = rows["kafka_offset"].to_pylist() + [each.offset for each in unreadable]
    assert sorted(offsets) == list(range(len(values)))
    for row in rows.to_pylist():
        value = values[row["kafka_offset"]]
        assert value is not None
        if row["attributes"] is None or row["attributes"].startswith("{"):
            try:
                fix = decode_fix(value)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue  # inside attributes, which the history does not parse
            assert fix.id == row["id"]


def test_a_deeply_nested_record_is_unreadable_and_stops_nothing() -> None:
    deep = encode(FULL)[:-1] + b',"x":' + b"[" * 100_000 + b"}"
    rows, unreadable = decode_records(0, [LogRecord(0, None, deep)])
    assert rows.num_rows == 0
    assert len(unreadable) == 1


@given(st.lists(st.one_of(st.text("0123456789abcdef", min_size=24, max_size=24), st.text())))
def test_an_id_has_one_hash_whatever_stands_beside_it(ids: list[str]) -> None:
    together = id_hashes(pa.array(ids, pa.string()))
    alone = [int(id_hashes(pa.array([each], pa.string()))[0]) for each in ids]
    assert together.tolist() == alone
    sliced = id_hashes(pa.array(["x", *ids, "y"], pa.string()).slice(1, len(ids)))
    assert sliced.tolist() == alone


def test_ids_that_differ_have_different_hashes() -> None:
    ids = [f"{number:024x}" for number in range(20_000)]
    ids += [f"{number:x}".ljust(24, "0") for number in range(1, 20_000) if number % 16]
    assert len(np.unique(id_hashes(pa.array(ids)))) == len(set(ids))


@pytest.mark.parametrize(
    ("day", "text"),
    [(0, "1970-01-01"), (-1, "1969-12-31"), (20_454, "2026-01-01"), (-719_162, "0001-01-01")],
)
def test_a_day_is_written_as_its_date(day: int, text: str) -> None:
    assert date_text(day) == text
