"""The task on a real PostgreSQL, without a worker."""

from __future__ import annotations

import gc
import json
import logging
import traceback
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, time
from decimal import Decimal
from threading import Barrier
from typing import Any

import psycopg
import pytest

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.data.exceptions import ConnectException, RetriableException
from consumers.connect.data.logical_types import DATE, TIME, TIMESTAMP, decimal_schema
from consumers.connect.data.schemas import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    INT8,
    INT32,
    INT64,
    OPTIONAL_FLOAT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    array_of,
    map_of,
    struct_of,
)
from consumers.connect.data.structs import Struct
from consumers.connect.postgresql.table_writer import TableWriter
from tests.consumers.connect.postgresql.postgres_server import PostgresServer
from tests.consumers.connect.postgresql.sink import BY_ID, BY_KEY, MakeSink, Sink
from tests.consumers.connect.sink_harness import fix, record
from tests.ports import reserved_ports


def test_a_fix_has_all_columns_of_a_fix_though_it_knows_few(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_ID)
    sink.put(fix(1, accuracy=14))
    sink.put(fix(2, accuracy=14.5, battery=72, attributes={"a": [1, None]}, charging=True))
    assert sink.rows("id, accuracy, battery, charging, attributes") == [
        (fix(1)["id"], 14.0, None, None, None),
        (fix(2)["id"], 14.5, 72.0, True, {"a": [1, None]}),
    ]
    types = sink.types()
    assert types["accuracy"] == types["lat"] == "double precision"
    assert types["time"] == "bigint"
    assert types["attributes"] == "jsonb"
    assert types["speed"] == "double precision"


def test_a_fix_may_be_text(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_ID)
    sink.put(json.dumps(fix(1, accuracy=14)), json.dumps(fix(2)).encode(), fix(3))
    assert sink.rows("id, accuracy") == [
        (fix(1)["id"], 14.0),
        (fix(2)["id"], None),
        (fix(3)["id"], None),
    ]


def test_an_address_is_one_row_for_each_device(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_KEY, delete_enabled="true")

    def address(name: str, **more: Any) -> dict[str, Any]:
        return {
            **{"device": "anna/phone", "fix_id": name, "time": 5, "lat": 1, "lon": 2.5},
            **{"display_name": name, "address": {"road": name}, **more},
        }

    sink.put(address("a", distance=3.5), address("b"), key="anna/phone")
    sink.put(address("c"), key="bert/bike")
    assert sink.rows("device, display_name, address, distance") == [
        ("anna/phone", "b", {"road": "b"}, None),
        ("bert/bike", "c", {"road": "c"}, None),
    ]


def test_the_tombstone_of_an_erased_device_deletes_its_row(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_KEY, delete_enabled="true")
    sink.put(None, key="ghost")  # there is no table yet
    sink.put({"device": "a", "x": 1}, key="a")
    sink.put({"device": "b", "x": 1}, key="b")
    sink.put({"device": "a", "x": 2}, None, key="a")
    assert sink.rows("device, x") == [("b", 1)]
    sink.task.put([record(None, key="b"), record({"device": "b", "x": 3}, key="b")])
    assert sink.rows("device, x") == [("b", 3)]
    assert sink.reasons == []


def test_a_tombstone_without_deletes_is_reported(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_KEY)
    sink.put(None, {"device": "a"}, key="a")
    assert sink.reasons == ["the record has no value, and delete.enabled is false"]
    assert sink.rows("device") == [("a",)]


def test_what_comes_again_changes_nothing(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_ID)
    records = [record(fix(number % 50)) for number in range(200)]
    sink.task.put(records)
    sink.task.put(records[30:])
    assert sink.postgres.count("t") == 50


def test_insert_leaves_the_first_row(make_sink: MakeSink) -> None:
    sink = make_sink(pk_mode="record_value", pk_fields="id")
    sink.put(fix(1, battery=1), fix(1, battery=2))
    sink.put(fix(1, battery=3))
    assert sink.rows("battery") == [(1.0,)]


