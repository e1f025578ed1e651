"""A task of PostgreSqlSink that runs without a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from consumers.connect.postgresql.postgresql_task import PostgreSqlSinkTask
from tests.consumers.connect.postgresql.postgres_server import PASSWORD, PostgresServer
from tests.consumers.connect.sink_harness import Context, Reporter, record, run_task

BY_ID = {"insert_mode": "upsert", "pk_mode": "record_value", "pk_fields": "id"}
BY_KEY = {"insert_mode": "upsert", "pk_mode": "record_key", "pk_fields": "device"}


class Sink:
    """A task that runs, and what it has reported."""

    def __init__(self, postgres: PostgresServer, reporter: Reporter | None, **more: str) -> None:
        self.postgres = postgres
        self.reporter = reporter
        self.task = PostgreSqlSinkTask()
        self.properties = {
            "name": "sink",
            "connection.url": postgres.url,
            "connection.password": PASSWORD,
            "auto.create": "true",
            "retry.backoff.ms": "50",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        self.context: Context = run_task(self.task, self.properties, reporter)

    def put(self, *values: Any, **more: Any) -> None:
        self.task.put([record(value, **more) for value in values])

    def rows(self, columns: str, table: str = "t") -> list[tuple[Any, ...]]:
        return self.postgres.query(f'SELECT {columns} FROM "{table}" ORDER BY 1')

    def close_table(self) -> None:
        """Have the database refuse every insertion into table t, as one that lacks rights."""
        self.postgres.query(
            "CREATE FUNCTION closed() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE 'closed' USING ERRCODE = '42501'; END $$"
        )
        self.postgres.query(
            "CREATE TRIGGER closed BEFORE INSERT ON t FOR EACH STATEMENT EXECUTE FUNCTION closed()"
        )

    @property
    def reasons(self) -> list[str]:
        assert self.reporter is not None
        return self.reporter.reasons

    def types(self, table: str = "t") -> dict[str, str]:
        return dict(
            self.postgres.query(
                "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
                " WHERE attrelid = %s::regclass AND attnum > 0",
                table,
            )
        )


MakeSink = Callable[..., Sink]
