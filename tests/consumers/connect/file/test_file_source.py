"""The source connector of files, without a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.configuration.plugins import ExactlyOnceSupport
from consumers.connect.data.exceptions import ConnectException
from consumers.connect.data.records import SourceRecord
from consumers.connect.data.schemas import STRING
from consumers.connect.file.file_source import FileStreamSourceConnector, FileStreamSourceTask


class Context:
    """Stored offsets."""

    def __init__(self, offset: dict[str, Any] | None = None) -> None:
        self.offset_reader = self
        self._offset = offset

    transaction_context = None

    def configs(self) -> Mapping[str, str]:
        return {}

    def offset(self, partition: Mapping[str, Any]) -> dict[str, Any] | None:
        assert list(partition) == ["filename"]
        return self._offset

    def offsets(
        self, partitions: Sequence[Mapping[str, Any]]
    ) -> list[tuple[Mapping[str, Any], dict[str, Any] | None]]:
        return [(each, self._offset) for each in partitions]


def started(offset: dict[str, Any] | None = None, **properties: str) -> FileStreamSourceTask:
    task = FileStreamSourceTask()
    task.context = Context(offset)
    task.start(
        {"topic": "lines", **{name.replace("_", "."): properties[name] for name in properties}}
    )
    return task


def polled(task: FileStreamSourceTask, rounds: int = 3) -> list[SourceRecord]:
    return [record for _ in range(rounds) for record in task.poll() or ()]


def test_each_line_is_a_record_with_its_position(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes("foo\nbär\n".encode())
    records = polled(started(file=str(path)))
    assert [record.value for record in records] == ["foo", "bär"]
    assert [record.source_offset for record in records] == [{"position": 4}, {"position": 9}]
    assert {str(record.source_partition) for record in records} == {str({"filename": str(path)})}
    assert {record.topic for record in records} == {"lines"}
    assert all(record.value_schema is STRING and record.key is None for record in records)
    assert all(record.timestamp for record in records)


def test_a_task_goes_on_at_the_stored_offset(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"foo\nbar\n")
    task = started({"position": 4}, file=str(path))
    assert [record.value for record in polled(task)] == ["bar"]
    task.stop()


def test_a_batch_has_no_more_lines_than_it_may(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"a\nb\nc\n")
    task = started(file=str(path), batch_size="2")
    assert [len(task.poll() or ()) for _ in range(2)] == [2, 1]


def test_a_line_that_is_too_long_fails_the_task_or_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"one\n" + b"x" * 11 + b"\ntwo\n")
    task = started(file=str(path), line_bytes_max="10")
    assert [record.value for record in task.poll() or ()] == ["one"]
    with pytest.raises(ConnectException, match=r"in\.txt: a line has more than 10 bytes"):
        polled(task)
    task.stop()
    task = started(file=str(path), line_bytes_max="10", errors_tolerance="all")
    records = polled(task)
    assert [record.value for record in records] == ["one", "two"]
    assert records[-1].source_offset == {"position": 20}
    task.stop()


def test_a_line_without_end_fails_the_task_before_it_fills_the_memory() -> None:
    task = started(file="/dev/zero")
    with pytest.raises(ConnectException, match="a line has more than 16777216 bytes"):
        polled(task, 1000)
    task.stop()


def test_a_missing_file_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    task = started(file=str(path))
    assert task.poll() is None
    path.write_bytes(b"a\n")
    assert [record.value for record in polled(task)] == ["a"]


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConnectException, match="directory"):
        polled(started(file=str(tmp_path)))


@pytest.mark.parametrize("position", ["4", -1])
def test_a_stored_offset_of_another_kind_is_refused(position: Any, tmp_path: Path) -> None:
    with pytest.raises(ConnectException, match="incorrect type"):
        started({"position": position}, file=str(tmp_path / "in.txt"))


def test_a_file_has_one_task() -> None:
    connector = FileStreamSourceConnector()
    connector.start({"file": "a", "topic": "t"})
    assert connector.task_configs(5) == [{"file": "a", "topic": "t"}]


def test_a_topic_is_required() -> None:
    with pytest.raises(ConfigException, match='Missing required configuration "topic"'):
        FileStreamSourceConnector().start({"file": "a"})


def test_only_a_file_can_be_read_again() -> None:
    connector = FileStreamSourceConnector()
    asked = connector.exactly_once_support
    assert asked({"topic": "t", "file": "a"}) is ExactlyOnceSupport.SUPPORTED
    assert asked({"topic": "t"}) is ExactlyOnceSupport.UNSUPPORTED


def alter(*offsets: tuple[Mapping[str, Any], Mapping[str, Any] | None], file: str = "a") -> bool:
    return FileStreamSourceConnector().alter_offsets({"topic": "t", "file": file}, offsets)


def test_offsets_may_be_altered() -> None:
    assert alter(({"filename": "a"}, {"position": 0}), ({"filename": "b"}, {"position": 5}))
    assert alter(({"whatever": 1}, None))


@pytest.mark.parametrize(
    ("partition", "offset", "message"),
    [
        ({"filename": "a"}, {}, "contain the key 'position'"),
        ({"filename": "a"}, {"position": "1"}, "expected to be a Long"),
        ({"filename": "a"}, {"position": True}, "expected to be a Long"),
        ({"filename": "a"}, {"position": -1}, "non-negative"),
        ({"file": "a"}, {"position": 1}, "contain the key 'filename'"),
    ],
)
def test_offsets_of_another_form_are_refused(
    partition: dict[str, Any], offset: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConnectException, match=message):
        alter((partition, offset))


def test_offsets_of_standard_input_cannot_be_altered() -> None:
    with pytest.raises(ConnectException, match="stdin"):
        alter(file="")
