"""A task of the HTTP sink that runs, without a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from consumers.connect.data.exceptions import RetriableException
from consumers.connect.data.records import SinkRecord
from consumers.connect.http.http_task import HttpSinkTask
from consumers.connect.plugins.sink_task import TopicPartition
from tests.consumers.connect.sink_harness import Context, Reporter, record, run_task


class Sink:
    """A task that runs, on a clock that the test moves."""

    def __init__(self, reporter: Reporter | None, properties: dict[str, str]) -> None:
        self.now = 1000.0
        self.reporter = reporter
        self.task = HttpSinkTask(clock=lambda: self.now)
        self.context: Context = run_task(self.task, properties, reporter)

    def put(self, *values: Any, **more: Any) -> None:
        self.task.put([record(value, **more) for value in values])

    def put_until_taken(self, records: list[SinkRecord], rounds: int = 20) -> int:
        """Put records again, after the pauses that are asked for; return the rounds it took."""
        end = records[-1].offset + 1
        place = TopicPartition("t", 0)
        for number in range(1, rounds + 1):
            try:
                self.task.put(records)
            except RetriableException:
                self.now += self.context.timeouts[-1] / 1000
            else:
                if self.task.pre_commit({place: end})[place] == end:
                    return number
                # What was set aside is sent again when the task is called without records.
                self.now += self.context.timeouts[-1] / 1000
                records = []
        raise AssertionError("not taken")

    def committable(self, records: list[SinkRecord]) -> int:
        """Return the offset that the task lets be committed after these records."""
        place = TopicPartition("t", 0)
        return self.task.pre_commit({place: records[-1].offset + 1})[place]

    @property
    def reasons(self) -> list[str]:
        assert self.reporter is not None
        return self.reporter.reasons


MakeSink = Callable[..., Sink]
