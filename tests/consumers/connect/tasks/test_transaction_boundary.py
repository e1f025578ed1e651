"""When the transaction of an exactly-once source ends."""

from __future__ import annotations

from consumers.connect.data.records import SourceRecord
from consumers.connect.tasks.transaction_boundary import (
    ConnectorBoundary,
    Ending,
    transaction_boundary,
)

RECORD = SourceRecord(topic="t", value="a")
NAMED = {"name": "in", "connector.class": "FileStreamSource"}


def test_what_came_last_in_an_interval_does_not_wait_for_more() -> None:
    properties = NAMED | {
        "transaction.boundary": "interval",
        "transaction.boundary.interval.ms": "300",
    }
    boundary = transaction_boundary(properties, 60.0, 100.0)
    assert boundary.after_record(RECORD) is Ending.NONE
    assert boundary.after_batch(100.2) is Ending.NONE
    assert boundary.when_idle(100.25) is Ending.NONE
    assert boundary.when_idle(100.3) is Ending.COMMIT
    assert boundary.after_batch(100.5) is Ending.NONE
    assert boundary.after_batch(100.6) is Ending.COMMIT
    assert boundary.at_end() is Ending.COMMIT


def test_without_an_interval_of_its_own_it_is_that_of_the_worker() -> None:
    boundary = transaction_boundary(NAMED | {"transaction.boundary": "interval"}, 60.0, 100.0)
    assert boundary.after_batch(159.0) is Ending.NONE
    assert boundary.after_batch(160.0) is Ending.COMMIT


def test_what_a_connector_has_not_ended_is_void() -> None:
    boundary = transaction_boundary(NAMED | {"transaction.boundary": "connector"}, 60.0, 100.0)
    assert isinstance(boundary, ConnectorBoundary)
    equal = SourceRecord(topic="t", value="a")
    boundary.commit_transaction(RECORD)
    assert boundary.after_record(equal) is Ending.NONE
    assert boundary.after_record(RECORD) is Ending.COMMIT
    assert boundary.after_record(RECORD) is Ending.NONE
    # What was asked for a record that never came is asked for no later one.
    boundary.abort_transaction(equal)
    boundary.commit_transaction()
    assert boundary.after_batch(500.0) is Ending.COMMIT
    assert boundary.after_record(equal) is Ending.NONE
    assert boundary.after_batch(501.0) is Ending.NONE
    assert boundary.at_end() is Ending.ABORT
