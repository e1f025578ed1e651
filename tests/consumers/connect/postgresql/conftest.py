"""A PostgreSQL for the tests of a module, empty at the beginning of each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.consumers.connect.postgresql.postgres_server import PostgresServer
from tests.consumers.connect.postgresql.sink import MakeSink, Sink
from tests.consumers.connect.sink_harness import Reporter


@pytest.fixture(scope="module")
def running_postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def postgres(running_postgres: PostgresServer) -> PostgresServer:
    running_postgres.query("DROP SCHEMA public CASCADE")
    running_postgres.query("CREATE SCHEMA public")
    return running_postgres


@pytest.fixture
def make_sink(postgres: PostgresServer) -> Iterator[MakeSink]:
    """Give a function that starts a task; its properties have underscores for dots."""
    made: list[Sink] = []

    def make(*, reports: bool = True, **properties: str) -> Sink:
        made.append(Sink(postgres, Reporter() if reports else None, **properties))
        return made[-1]

    yield make
    for each in made:
        each.task.stop()
