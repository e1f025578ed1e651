"""Of a batch with rows that the database refuses all others are stored, on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consumers.connect.data.exceptions import ConnectException, RetriableException
from tests.consumers.connect.postgresql.postgres_server import PostgresServer
from tests.consumers.connect.postgresql.sink import BY_ID, BY_KEY, MakeSink, Sink
from tests.consumers.connect.sink_harness import record

#: How a record may be refused: by COPY, by the client's library, by the table, by a trigger.
BAD: dict[str, dict[str, Any]] = {
    'invalid input syntax for type integer: "x" (column a) [22P02]': {"a": "x"},
    "PostgreSQL text fields cannot contain NUL (0x00) bytes": {"b": "\0"},
    'null value in column "b" of relation "t" violates not-null constraint (column b) [23502]': {
        "b": None
    },
    "no nines [U0009]": {"a": 9},
}


def table_with_trigger(sink: Sink) -> None:
    sink.postgres.query("CREATE TABLE t (id int PRIMARY KEY, a int, b text NOT NULL)")
    sink.postgres.query(
        "CREATE OR REPLACE FUNCTION no_nines() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.a = 9 THEN RAISE 'no nines' USING ERRCODE = 'U0009'; END IF; RETURN NEW; END $$"
    )
    sink.postgres.query(
        "CREATE TRIGGER nines BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION no_nines()"
    )


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    count=st.integers(1, 60),
    bad=st.dictionaries(st.integers(0, 59), st.sampled_from(sorted(BAD)), max_size=40),
)
def test_all_but_the_refused_rows_are_stored(
    make_sink: MakeSink, count: int, bad: dict[int, str]
) -> None:
    sink = make_sink(**BY_ID, batch_size="25")
    sink.postgres.query("DROP TABLE IF EXISTS t")
    table_with_trigger(sink)
    bad = {number: reason for number, reason in bad.items() if number < count}
    good: dict[str, Any] = {"a": 1, "b": "b"}
    # The last record is the first row of the key's order.
    records = [
        record({"id": count - number, **good, **(BAD[bad[number]] if number in bad else {})})
        for number in range(count)
    ]
    sink.task.put(records)
    stored = [(count - number, 1, "b") for number in reversed(range(count)) if number not in bad]
    assert sink.rows("id, a, b") == stored
    assert sink.reporter is not None
    reported = [(records.index(each), str(error)) for each, error in sink.reporter.reported]
    assert sorted(reported) == sorted(bad.items())


#: Types of columns, and values that are written into them.
TYPES: Mapping[str, Any] = {
    "boolean": True,
    "smallint": 7,
    "bigint": -(2**60),
    "numeric(6,2)": 12.345,
    "real": 1.1,
    "double precision": float("inf"),
    "text": 'a"\\b\n{,}\t',
    "varchar(4)": "abcd",
    "char(4)": "ab",
    "bytea": "\\x00ff",
    "date": "2026-01-31",
    "timestamptz": 1_761_994_805_123,
    "interval": "1 day",
    "uuid": "0e37df36-f698-11e6-8dd4-cb9ced3df976",
    "jsonb": {"a": [1, None, "\\"]},
    "json": [1],
    "integer[]": "{1,NULL,3}",
    "text[]": '{"a,b",c}',
    "point": "(1,2)",
    "inet": "::1",
    "mood": "fine",
    "short": "xyz",
    "pair": "(1,b)",
}


def test_rows_beside_a_refused_one_are_stored_as_they_would_be_without_it(
    make_sink: MakeSink,
) -> None:
    sink = make_sink(pk_mode="record_value", pk_fields="id")
    sink.postgres.query("CREATE TYPE mood AS ENUM ('fine')")
    sink.postgres.query("CREATE DOMAIN short AS text CHECK (length(VALUE) < 4)")
    sink.postgres.query("CREATE TYPE pair AS (a int, b text)")
    columns = ", ".join(f"c{number} {type_}" for number, type_ in enumerate(TYPES))
    value = {f"c{number}": each for number, each in enumerate(TYPES.values())}
    for table in ("t", "u"):
        sink.postgres.query(f"CREATE TABLE {table} (id int PRIMARY KEY, {columns})")
    sink.put({"id": 1, **value}, {"id": 2}, topic="u")
    assert sink.reasons == []
    sink.put({"id": 1, **value}, {"id": "x"}, {"id": 2}, topic="t")
    assert len(sink.reasons) == 1
    assert sink.rows("t::text") == sink.rows("u::text", "u")
    assert sink.postgres.count("t") == 2


@pytest.mark.parametrize(
    ("type_", "value", "reason"),
    [
        ("varchar(3)", "abcd", "value too long for type character varying(3) (column v) [22001]"),
        ("char(3)", "abcd", "value too long for type character(3) (column v) [22001]"),
        ("numeric(3)", 12345, "numeric field overflow (column v) [22003]"),
        ("short", "abcd", 'value for domain short violates check constraint "short_check"'),
        ("date", "2026-02-30", "date/time field value out of range"),
        ("jsonb", "{", None),  # any text is a JSON string
    ],
)
def test_no_value_is_changed_so_that_it_fits(
    make_sink: MakeSink, type_: str, value: Any, reason: str | None
) -> None:
    sink = make_sink(**BY_ID)
    sink.postgres.query("CREATE DOMAIN short AS text CHECK (length(VALUE) < 4)")
    sink.postgres.query(f"CREATE TABLE t (id int PRIMARY KEY, v {type_})")
    sink.put({"id": 1}, {"id": 2, "v": value}, {"id": "x"})
    assert len(sink.reasons) == (1 if reason is None else 2)
    assert sink.postgres.count("t") == (2 if reason is None else 1)
    if reason is not None:
        assert sink.reasons[0].startswith(reason)


def test_a_place_beside_a_refused_row_is_a_point(make_sink: MakeSink) -> None:
    make_sink().postgres.add_postgis()
    good, bad = {"id": "a", "lat": 47.5, "lon": 9.5, "n": 1}, {"id": "b", "n": "x"}
    for srid, table in (("4326", "t"), ("3857", "m")):
        sink = make_sink(**BY_ID, geometry_field="place", geometry_srid=srid)
        sink.put({"id": "0", "lat": 1.5, "lon": 1.5, "n": 1}, topic=table)
        sink.put(good, bad, topic=table)
        assert len(sink.reasons) == 1
        place = "ST_AsText(ST_Transform(place::geometry, 4326), 6)"
        rows = sink.rows(f"id, {place}", table)
        assert rows == [("0", "POINT(1.5 1.5)"), ("a", "POINT(9.5 47.5)")]


def test_names_of_columns_mean_nothing_to_the_block(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_ID, auto_evolve="true")
    names = ["entry", "staged", "number", "number_", "fields", "failed_column", "s", "ITEM's $$"]
    value = dict.fromkeys(names, 1)
    sink.put({"id": 0} | value)
    sink.put({"id": 1} | value, {"id": 2} | value | {"staged": "x"}, {"id": 3} | value)
    sink.put({"id": 4} | value | {"number": "x"})
    assert sink.rows("id, entry, staged, number, number_, fields") == [
        (number, 1, 1, 1, 1, 1) for number in (0, 1, 3)
    ]
    assert ["(column staged)" in sink.reasons[0], "(column number)" in sink.reasons[1]] == [
        True,
        True,
    ]


def test_a_key_that_cannot_be_is_not_deleted_but_reported(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_KEY, delete_enabled="true")
    sink.postgres.query("CREATE TABLE t (device int PRIMARY KEY, v int)")
    sink.task.put([record({"v": 1}, key=str(number)) for number in range(4)])
    keys = ["1", "x", "2"]
    sink.task.put([record(None, key=key) for key in keys])
    assert sink.rows("device") == [(0,), (3,)]
    assert len(sink.reasons) == 1
    assert '"x" (column device)' in sink.reasons[0]


def test_a_constraint_that_is_checked_late_is_about_its_row(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_ID)
    sink.postgres.query(
        "CREATE TABLE t (id int PRIMARY KEY, parent int REFERENCES t DEFERRABLE INITIALLY DEFERRED)"
    )
    sink.put({"id": 1, "parent": 2}, {"id": 2, "parent": None})
    sink.put({"id": 3, "parent": 4}, {"id": 5, "parent": 1})
    assert sink.rows("id") == [(1,), (2,), (5,)]
    assert len(sink.reasons) == 1
    assert "[23503]" in sink.reasons[0]


def test_what_is_about_no_row_refuses_none(make_sink: MakeSink, postgres: PostgresServer) -> None:
    sink = make_sink(**BY_ID, connection_url=postgres.url + "?options=-c%20lock_timeout%3D50ms")
    sink.put({"id": 1, "a": 1}, {"id": 2, "a": 1})
    with sink.postgres.connect() as other, other.transaction():
        other.execute("UPDATE t SET a = 5 WHERE id = 2")
        with pytest.raises(RetriableException, match="lock timeout"):
            sink.put({"id": 1, "a": 2}, {"id": 2, "a": 2}, {"id": 3, "a": "x"})
    assert sink.rows("id, a") == [(1, 1), (2, 5)]
    assert sink.reasons == []
    sink.put({"id": 1, "a": 2}, {"id": 2, "a": 2}, {"id": 3, "a": "x"})
    assert sink.rows("id, a") == [(1, 2), (2, 2)]


def test_a_bad_row_does_not_hide_that_nobody_may_write(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_ID)
    sink.postgres.query("CREATE TABLE t (id int PRIMARY KEY, a int)")
    sink.close_table()
    with pytest.raises(ConnectException, match="closed"):
        sink.put({"id": "x", "a": 1}, {"id": 1, "a": 1})
    assert sink.reasons == []


def test_a_database_without_the_language_of_the_block_is_told(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_ID)
    sink.put({"id": 1, "a": 1})
    sink.postgres.query("DROP EXTENSION plpgsql CASCADE")
    try:
        with pytest.raises(ConnectException, match='language "plpgsql" does not exist'):
            sink.put({"id": 2, "a": "x"}, {"id": 3, "a": 3})
    finally:
        sink.postgres.query("CREATE EXTENSION plpgsql")
    assert sink.rows("id") == [(1,)]
    assert sink.reasons == []