def test_a_place_in_the_log_may_be_the_key(make_sink: MakeSink) -> None:
    sink = make_sink(pk_mode="kafka", insert_mode="upsert")
    records = [record({"x": 1}), record({"x": 1})]
    sink.task.put(records)
    sink.task.put(records)
    assert sink.rows("x, __connect_topic, __connect_partition") == [(1, "t", 0), (1, "t", 0)]
    assert sink.types()["__connect_offset"] == "bigint"


def test_without_a_key_each_record_is_a_row(make_sink: MakeSink) -> None:
    sink = make_sink()
    sink.put({"x": 1}, {"x": 1})
    assert sink.rows("x") == [(1,), (1,)]


ALL = struct_of(
    {
        **{"id": INT64, "small": INT8, "four": INT32, "real": FLOAT64, "yes": BOOLEAN},
        **{"text": STRING, "raw": BYTES, "money": decimal_schema(2), "day": DATE, "clock": TIME},
        **{"moment": TIMESTAMP, "list": array_of(INT32), "map": map_of(STRING, INT32)},
        **{"inner": struct_of({"a": STRING, "at": TIMESTAMP}), "maybe": OPTIONAL_STRING},
        "filled": Schema(STRING.type, default="default"),
    }
)


def test_structs_have_columns_of_their_schema(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_ID)
    moment = datetime(2025, 11, 1, 11, 0, 5, 120_000, UTC)
    inner = Struct(ALL.fields_by_name["inner"].schema, {"a": "ä", "at": moment})
    value = Struct(
        ALL,
        {
            **{"id": 1, "small": -128, "four": 2**31 - 1, "real": 1e300, "yes": False},
            **{"text": "a\tb\\n\n'\"ö", "raw": b"\0\xff\\", "money": Decimal("-12.30")},
            **{"day": date(2025, 11, 1), "clock": time(11, 0, 5, 1000), "moment": moment},
            **{"list": [1, 2], "map": {"a": 1}, "inner": inner},
        },
    )
    sink.put(value, schema=ALL)
    assert sink.reasons == []
    assert sink.rows("*") == [
        (
            *(1, -128, 2**31 - 1, 1e300, False, "a\tb\\n\n'\"ö", b"\0\xff\\", Decimal("-12.30")),
            *(date(2025, 11, 1), time(11, 0, 5, 1000), moment, [1, 2], {"a": 1}),
            {"a": "ä", "at": "2025-11-01T11:00:05.120000Z"},
            *(None, "default"),
        )
    ]
    types = sink.types()
    assert (types["small"], types["four"]) == ("smallint", "integer")
    assert types["moment"] == "timestamp with time zone"


def test_schemas_may_change_within_a_batch(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_ID, auto_evolve="true")
    old = struct_of({"id": STRING, "a": STRING})
    new = struct_of({"id": STRING, "b": OPTIONAL_FLOAT64, "a": OPTIONAL_STRING})
    sink.task.put(
        [
            record(Struct(old, {"id": "1", "a": "x"}), old),
            record(Struct(new, {"id": "2", "b": 2.5}), new),
            record(Struct(old, {"id": "2", "a": "last"}), old),
            record(Struct(new, {"id": "1", "b": 1.0}), new),
        ]
    )
    assert sink.rows("id, a, b") == [("1", None, 1.0), ("2", "last", None)]


def test_members_without_a_schema_get_columns_that_take_all_their_values(
    make_sink: MakeSink,
) -> None:
    sink = make_sink(auto_evolve="true")
    sink.put({"n": 1, "o": None}, {"n": 1.5, "mixed": 1}, {"mixed": "text"}, {"o": {"a": 1}})
    assert sink.types() == {
        "mixed": "text",
        "n": "double precision",
        "o": "jsonb",
    }
    sink.put({"n": 2, "later": True})
    assert sink.types()["later"] == "boolean"
    assert sink.rows("n, mixed, o, later") == [
        (1.0, None, None, None),
        (1.5, "1", None, None),
        (2.0, None, None, True),
        (None, "text", None, None),
        (None, None, {"a": 1}, None),
    ]


