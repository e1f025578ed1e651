"""What a task is told of erasures, and which records it does not get."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import pytest

from consumers.connect.data.exceptions import RetriableException
from consumers.connect.data.records import SinkRecord
from consumers.connect.plugins.sink_task import SinkTask
from consumers.connect.storage.states import TaskId
from consumers.connect.tasks import erased_records
from consumers.connect.tasks.erased_records import ErasedRecords
from waylog.history.erasures import Erasure, Erasures


class Known:
    """Erasures that have been read."""

    def __init__(self) -> None:
        self.erasures = Erasures()

    def wait(self, timeout_s: float, *, stopping: threading.Event) -> bool:
        return True


class Sink(SinkTask):
    """A connector whose system is away at times."""

    def __init__(self) -> None:
        self.is_away = False
        self.told: list[Mapping[str, int]] = []

    def start(self, properties: Mapping[str, str]) -> None:
        pass

    def put(self, records: Sequence[SinkRecord]) -> None:
        pass

    def erase(self, erasures: Mapping[str, int]) -> None:
        self.told.append(dict(erasures))
        if self.is_away:
            raise RetriableException("away")

    def stop(self) -> None:
        pass


def test_an_erasure_that_could_not_be_carried_out_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(erased_records, "_AGAIN_S", 0.0)
    known, sink = Known(), Sink()
    records = ErasedRecords(TaskId("out", 0), known)
    records.tell(sink)
    assert sink.told == []
    known.erasures.add(Erasure("anna/phone", 5))
    sink.is_away = True
    records.tell(sink)
    records.tell(sink)
    assert sink.told == [{"anna/phone": 5}] * 2
    sink.is_away = False
    records.tell(sink)
    records.tell(sink)
    assert sink.told == [{"anna/phone": 5}] * 3
    # Of what is new it is told that alone.
    known.erasures.add(Erasure("bert/bike", 6))
    records.tell(sink)
    known.erasures.add(Erasure("anna/phone", 7))
    records.tell(sink)
    assert sink.told[3:] == [{"bert/bike": 6}, {"anna/phone": 7}]


def test_while_a_system_is_away_it_is_asked_from_time_to_time() -> None:
    known, sink = Known(), Sink()
    records = ErasedRecords(TaskId("out", 0), known)
    known.erasures.add(Erasure("anna/phone", 5))
    sink.is_away = True
    for _ in range(100):
        records.tell(sink)
    assert len(sink.told) == 1
