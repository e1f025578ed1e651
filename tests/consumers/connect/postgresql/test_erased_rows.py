"""Rows of erased devices, on a real PostgreSQL, without a worker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from consumers.connect.data.exceptions import RetriableException
from consumers.connect.postgresql.postgresql_sink import PostgreSqlSinkConnector
from consumers.connect.postgresql.postgresql_task import PostgreSqlSinkTask
from tests.consumers.connect.postgresql.postgres_server import PASSWORD, PostgresServer
from tests.consumers.connect.sink_harness import Reporter, fix, record, run_task

#: `fix(number)` is from this time plus `number`, and was received a second later.
_TIME = 1_761_994_805_000
_RECEIVED = _TIME + 1000

MakeTask = Callable[..., PostgreSqlSinkTask]


@pytest.fixture
def make_task(postgres: PostgresServer) -> Iterator[MakeTask]:
    """Give a function that starts a task of a connector with topic `t`, the first of three."""
    made: list[PostgreSqlSinkTask] = []

    def make(number: int = 0, **more: str) -> PostgreSqlSinkTask:
        connector = PostgreSqlSinkConnector()
        connector.start(
            {
                "name": "sink",
                "topics": "t",
                "connection.url": postgres.url,
                "connection.password": PASSWORD,
                "auto.create": "true",
                "insert.mode": "upsert",
                "pk.mode": "record_value",
                "pk.fields": "id",
                **{name.replace("_", "."): value for name, value in more.items()},
            }
        )
        task = PostgreSqlSinkTask()
        run_task(task, connector.task_configs(3)[number], Reporter())
        made.append(task)
        return task

    yield make
    for each in made:
        each.stop()


def put(task: PostgreSqlSinkTask, numbers: range, device: str = "anna/phone") -> None:
    task.put([record(fix(number, device)) for number in numbers])


def numbers_of(postgres: PostgresServer, device: str = "anna/phone") -> list[int]:
    """Return the numbers of the fixes that are there, ascending."""
    rows = postgres.query("SELECT id FROM t WHERE device = %s ORDER BY id", device)
    return [int(each, 16) for (each,) in rows]


@pytest.mark.parametrize("stamps", ["", "time,received"])
def test_rows_until_an_erasure_go_and_no_others(
    make_task: MakeTask, postgres: PostgresServer, stamps: str
) -> None:
    task = make_task(timestamp_fields=stamps)
    put(task, range(3000))
    put(task, range(3000, 3010), "bert/bike")
    # Sent or received until then: of a fix the earlier one counts.
    task.erase({"anna/phone": _TIME + 1999, "nobody/here": _TIME})
    assert numbers_of(postgres) == list(range(2000, 3000))
    assert len(numbers_of(postgres, "bert/bike")) == 10


def test_what_comes_after_an_erasure_is_not_deleted_by_a_restart(
    make_task: MakeTask, postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    erasures = {"anna/phone": _RECEIVED}
    task = make_task()
    put(task, range(2))
    task.erase(erasures)
    assert numbers_of(postgres) == []
    put(task, range(2000, 2002))
    caplog.set_level(logging.INFO)
    make_task().erase(erasures)
    assert numbers_of(postgres) == [2000, 2001]
    # It is noted, so that a start does not look through the table.
    assert "were deleted" not in caplog.text
    make_task().erase({"anna/phone": _RECEIVED + 5000})
    assert numbers_of(postgres) == []
    assert "table t: 2 rows of 1 devices were deleted" in caplog.text


def test_each_task_deletes_what_it_has_written_before_it_knew(
    make_task: MakeTask, postgres: PostgresServer
) -> None:
    first, second = make_task(0), make_task(1)
    first.erase({"anna/phone": _RECEIVED})
    put(second, range(5))
    second.stop()
    make_task(1).erase({"anna/phone": _RECEIVED})
    assert numbers_of(postgres) == []


def test_what_one_task_has_noted_of_a_table_is_not_done_for_others(
    make_task: MakeTask, postgres: PostgresServer
) -> None:
    first = make_task(0)
    put(first, range(3))
    first.erase({"anna/phone": _RECEIVED})
    assert numbers_of(postgres) == []
    # What the second task had read before it knew, and the first one has in another table.
    put(make_task(1), range(5))
    make_task(0, topics="u").put([record(fix(each), topic="u") for each in range(5)])
    make_task(1).erase({"anna/phone": _RECEIVED})
    assert numbers_of(postgres) == []
    make_task(0, topics="t,u").erase({"anna/phone": _RECEIVED})
    assert postgres.count("u") == 0


def test_a_table_that_is_found_later_is_cleared_too(
    make_task: MakeTask, postgres: PostgresServer
) -> None:
    put(make_task(), range(5))
    task = make_task(topics="")
    task.erase({"anna/phone": _RECEIVED})
    assert len(numbers_of(postgres)) == 5
    put(task, range(2000, 2001), "bert/bike")
    assert numbers_of(postgres) == []


@pytest.mark.parametrize(
    ("properties", "left"),
    [
        ({"erasure_column": ""}, 5),
        ({"erasure_column": "user"}, 5),
        ({"erasure_time_columns": "lat"}, 5),
        ({"erasure_time_columns": ""}, 0),
    ],
)
def test_which_rows_go_is_a_setting(
    make_task: MakeTask, postgres: PostgresServer, properties: dict[str, str], left: int
) -> None:
    task = make_task(**properties)
    put(task, range(5))
    task.erase({"anna/phone": _TIME - 1})
    assert len(numbers_of(postgres)) == left


def test_a_table_without_a_device_is_left_alone(
    make_task: MakeTask, postgres: PostgresServer
) -> None:
    task = make_task()
    task.erase({"anna/phone": _RECEIVED})
    task.put([record({"id": "1", "device": 5, "time": 1})])
    task.erase({"5": _RECEIVED})
    assert postgres.count("t") == 1


def test_a_role_that_may_not_make_tables_deletes_all_the_same(
    make_task: MakeTask, postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    put(make_task(), range(5))
    postgres.query("DROP ROLE IF EXISTS writer")
    postgres.query(f"CREATE ROLE writer LOGIN PASSWORD '{PASSWORD}'")
    postgres.query("GRANT SELECT, INSERT, UPDATE, DELETE ON t TO writer")
    postgres.query("GRANT USAGE ON SCHEMA public TO writer")
    try:
        make_task(connection_user="writer").erase({"anna/phone": _RECEIVED})
        assert numbers_of(postgres) == []
        assert "table waylog_erased cannot be made" in caplog.text
    finally:
        postgres.query("DROP OWNED BY writer")
        postgres.query("DROP ROLE writer")


def test_an_erasure_comes_again_while_the_database_is_away(
    make_task: MakeTask, postgres: PostgresServer
) -> None:
    task = make_task()
    put(task, range(5))
    postgres.stop()
    try:
        with pytest.raises(RetriableException):
            task.erase({"anna/phone": _RECEIVED})
    finally:
        postgres.start()
    task.erase({"anna/phone": _RECEIVED})
    assert numbers_of(postgres) == []
