"""Rows, tables and names that the database refuses, with the reason of each."""

from __future__ import annotations

from typing import Any

import pytest

from consumers.connect.data.exceptions import ConnectException
from tests.consumers.connect.postgresql.postgres_server import PASSWORD
from tests.consumers.connect.postgresql.sink import BY_ID, BY_KEY, MakeSink
from tests.consumers.running import await_condition


def test_a_field_without_a_column_is_refused_unless_it_is_null(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_ID)
    sink.postgres.query("CREATE TABLE t (id text PRIMARY KEY, a int)")
    sink.put({"id": "1", "a": 1, "b": None}, {"id": "2", "a": 2, "b": 5}, {"id": "3"})
    assert sink.rows("id, a") == [("1", 1), ("3", None)]
    assert len(sink.reasons) == 1
    assert "no column of the table takes b: set auto.evolve" in sink.reasons[0]


def test_a_column_that_its_owner_adds_takes_what_was_refused(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_ID)
    sink.postgres.query("CREATE TABLE t (id text PRIMARY KEY)")
    sink.put({"id": "1", "a": 1})
    assert "no column of the table takes a" in sink.reasons[0]
    sink.postgres.query("ALTER TABLE t ADD COLUMN a int")

    def is_taken() -> bool:
        sink.put({"id": "2", "a": 2})
        return sink.rows("id, a") == [("2", 2)]

    await_condition(is_taken, 60, "the new column")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        pytest.param({"ctid": 5}, "takes ctid: none can have that name", id="a system column"),
        pytest.param({f"m{n}": n for n in range(1800)}, "54011", id="too many columns"),
    ],
)
@pytest.mark.parametrize("exists", [True, False])
def test_a_record_whose_columns_cannot_be_is_refused_alone(
    make_sink: MakeSink, bad: dict[str, Any], reason: str, exists: bool
) -> None:
    sink = make_sink(**BY_ID, auto_evolve="true")
    if exists:
        sink.put({"id": "0", "a": 1})
    sink.put({"id": "1", "a": 1}, {"id": "2", "good": 5}, {"id": "3", **bad}, {"id": "4", "b": "x"})
    sink.put({"id": "5", **bad})
    sink.put({"id": "6", "a": 6})
    assert sink.rows("id, a, good, b")[-4:] == [
        ("1", 1, None, None),
        ("2", None, 5, None),
        ("4", None, None, "x"),
        ("6", 6, None, None),
    ]
    assert len(sink.reasons) == 2
    assert all(reason in each for each in sink.reasons), sink.reasons


def test_each_refused_record_of_a_batch_has_its_own_reason(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_ID, auto_evolve="true")
    sink.put({"id": "0", "a": 1})
    many = {f"d{n}": n for n in range(1800)}
    impossible = ["ctid", "", "nul\0", "n" * 64]
    sink.put(
        *({"id": name, name: 1} for name in impossible),
        {"id": "many", **many},
        {"id": "both", "d0": 1, "xmin": 2},
        {"id": "good", "b": 1},
    )
    assert sink.reporter is not None
    reasons = {each.value["id"]: str(error) for each, error in sink.reporter.reported}
    assert set(reasons) == {*impossible, "many", "both"}
    for name in impossible:
        assert f"takes {name}: none can have that name" in reasons[name]
        assert "54011" not in reasons[name]
    assert "54011" in reasons["many"] and "rename" not in reasons["many"]
    assert "xmin: none can have that name" in reasons["both"]
    assert sink.rows("id, b") == [("0", None), ("good", 1)]


def test_a_name_that_no_column_can_have_is_not_to_be_evolved(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_ID)
    sink.postgres.query("CREATE TABLE t (id text PRIMARY KEY)")
    sink.put({"id": "1", "ctid": 1}, {"id": "2", "b": 1})
    assert "takes ctid: none can have that name" in sink.reasons[0]
    assert "takes b: set auto.evolve" in sink.reasons[1]


