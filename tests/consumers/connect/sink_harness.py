"""A sink task without a worker, and records for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from itertools import count
from typing import Any

from consumers.connect.data.records import Header, SinkRecord
from consumers.connect.data.schemas import STRING, Schema
from consumers.connect.plugins.sink_task import ErrantRecordReporter, SinkTask, TopicPartition

_offsets = count()


class Reporter:
    """Keeps what was reported."""

    def __init__(self) -> None:
        self.reported: list[tuple[SinkRecord, Exception]] = []

    def report(self, record: SinkRecord, error: Exception) -> Future[None]:
        self.reported.append((record, error))
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @property
    def reasons(self) -> list[str]:
        return [str(error) for _, error in self.reported]


class Context:
    """Remembers what the task has asked for."""

    def __init__(self, reporter: Reporter | None) -> None:
        self.timeouts: list[int] = []
        self.rewound: dict[TopicPartition, int] = {}
        self._reporter = reporter

    def configs(self) -> Mapping[str, str]:
        return {}

    def assignment(self) -> set[TopicPartition]:
        return set()

    def offset(self, partition: TopicPartition, offset: int) -> None:
        self.rewound[partition] = offset

    def timeout(self, timeout_ms: int) -> None:
        self.timeouts.append(timeout_ms)

    def pause(self, *partitions: TopicPartition) -> None:
        raise AssertionError

    def resume(self, *partitions: TopicPartition) -> None:
        raise AssertionError

    def request_commit(self) -> None:
        raise AssertionError

    def errant_record_reporter(self) -> ErrantRecordReporter | None:
        return self._reporter


def record(
    value: Any,
    schema: Schema | None = None,
    *,
    key: Any = None,
    key_schema: Schema | None = None,
    topic: str = "t",
    headers: Sequence[tuple[str, Any]] = (),
    timestamp: int | None = None,
) -> SinkRecord:
    """Return a record; a key that is a text has its schema, as StringConverter gives it."""
    offset = next(_offsets)
    if key_schema is None and isinstance(key, str):
        key_schema = STRING
    return SinkRecord(
        topic=topic, partition=0, key=key, key_schema=key_schema, value=value, value_schema=schema,
        headers=tuple(Header(name, each, STRING) for name, each in headers),
        timestamp=timestamp, offset=offset, original_topic=topic, original_partition=0,
        original_offset=offset,
    )  # fmt: skip


def run_task(task: SinkTask, properties: Mapping[str, str], reporter: Reporter | None) -> Context:
    """Give a task its context, and start it."""
    context = Context(reporter)
    task.context = context
    task.start(properties)
    return context


def fix(number: int, device: str = "anna/phone", **more: Any) -> dict[str, Any]:
    """Return a fix as JSON of topic `location` has it, without a schema."""
    return {
        "id": f"{number:024x}",
        "device": device,
        "user": device.partition("/")[0],
        "lat": 47.1412 + number * 1e-6,
        "lon": 9.5215 - number * 1e-6,
        "time": 1_761_994_805_000 + number,
        "received": 1_761_994_806_000 + number,
        **more,
    }
