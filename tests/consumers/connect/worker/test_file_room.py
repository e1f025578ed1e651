"""A worker refuses tasks before it has no file left to answer with."""

from __future__ import annotations

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.worker.file_room import TASK_FILES, FileRoom
from tests.file_descriptors import none_free
from waylog.process.file_limit import files_left


def tasks_taken(room: FileRoom) -> int:
    taken = 0
    while True:
        try:
            room.take()
        except ConnectException as error:
            assert "LimitNOFILE" in str(error)
            return taken
        taken += 1


def test_tasks_that_begin_at_once_do_not_take_the_last_files() -> None:
    now = 0.0
    left = 1000
    room = FileRoom(lambda: left, lambda: now)
    taken = tasks_taken(room)
    assert taken == (1000 - 256) // TASK_FILES
    # Later their files are open, and count as they are.
    now, left = 60.0, 1000 - 8 * taken
    assert tasks_taken(room) == (left - 256) // TASK_FILES


def test_a_process_without_a_file_left_takes_none() -> None:
    assert files_left() > 0
    with none_free():
        assert files_left() <= 0
        assert tasks_taken(FileRoom()) == 0