def test_times_without_a_zone_are_utc_whatever_the_role_has(make_sink: MakeSink) -> None:
    postgres = make_sink().postgres
    postgres.query("CREATE TABLE t (id text PRIMARY KEY, at timestamptz, n int)")
    postgres.query("ALTER ROLE waylog SET timezone = 'America/St_Johns'")
    try:
        sink = make_sink(**BY_ID)
        # With a bad record the others are stored in another way.
        sink.put({"id": "1", "at": "2026-01-31T12:00:00"})
        sink.put({"id": "2", "at": "2026-01-31T12:00:00"}, {"id": "3", "n": "x"})
        noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
        assert sink.rows("id, at") == [("1", noon), ("2", noon)]
    finally:
        postgres.query("ALTER ROLE waylog RESET timezone")


def test_a_table_of_ones_own_gets_the_fields_that_are_named(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_ID, fields_whitelist="lat,lon,time", timestamp_fields="time")
    sink.postgres.query(
        'CREATE TABLE t (id varchar(24) PRIMARY KEY, lat numeric(8,4), lon real, "time" timestamp'
        " with time zone, note text DEFAULT 'mine',"
        " twice real GENERATED ALWAYS AS (lon * 2) STORED)"
    )
    sink.put(fix(0, battery=5))
    sink.postgres.query("UPDATE t SET note = 'changed'")
    sink.put(fix(0, twice=3))
    assert sink.rows("id, lat, lon, time, note, twice") == [
        (
            *(fix(0)["id"], Decimal("47.1412"), 9.5215),
            *(datetime(2025, 11, 1, 11, 0, 5, tzinfo=UTC), "changed", 19.043),
        )
    ]


def test_places_are_points_of_postgis(make_sink: MakeSink) -> None:
    make_sink().postgres.add_postgis()
    sink = make_sink(**BY_ID, geometry_field="place")
    sink.put(fix(0), {"id": "nowhere", "x": 1})
    assert sink.types()["place"] == "geography(Point,4326)"
    assert sink.rows("id, ST_AsText(place)") == [
        (fix(0)["id"], "POINT(9.5215 47.1412)"),
        ("nowhere", None),
    ]
    mercator = make_sink(
        **BY_ID, geometry_field="g", geometry_srid="3857", table_name_format="${topic}-m"
    )
    mercator.put(fix(0))
    mercator.put(fix(0))
    assert mercator.types('"t-m"')["g"] == "geometry(Point,3857)"
    ((x, y),) = mercator.rows("ST_X(g), ST_Y(g)", "t-m")
    assert (round(x), round(y)) == (1059929, 5965152)
    sink.put(
        *(fix(1, lat=lat, lon=lon) for lat, lon in [("north", 1), (True, 1), (91, 1), (1, 181)])
    )
    sink.put(fix(1, lat=1e300, lon=1), fix(2, lat=-90, lon=180))
    assert sorted(sink.reasons) == [
        "latitude has to be a number: bool",
        "latitude has to be a number: str",
        *["latitude has to be from -90 to 90 degrees"] * 2,
        "longitude has to be from -180 to 180 degrees",
    ]
    assert sink.postgres.query("SELECT ST_AsText(place) FROM t WHERE id = %s", fix(2)["id"]) == [
        ("POINT(180 -90)",)
    ]


def test_without_postgis_there_are_two_numbers(
    make_sink: MakeSink, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    sink = make_sink(**BY_ID, geometry_field="place")
    sink.put(fix(0))
    assert "place" not in sink.types()
    assert sink.rows("lat, lon") == [(47.1412, 9.5215)]
    assert "there is no PostGIS" in caplog.text


def test_postgis_is_found_by_the_next_connection(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_ID, geometry_field="place")
    sink.put(fix(0))
    sink.postgres.add_postgis()
    sink.postgres.query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'waylog-connect sink'"
    )
    sink.put(fix(0))
    sink.put(fix(1), topic="later")
    assert sink.types("later")["place"] == "geography(Point,4326)"


