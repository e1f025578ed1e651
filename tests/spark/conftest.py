"""A real broker and a Spark session for tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.running import start_broker
from waylog.kafka.clients import ensure_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def log(tmp_path: Path) -> Iterator[str]:
    """Yield the bootstrap servers of a broker with the platform's topics and no records.

    $WAYLOG_TEST_BOOTSTRAP_SERVERS names another broker, which must be fresh for every test.
    """
    given = os.environ.get("WAYLOG_TEST_BOOTSTRAP_SERVERS")
    if given:
        ensure_topics(given)
        yield given
        return
    broker, servers = start_broker(tmp_path / "broker")
    try:
        ensure_topics(servers)
        yield servers
    finally:
        broker.terminate()


@pytest.fixture(scope="session")
def session() -> Iterator[SparkSession]:
    """Yield the only Spark session of all tests in this process."""
    from spark.runtime.session import close_session, open_session

    opened = open_session("waylog tests", planning_only=True)
    yield opened
    close_session(opened)