@pytest.mark.parametrize(
    ("properties", "rights"),
    [
        pytest.param({"insert_mode": "insert"}, "INSERT", id="insert"),
        pytest.param(
            {"insert_mode": "insert", "pk_mode": "record_value", "pk_fields": "device"},
            "SELECT, INSERT",
            id="insert-by-key",
        ),
        pytest.param(
            {"insert_mode": "upsert", "pk_mode": "record_value", "pk_fields": "device"},
            "SELECT, INSERT, UPDATE",
            id="upsert",
        ),
        pytest.param(
            {**BY_KEY, "delete_enabled": "true"}, "SELECT, INSERT, UPDATE, DELETE", id="delete"
        ),
    ],
)
def test_the_rights_that_a_role_needs_are_told_and_enough(
    make_sink: MakeSink, properties: dict[str, str], rights: str
) -> None:
    postgres = make_sink().postgres
    postgres.query("CREATE TABLE t (device text PRIMARY KEY, a int, time bigint)")
    postgres.query("DROP ROLE IF EXISTS writer")
    postgres.query(f"CREATE ROLE writer LOGIN PASSWORD '{PASSWORD}'")
    try:
        postgres.query("GRANT USAGE ON SCHEMA public TO writer")
        postgres.query(f"GRANT {'INSERT' if ', ' in rights else 'SELECT'} ON t TO writer")
        more = {"connection_user": "writer", "auto_create": "false", **properties}
        url = postgres.url.replace("waylog@", "")
        with pytest.raises(ConnectException, match=f"the role needs {rights} on the table"):
            make_sink(connection_url=url, **more).put({"device": "d", "a": 1}, key={"device": "d"})
        postgres.query(f"GRANT {rights} ON t TO writer")
        sink = make_sink(connection_url=url, **more)
        sink.put({"device": "d", "a": 1}, key={"device": "d"})
        assert sink.rows("device, a") == [("d", 1)]
        if "DELETE" in rights:
            sink.put(None, key={"device": "d"})
            assert sink.rows("device, a") == []
            sink.task.erase({"d": 1})
        else:
            with pytest.raises(ConnectException, match=r"erasing: .*needs SELECT and DELETE"):
                sink.task.erase({"d": 1})
    finally:
        postgres.query("DROP OWNED BY writer")
        postgres.query("DROP ROLE writer")


def test_a_record_of_which_there_can_be_no_table_is_refused(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_ID)
    sink.put({"id": "3", **{f"m{n}": n for n in range(1800)}})
    assert "cannot be created" in sink.reasons[0]
    sink.put({"id": "1", "a": 1})
    assert sink.rows("id, a") == [("1", 1)]


def test_a_row_that_a_policy_or_a_trigger_refuses_is_reported(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_ID)
    sink.postgres.query("CREATE TABLE t (id int PRIMARY KEY, a int)")
    sink.postgres.query(
        "CREATE FUNCTION no_nines() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.a = 9 THEN RAISE 'no nines' USING ERRCODE = '42501'; END IF; RETURN NEW; END $$"
    )
    sink.postgres.query(
        "CREATE TRIGGER nines BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION no_nines()"
    )
    sink.put({"id": 1, "a": 1}, {"id": 2, "a": 9}, {"id": 3, "a": 3})
    assert sink.rows("id, a") == [(1, 1), (3, 3)]
    assert sink.reasons == ["no nines [42501]"]


def test_a_table_that_nobody_may_write_fails_the_task(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_ID)
    sink.postgres.query("CREATE TABLE t (id int PRIMARY KEY, a int)")
    sink.close_table()
    with pytest.raises(ConnectException, match="closed"):
        sink.put({"id": 1, "a": 1})
    assert sink.reasons == []


def test_a_value_for_a_column_that_the_database_generates_is_refused(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_ID)
    sink.postgres.query(
        "CREATE TABLE t (id int PRIMARY KEY, n int GENERATED ALWAYS AS IDENTITY (START 10))"
    )
    sink.put({"id": 1}, {"id": 2, "n": 3}, {"id": 3, "n": None})
    assert sink.rows("id, n") == [(1, 10), (3, 11)]
    assert "takes n: the database generates its values" in sink.reasons[0]


def test_a_record_without_fields_is_refused(make_sink: MakeSink) -> None:
    sink = make_sink(auto_evolve="true")
    sink.put({})
    sink.put({"a": None})
    sink.put({"a": 1}, {})
    assert sink.rows("a") == [(None,), (1,)] or sink.rows("a") == [(1,), (None,)]
    assert sink.reasons == ["the record has no field that is a column"] * 2