def test_a_column_that_is_no_place_cannot_be_the_place(make_sink: MakeSink) -> None:
    sink = make_sink(geometry_field="x")
    sink.postgres.query("CREATE TABLE t (x text)")
    with pytest.raises(ConnectException, match="column x of table t is text"):
        sink.put({"x": "a"})


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(fix(7, lat="north"), id="a text in a column of numbers"),
        pytest.param(fix(7, trigger="a\0b"), id="a character that PostgreSQL does not have"),
        pytest.param(fix(7, trigger="\ud800"), id="half a character"),
        pytest.param(fix(7, time=2**70), id="a number of 70 bits"),
        pytest.param(fix(7, time=[1]), id="an array in a column of numbers"),
        pytest.param(fix(7, user=None), id="a null that the table refuses"),
        pytest.param({"x": 1}, id="no key"),
        pytest.param(fix(7) | {"id": [7]}, id="an array as the key"),
        pytest.param("text", id="no JSON"),
        pytest.param("[1]", id="no object"),
        pytest.param(5, id="a number"),
        pytest.param(fix(7, received="soon"), id="no time"),
    ],
)
def test_a_bad_record_is_reported_and_all_others_are_stored(make_sink: MakeSink, bad: Any) -> None:
    sink = make_sink(**BY_ID, timestamp_fields="received")
    sink.put(fix(0))
    sink.postgres.query('ALTER TABLE t ALTER COLUMN "user" SET NOT NULL')
    values = [fix(number) for number in range(1, 100) if number != 7]
    sink.put(*values[:40], bad, *values[40:])
    assert sink.postgres.count("t") == 99
    assert len(sink.reasons) == 1, sink.reasons
    assert sink.reporter is not None
    assert sink.reporter.reported[0][0].value == bad


def test_many_bad_records_are_found_one_by_one(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_ID, batch_size="64")
    sink.put(*(fix(number, accuracy="?" if number % 10 == 3 else 1.0) for number in range(200)))
    assert sink.postgres.count("t") == 180
    assert len(sink.reasons) == 20
    assert all("double precision" in each for each in sink.reasons)


def test_of_a_row_whose_newest_record_is_bad_the_one_before_remains(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_ID)
    sink.put(fix(1, battery=1), fix(1, battery=2), fix(1, battery="?"), fix(2))
    assert sink.rows("battery") == [(2.0,), (None,)]
    assert len(sink.reasons) == 1


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"lat": "north"}, 'invalid input syntax .* "north" \\(column lat\\) \\[22P02\\]'),
        ({"user": None}, "violates not-null constraint \\(column user\\) \\[23502\\]"),
        ({"trigger": "a\0"}, "NUL"),
    ],
)
def test_without_dead_letters_a_bad_record_fails_the_task_which_shows_no_row(
    make_sink: MakeSink, caplog: pytest.LogCaptureFixture, bad: dict[str, Any], reason: str
) -> None:
    caplog.set_level(logging.DEBUG)
    sink = make_sink(**BY_ID, reports=False)
    sink.put(fix(0))
    sink.postgres.query('ALTER TABLE t ALTER COLUMN "user" SET NOT NULL')
    with pytest.raises(ConnectException, match=reason) as raised:
        sink.put(fix(1) | {"accuracy": 123.456} | bad)
    shown = "".join(traceback.format_exception(raised.value)) + caplog.text
    assert "9.521499" not in shown
    assert str(fix(1)["time"]) not in shown


def test_names_and_values_are_never_statements(make_sink: MakeSink) -> None:
    evil = 't"; DROP TABLE kept; --'
    sink = make_sink(auto_evolve="true")
    sink.postgres.query("CREATE TABLE kept (x int)")
    sink.put({evil: "'); DROP TABLE kept; --", "%s": "\\.", "": 1, "x" * 64: 2}, topic=evil)
    assert "takes , xxx" in sink.reasons[0]
    sink.put({evil: "'); DROP TABLE kept; --", "%s": "\\."}, topic=evil)
    assert sink.postgres.count("kept") == 0
    with sink.postgres.connect() as connection:
        name = psycopg.sql.Identifier(evil)
        rows = connection.execute(psycopg.sql.SQL("SELECT * FROM {}").format(name)).fetchall()
    assert rows == [("\\.", "'); DROP TABLE kept; --")]


