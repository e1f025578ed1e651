"""The sink connector of files, without a worker."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from consumers.connect.data.exceptions import ConnectException, RetriableException
from consumers.connect.data.records import SinkRecord
from consumers.connect.data.schemas import INT64, struct_of
from consumers.connect.data.structs import Struct
from consumers.connect.file.file_sink import FileStreamSinkConnector, FileStreamSinkTask
from consumers.connect.plugins.sink_task import ErrantRecordReporter, TopicPartition


class Context:
    """Remembers what the task has asked for."""

    def __init__(self) -> None:
        self.timeouts: list[int] = []

    def configs(self) -> Mapping[str, str]:
        return {}

    def assignment(self) -> set[TopicPartition]:
        return set()

    def offset(self, partition: TopicPartition, offset: int) -> None:
        raise AssertionError

    def timeout(self, timeout_ms: int) -> None:
        self.timeouts.append(timeout_ms)

    def pause(self, *partitions: TopicPartition) -> None:
        raise AssertionError

    def resume(self, *partitions: TopicPartition) -> None:
        raise AssertionError

    def request_commit(self) -> None:
        raise AssertionError

    def errant_record_reporter(self) -> ErrantRecordReporter | None:
        return None


def record(value: Any, schema: Any = None) -> SinkRecord:
    return SinkRecord(
        topic="t", partition=0, value=value, value_schema=schema, offset=0, original_topic="t",
        original_partition=0, original_offset=0,
    )  # fmt: skip


def started(path: Path) -> FileStreamSinkTask:
    task = FileStreamSinkTask()
    task.context = Context()
    task.start({"file": str(path), "topics": "t"})
    return task


def test_each_record_is_a_line(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    task = started(path)
    schema = struct_of({"a": INT64})
    task.put([record("foo"), record(None), record({"a": 1, "b": [True]})])
    task.put([record(Struct(schema, {"a": 5}), schema), record(1.5), record("\ud800")])
    task.flush({})
    assert path.read_bytes() == b"foo\nnull\n{a=1, b=[true]}\nStruct{a=5}\n1.5\n?\n"
    task.stop()


def test_lines_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("before\n")
    task = started(path)
    task.put([record("after")])
    task.put([])
    task.stop()
    assert path.read_text() == "before\nafter\n"


def test_a_line_that_was_cut_off_by_a_kill_stays_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("whole\nha")
    task = started(path)
    task.put([record("half")])
    task.stop()
    assert path.read_text() == "whole\nha\nhalf\n"


def test_a_file_that_was_renamed_away_is_followed_by_a_new_one(tmp_path: Path) -> None:
    path, old = tmp_path / "out.txt", tmp_path / "out.1"
    task = started(path)
    task.put([record("first")])
    path.rename(old)
    task.put([record("second")])
    task.flush({})
    assert (old.read_text(), path.read_text()) == ("first\n", "second\n")
    # One that is copied and cut stays.
    os.truncate(path, 0)
    task.put([record("third")])
    assert path.read_text() == "third\n"
    task.stop()


@pytest.mark.parametrize("is_written_again", [True, False])
def test_lines_that_went_with_a_removed_file_come_again(
    tmp_path: Path, is_written_again: bool
) -> None:
    path = tmp_path / "out.txt"
    task = started(path)
    task.put([record("committed")])
    task.flush({})
    path.unlink()
    task.put([record("kept")])
    task.flush({})
    path.unlink()
    task.flush({})
    task.put([record("lost")])
    path.unlink()
    if is_written_again:
        task.put([record("next")])
    with pytest.raises(ConnectException, match=r"out\.txt was removed with lines"):
        task.flush({})
    task.put([record("lost"), record("next")])
    task.flush({})
    assert path.read_text().endswith("lost\nnext\n")
    task.stop()


def test_a_full_disk_is_waited_for() -> None:
    task = started(Path("/dev/full"))
    with pytest.raises(RetriableException, match="No space left"):
        task.put([record("a")])
    context = task.context
    assert isinstance(context, Context)
    assert context.timeouts == [1000]
    task.stop()


def test_what_a_failed_write_has_left_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    code = f"""
import resource, signal
from pathlib import Path
from consumers.connect.data.exceptions import RetriableException
from tests.consumers.connect.file.test_file_sink import record, started
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
task = started(Path({str(path)!r}))
task.put([record("kept")])
try:
    task.put([record("x" * 300) for _ in range(10)])
except RetriableException as error:
    print("refused")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "refused\n"
    assert path.read_text() == "kept\n"


def test_a_file_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConnectException, match="Couldn't find or create file"):
        started(tmp_path / "missing" / "out.txt")


def test_all_tasks_append_to_the_same_file() -> None:
    connector = FileStreamSinkConnector()
    properties = {"file": "a", "topics": "t"}
    connector.start(properties)
    assert connector.task_configs(3) == [properties] * 3


def test_offsets_may_be_altered() -> None:
    assert FileStreamSinkConnector().alter_offsets({}, {TopicPartition("t", 0): 5})
