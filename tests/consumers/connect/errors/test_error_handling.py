"""What becomes of a record that cannot be processed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.connect.data.exceptions import (
    ConnectException,
    DataException,
    RetriableException,
    SchemaException,
    kafka_name_of,
)
from consumers.connect.data.records import Header, SourceRecord
from consumers.connect.errors.counters import ErrorCounters
from consumers.connect.errors.error_handling import ErrorHandling, Fail, Skip, TryAgain
from consumers.connect.errors.failures import ConsumedRecord, Failure
from consumers.connect.errors.retries import Retries
from consumers.connect.errors.settings import ErrorSettings
from consumers.connect.errors.stages import Stage

JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
CONSUMED = ConsumedRecord(
    "orders", 3, 42, b"key", b"value", 1_700_000_000_000, headers=(("own", b"x"),)
)
SINK = {"name": "sink", "connector.class": "X", "topics": "orders"}


def handling(properties: Mapping[str, str] | None = None, *, is_sink: bool = True) -> ErrorHandling:
    settings = ErrorSettings.of(SINK | dict(properties or {}), is_sink=is_sink)
    return ErrorHandling(settings, "sink", 1, lambda limit: limit - 1)


def failure(error: Exception | None = None, stage: Stage = Stage.VALUE_CONVERTER) -> Failure:
    return Failure(CONSUMED, stage, JSON_CONVERTER, error or DataException("no JSON"))


def test_the_defaults_fail_the_task_at_once() -> None:
    errors = handling()
    error = DataException("no JSON")
    decision = errors.failed(failure(error), errors.begin(0), 5)
    assert isinstance(decision, Fail)
    assert str(decision.error) == "Tolerance exceeded in error handler"
    assert decision.error.__cause__ is error
    assert (decision.log, decision.dead_letter) == (None, None)
    assert errors.counters == ErrorCounters(
        total_record_failures=1, total_record_errors=1, last_error_timestamp=5
    )


def test_tolerance_leaves_the_record_out() -> None:
    errors = handling({"errors.tolerance": "all"})
    assert errors.failed(failure(), errors.begin(0), 0) == Skip(None, None)
    assert errors.counters.total_records_skipped == 1


@pytest.mark.parametrize("stage", [Stage.TASK_PUT, Stage.TASK_POLL, Stage.KAFKA_PRODUCE])
def test_an_unknown_error_of_the_connector_is_not_tolerated(stage: Stage) -> None:
    errors = handling({"errors.tolerance": "all"})
    decision = errors.failed(failure(ValueError("x"), stage), errors.begin(0), 0)
    assert isinstance(decision, Fail)
    assert str(decision.error) == "Unhandled exception in error handler"


@pytest.mark.parametrize(
    "stage",
    [Stage.TRANSFORMATION, Stage.KEY_CONVERTER, Stage.VALUE_CONVERTER, Stage.HEADER_CONVERTER],
)
def test_any_error_of_converters_and_transforms_is_tolerated(stage: Stage) -> None:
    errors = handling({"errors.tolerance": "all"})
    assert isinstance(errors.failed(failure(ValueError("x"), stage), errors.begin(0), 0), Skip)


def test_only_what_may_succeed_later_is_tried_again() -> None:
    errors = handling({"errors.retry.timeout": "1000"})
    assert isinstance(errors.failed(failure(), errors.begin(0), 0), Fail)
    retries = errors.begin(0)
    later = failure(RetriableException("busy"))
    assert errors.failed(later, retries, 0) == TryAgain(300)
    assert errors.failed(later, retries, 300) == TryAgain(600)
    # Of the time there are 50 ms left.
    assert errors.failed(later, retries, 950) == TryAgain(50)
    assert isinstance(errors.failed(later, retries, 1000), Fail)
    assert errors.counters.total_retries == 3
    assert errors.counters.total_record_failures == 5


def test_a_task_that_stops_tries_no_more() -> None:
    errors = handling({"errors.retry.timeout": "-1", "errors.tolerance": "all"})
    later = failure(RetriableException("busy"), Stage.TASK_PUT)
    assert isinstance(errors.failed(later, errors.begin(0), 0, stopping=True), Skip)


def test_pauses_double_until_they_are_drawn_by_lot() -> None:
    retries = Retries(0, -1, 60_000, lambda limit: limit - 1)
    delays = [retries.delay_ms(0) for _ in range(10)]
    assert delays == [300, 600, 1200, 2400, 4800, 9600, 19200, 38400, 59_999, 59_999]
    assert retries.attempts == 11


@given(
    st.integers(-1, 100_000),
    st.integers(-5, 100_000),
    st.lists(st.integers(0, 50_000), max_size=99),
)
def test_no_pause_goes_beyond_the_limits(
    timeout_ms: int, delay_max_ms: int, pauses: list[int]
) -> None:
    retries = Retries(0, timeout_ms, delay_max_ms, lambda limit: limit // 2)
    now_ms = 0
    for pause in pauses:
        now_ms += pause
        delay = retries.delay_ms(now_ms)
        if delay is None:
            assert 0 <= timeout_ms <= now_ms
            break
        assert 0 <= delay <= max(delay_max_ms, 0)
        assert timeout_ms < 0 or now_ms + delay <= timeout_ms


def test_a_dead_letter_is_the_record_as_it_was() -> None:
    errors = handling({"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"})
    decision = errors.failed(failure(), errors.begin(0), 0)
    assert isinstance(decision, Skip)
    letter = decision.dead_letter
    assert letter is not None
    assert letter[:5] == ("dead", b"key", b"value", 1_700_000_000_000, (("own", b"x"),))
    assert errors.counters.deadletterqueue_produce_requests == 1
    errors.dead_letter_failed()
    assert errors.counters.deadletterqueue_produce_failures == 1


def test_headers_say_what_went_wrong() -> None:
    errors = handling(
        {
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": "dead",
            "errors.deadletterqueue.context.headers.enable": "true",
        }
    )
    try:
        raise DataException("no JSON")
    except DataException as error:
        decision = errors.failed(failure(error), errors.begin(0), 0)
    assert isinstance(decision, Skip)
    assert decision.dead_letter is not None
    headers = dict(decision.dead_letter.headers)
    trace = headers.pop("__connect.errors.exception.stacktrace")
    assert trace is not None
    assert b"no JSON" in trace
    assert headers == {
        "own": b"x",
        "__connect.errors.topic": b"orders",
        "__connect.errors.partition": b"3",
        "__connect.errors.offset": b"42",
        "__connect.errors.connector.name": b"sink",
        "__connect.errors.task.id": b"1",
        "__connect.errors.stage": b"VALUE_CONVERTER",
        "__connect.errors.class.name": JSON_CONVERTER.encode(),
        "__connect.errors.exception.class.name": b"org.apache.kafka.connect.errors.DataException",
        "__connect.errors.exception.message": b"no JSON",
    }


def test_a_failed_task_writes_its_dead_letter_first() -> None:
    errors = handling({"errors.deadletterqueue.topic.name": "dead"})
    decision = errors.failed(failure(), errors.begin(0), 0)
    assert isinstance(decision, Fail)
    assert decision.dead_letter is not None


def test_a_sink_connector_reports_a_record_that_it_cannot_take() -> None:
    errors = handling({"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"})
    decision = errors.reported(failure(ValueError("x"), Stage.TASK_PUT), 7)
    assert isinstance(decision, Skip)
    assert decision.dead_letter is not None
    assert isinstance(handling().reported(failure(), 7), Fail)


def test_a_line_of_the_log_names_the_record_only_if_wanted() -> None:
    brief = handling({"errors.tolerance": "all", "errors.log.enable": "true"})
    decision = brief.failed(failure(), brief.begin(0), 0)
    assert isinstance(decision, Skip)
    assert decision.log == (
        "Error encountered in task sink-1. Executing stage 'VALUE_CONVERTER' with class "
        f"'{JSON_CONVERTER}'."
    )
    full = handling(
        {
            "errors.tolerance": "all",
            "errors.log.enable": "true",
            "errors.log.include.messages": "true",
        }
    )
    decision = full.failed(failure(), full.begin(0), 0)
    assert isinstance(decision, Skip)
    assert decision.log == (
        "Error encountered in task sink-1. Executing stage 'VALUE_CONVERTER' with class "
        f"'{JSON_CONVERTER}', where consumed record is {{topic='orders', partition=3, offset=42, "
        "timestamp=1700000000000, timestampType=CREATE_TIME}."
    )
    assert full.counters.total_errors_logged == 1


def test_a_source_record_is_logged_whole_and_has_no_dead_letter() -> None:
    errors = handling(
        {
            "errors.tolerance": "all",
            "errors.log.enable": "true",
            "errors.log.include.messages": "true",
        },
        is_sink=False,
    )
    made = SourceRecord(
        topic="t",
        value=object(),
        headers=(Header("h", 1),),
        source_partition={"filename": "x"},
        source_offset={"position": 5},
    )
    broken = Failure(made, Stage.TRANSFORMATION, "X", SchemaException("x"))
    decision = errors.failed(broken, errors.begin(0), 0)
    assert isinstance(decision, Skip)
    assert decision.dead_letter is None
    assert decision.log is not None
    assert "sourcePartition={filename=x}, sourceOffset={position=5}, topic='t'" in decision.log
    assert "value=<object>" in decision.log


def test_errors_have_the_names_that_kafka_connect_gives_them() -> None:
    assert issubclass(SchemaException, DataException)
    assert issubclass(RetriableException, ConnectException)
    assert SchemaException.kafka_name.endswith("SchemaBuilderException")


def test_what_failed_without_a_record_has_no_dead_letter() -> None:
    errors = handling({"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"})
    poll = Failure(None, Stage.TASK_POLL, "X", RetriableException("busy"))
    assert errors.failed(poll, errors.begin(0), 0) == Skip(None, None)
    assert errors.counters.deadletterqueue_produce_failures == 1


def test_a_record_without_a_time_is_named_without_one() -> None:
    errors = handling({"errors.log.enable": "true", "errors.log.include.messages": "true"})
    bare = Failure(CONSUMED._replace(timestamp=None), Stage.TASK_PUT, "X", ValueError("x"))
    decision = errors.reported(bare, 0)
    assert decision.log is not None
    assert decision.log.endswith("{topic='orders', partition=3, offset=42}.")


def test_an_error_of_python_has_pythons_name() -> None:
    assert kafka_name_of(ValueError("x")) == "builtins.ValueError"