def test_a_topic_with_a_name_that_no_table_has_stops_no_other(make_sink: MakeSink) -> None:
    sink = make_sink()
    sink.task.put([record({"x": 1}, topic="x" * 64), record({"x": 2})])
    assert sink.rows("x") == [(2,)]
    (reason,) = sink.reasons
    assert "table.name.format" in reason
    assert "63 bytes at most" in reason


def test_dots_of_topics_are_no_schemas(make_sink: MakeSink) -> None:
    sink = make_sink(table_name_format="public.${topic}")
    sink.put({"x": 1}, topic="a.b")
    assert sink.postgres.count("a.b") == 1


@pytest.mark.parametrize("change", ["drop", "column", "type", "recreate"])
def test_a_table_that_changes_while_the_task_runs(make_sink: MakeSink, change: str) -> None:
    sink = make_sink(**BY_ID, auto_evolve="true")
    sink.put(fix(1))
    sink.postgres.query(
        {
            "drop": "DROP TABLE t",
            "column": "ALTER TABLE t DROP COLUMN source",
            "type": "ALTER TABLE t ALTER COLUMN source TYPE jsonb USING NULL",
            "recreate": "DROP TABLE t; CREATE TABLE t (id text PRIMARY KEY)",
        }[change]
    )
    sink.put(fix(2, source="osmand"))
    assert sink.rows("source")[0] == ("osmand",)


def test_a_table_that_is_missing_is_told(make_sink: MakeSink) -> None:
    with pytest.raises(
        ConnectException, match=r"table t does not exist, and auto\.create is false"
    ):
        make_sink(auto_create="false").put({"x": 1})


def test_a_table_without_the_key_is_told(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_ID)
    sink.postgres.query("CREATE TABLE t (id text)")
    with pytest.raises(ConnectException, match="no unique or exclusion constraint"):
        sink.put({"id": "1"})


def test_commits_are_durable_though_the_role_has_it_otherwise(make_sink: MakeSink) -> None:
    postgres = make_sink().postgres
    postgres.query("ALTER ROLE waylog SET synchronous_commit = off")
    try:
        sink = make_sink()
        assert sink.task._database is not None
        found = sink.task._database.connection().execute("SHOW synchronous_commit").fetchone()
        assert found == ("on",)
    finally:
        postgres.query("ALTER ROLE waylog RESET synchronous_commit")


def test_a_wrong_password_fails_the_task_and_shows_itself_nowhere(
    make_sink: MakeSink, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = "-".join(["s3cr3t", "and", "wrong"])
    with pytest.raises(ConnectException, match="password authentication failed") as raised:
        make_sink(connection_password=wrong)
    shown = "".join(traceback.format_exception(raised.value)) + caplog.text
    assert wrong not in shown
    assert raised.value.__cause__ is None


def test_a_parameter_that_libpq_does_not_know_fails_the_task(
    make_sink: MakeSink, postgres: PostgresServer
) -> None:
    with pytest.raises(ConfigException, match=r"connection.url: libpq does not know"):
        make_sink(connection_url=postgres.url + "?ssl=true")


def test_connections_that_were_cut_are_made_anew_at_once(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_ID)
    sink.put(fix(1))
    for number in range(2, 5):
        sink.postgres.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'waylog-connect sink'"
        )
        sink.put(fix(number))
    assert sink.postgres.count("t") == 4


def test_refused_rows_are_told_apart_over_a_new_connection_too(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_ID)
    for number in (1, 3, 5):
        sink.put(fix(number), fix(number + 1, time="no time"))
        sink.postgres.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'waylog-connect sink'"
        )
    assert len(sink.reasons) == 3
    assert sink.postgres.count("t") == 3


