"""A PostgreSQL for the tests of a module, empty at the beginning of each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.consumers.connect.postgresql.postgres_server import PostgresServer


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
