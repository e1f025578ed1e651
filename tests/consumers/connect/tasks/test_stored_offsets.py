"""What a source task stores after its store of offsets has failed, on a real broker."""

from __future__ import annotations

import queue
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.data.records import SourceRecord
from consumers.connect.errors.settings import ErrorSettings
from consumers.connect.plugins.source_task import SourceTask
from consumers.connect.storage.offset_file import OffsetFile
from consumers.connect.storage.offsets import Offset, Partition
from consumers.connect.storage.states import State, TargetState, TaskId
from consumers.connect.tasks.client_properties import ClientProperties
from consumers.connect.tasks.converters import make_pipeline
from consumers.connect.tasks.source_task_thread import SourceTaskThread
from consumers.connect.tasks.timing import Timing
from tests.consumers.running import await_condition

CONVERTER = "StringConverter"
PARTITION = {"p": 1}


class Source(SourceTask):
    """Makes a record of each number that it is given."""

    def __init__(self) -> None:
        self.numbers: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.polls = 0

    def start(self, properties: Mapping[str, str]) -> None:
        """Do nothing."""

    def poll(self) -> Sequence[SourceRecord] | None:
        self.polls += 1
        try:
            number = self.numbers.get(timeout=0.02)
        except queue.Empty:
            return None
        return [SourceRecord(topic="t", source_partition=PARTITION, source_offset={"n": number})]

    def stop(self) -> None:
        """Do nothing."""


class Listener:
    def task_is(self, task: TaskId, state: State, trace: str = "") -> None:
        """Take no note."""

    def topic_is_used(self, connector: str, topic: str) -> None:
        """Take no note."""


class Store(OffsetFile):
    """Fails once, after the task has gone on to the next record."""

    task: Source
    thread: SourceTaskThread
    has_failed = False

    def put(self, connector: str, offsets: Sequence[tuple[Partition, Offset | None]]) -> None:
        if not self.has_failed:
            self.has_failed = True
            send(self.task, self.thread, 2)
            raise ConnectException("the disk is full")
        super().put(connector, offsets)


def send(task: Source, thread: SourceTaskThread, number: int) -> None:
    """Have the task write a record, and wait until it has gone on after its acknowledgement."""
    task.numbers.put(number)

    def is_written() -> bool:
        values = {each.attribute: each.value for each in thread.measures()}
        return values["source-record-write-total"] == number

    await_condition(is_written, 60, "its acknowledgement")
    polls = task.polls
    await_condition(lambda: task.polls >= polls + 2, 60, "the next polls")


def test_an_offset_that_was_not_stored_does_not_replace_a_newer_one(
    servers: str, tmp_path: Path
) -> None:
    task, store = Source(), Store(tmp_path / "offsets")
    thread = SourceTaskThread(
        *(TaskId("c", 0), TargetState.STARTED, Listener()),
        task=task,
        properties={},
        clients=ClientProperties(servers, {}, {}),
        pipeline=make_pipeline({"key.converter": CONVERTER, "value.converter": CONVERTER}, {}),
        errors=ErrorSettings(),
        timing=Timing(),
        store=store,
        creation=None,
    )
    store.task, store.thread = task, thread
    thread.start()
    try:
        send(task, thread, 1)
        with pytest.raises(ConnectException, match="the disk is full"):
            thread.commit_offsets()
        thread.commit_offsets()
        assert store.get("c", PARTITION) == {"n": 2}
    finally:
        thread.stop()
        assert thread.wait(60)