def test_a_session_keeps_few_tables_of_its_own(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_ID)
    sink.postgres.query(
        "DO $$ BEGIN FOR i IN 0..33 LOOP"
        " EXECUTE format('CREATE TABLE t%s (id text PRIMARY KEY)', i); END LOOP; END $$"
    )
    for number in range(34):
        sink.put({"id": str(number)}, topic=f"t{number}")
    [(kept,)] = sink.postgres.query(
        "SELECT count(*) FROM pg_class WHERE relpersistence = 't' AND relkind = 'r'"
        " AND relname LIKE 'waylog_sink%'"
    )
    assert 0 < kept <= 32
    # Of a table whose own was dropped, a new one is made.
    sink.put({"id": "99"}, topic="t0")
    assert sink.postgres.count("t0") == 2


def test_of_tables_of_many_topics_few_are_remembered(make_sink: MakeSink) -> None:
    gc.collect()
    before = sum(isinstance(each, TableWriter) for each in gc.get_objects())
    sink = make_sink(**BY_KEY, delete_enabled="true")
    for number in range(270):
        sink.put(None, key=f"anna/phone{number}", topic=f"t{number}")
    gc.collect()
    after = sum(isinstance(each, TableWriter) for each in gc.get_objects())
    assert after - before <= 256


def test_a_database_that_is_away_is_waited_for(make_sink: MakeSink) -> None:
    sink = make_sink(**BY_ID)
    sink.put(fix(1))
    sink.postgres.stop("immediate")
    try:
        for _ in range(3):
            with pytest.raises(RetriableException, match=r"127\.0\.0\.1"):
                sink.put(fix(2))
        # A task that starts meanwhile waits as well.
        other = make_sink(**BY_ID)
        limited = make_sink(**BY_ID, max_retries="1")
        with pytest.raises(RetriableException):
            limited.put(fix(3))
        with pytest.raises(ConnectException, match="given up after 1 retries"):
            limited.put(fix(3))
    finally:
        sink.postgres.start()
    assert sink.context.timeouts == [50, 50, 50]
    sink.put(fix(2))
    other.put(fix(3))
    assert sink.postgres.count("t") == 3


def test_attempts_to_connect_keep_no_records(make_sink: MakeSink) -> None:
    (port,) = reserved_ports(1)
    sink = make_sink(**BY_ID, connection_url=f"postgresql://nobody@127.0.0.1:{port}/none")
    values = [json.dumps(fix(number)) for number in range(200)]

    def attempt() -> None:
        with pytest.raises(RetriableException):
            sink.put(*values)

    attempt()
    # Servers run it seldom: by cycles, records would fill the memory until then.
    gc.disable()
    try:
        before = len(gc.get_objects())
        for _ in range(5):
            attempt()
        assert len(gc.get_objects()) - before < 200
    finally:
        gc.enable()


def test_a_lock_that_times_out_is_waited_for(make_sink: MakeSink, postgres: PostgresServer) -> None:
    sink = make_sink(**BY_ID, connection_url=postgres.url + "?options=-c%20lock_timeout%3D50ms")
    sink.put(fix(1))
    with sink.postgres.connect() as other, other.transaction():
        other.execute("LOCK TABLE t")
        with pytest.raises(RetriableException, match="lock timeout"):
            sink.put(fix(2))
    sink.put(fix(2))
    assert sink.postgres.count("t") == 2


@pytest.mark.parametrize("deletes", [False, True])
def test_tasks_that_write_the_same_keys_do_not_deadlock(make_sink: MakeSink, deletes: bool) -> None:
    keys = [f"device-{number}" for number in range(2000)]
    more = {**BY_KEY, "delete_enabled": "true"}
    sinks = [make_sink(**more), make_sink(**more)]
    sinks[0].task.put([record({"v": 0}, key=key) for key in keys])
    together = Barrier(2)

    def write(sink: Sink, turn: int) -> None:
        for number in range(10):
            together.wait(60)
            value = None if deletes and number % 2 else {"v": number}
            # Each in another order; a deadlock would be a RetriableException.
            records = [record(value, key=key) for key in keys[:: 1 if turn else -1]]
            sink.task.put(records)

    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(write, sink, turn) for turn, sink in enumerate(sinks)]:
            each.result(120)
    assert sinks[0].rows("count(*), min(v), max(v)") == (
        [(0, None, None)] if deletes else [(2000, 9, 9)]
    )
