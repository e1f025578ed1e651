"""A file that grows, is missing, is replaced, or is cut."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from consumers.connect.file import followed_file
from consumers.connect.file.followed_file import FollowedFile


def lines_of(file: FollowedFile, rounds: int = 10) -> list[bytes | None]:
    """Return the lines that are there now."""
    found: list[bytes | None] = []
    for _ in range(rounds):
        found += [line for line, _ in file.read_lines() or []]
    return found


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.txt"


def test_a_file_is_waited_for(path: Path) -> None:
    file = FollowedFile(path, 0, 10**6)
    assert file.read_lines() is None
    path.write_bytes(b"a\n")
    assert file.read_lines() == [(b"a", 2)]


def test_a_file_is_followed_while_it_grows(path: Path) -> None:
    path.write_bytes(b"a\nb\n")
    file = FollowedFile(path, 0, 10**6)
    assert file.read_lines() == [(b"a", 2), (b"b", 4)]
    append(path, b"c\n")
    assert file.read_lines() == [(b"c", 6)]


def test_a_line_is_never_sent_in_halves(path: Path) -> None:
    path.write_bytes(b"first ha")
    file = FollowedFile(path, 0, 10**6)
    assert lines_of(file) == []
    append(path, b"lf\nnext")
    assert file.read_lines() == [(b"first half", 11)]
    append(path, b"\n")
    assert file.read_lines() == [(b"next", 16)]


def test_reading_goes_on_at_a_position(path: Path) -> None:
    path.write_bytes(b"a\nb\nc\n")
    assert lines_of(FollowedFile(path, 4, 10**6)) == [b"c"]


def test_a_position_that_the_file_does_not_have_means_another_file(path: Path) -> None:
    path.write_bytes(b"new\n")
    assert FollowedFile(path, 1000, 10**6).read_lines() == [(b"new", 4)]


def test_a_file_that_was_renamed_away_is_read_to_its_end_first(path: Path) -> None:
    path.write_bytes(b"a\n")
    file = FollowedFile(path, 0, 10**6)
    assert lines_of(file) == [b"a"]
    append(path, b"b\n")
    path.rename(path.with_name("log.1"))
    append(path.with_name("log.1"), b"c\n")
    path.write_bytes(b"d\ne\n")
    assert lines_of(file) == [b"b", b"c", b"d", b"e"]


def test_the_new_file_is_read_from_its_beginning(path: Path) -> None:
    path.write_bytes(b"a long line\n")
    file = FollowedFile(path, 0, 10**6)
    assert lines_of(file) == [b"a long line"]
    path.rename(path.with_name("log.1"))
    path.write_bytes(b"x\n")
    positions = [position for _ in range(5) for _, position in file.read_lines() or []]
    assert positions == [2]


def test_what_is_written_to_the_old_file_while_the_new_one_is_empty_is_read(path: Path) -> None:
    path.write_bytes(b"a\n")
    file = FollowedFile(path, 0, 10**6)
    assert lines_of(file) == [b"a"]
    old = path.with_name("log.1")
    path.rename(old)
    path.touch()
    assert lines_of(file) == []
    append(old, b"b\n")
    assert lines_of(file) == [b"b"]
    append(path, b"c\n")
    assert lines_of(file) == [b"c"]


def test_a_last_line_without_end_waits_for_its_writer(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(b"a\nha")
    file = FollowedFile(path, 0, 10**6)
    assert lines_of(file) == [b"a"]
    old = path.with_name("log.1")
    path.rename(old)
    path.write_bytes(b"new\n")
    assert lines_of(file) == []
    append(old, b"lf")
    assert lines_of(file) == []
    monkeypatch.setattr(followed_file, "LAST_LINE_S", 0.0)
    assert lines_of(file) == [b"half", b"new"]


def test_a_file_that_was_cut_is_read_from_its_beginning(path: Path) -> None:
    path.write_bytes(b"a\nb\nhal")
    file = FollowedFile(path, 0, 10**6)
    assert lines_of(file) == [b"a", b"b"]
    os.truncate(path, 0)
    assert lines_of(file) == []
    append(path, b"c\n")
    assert lines_of(file) == [b"c"]


def test_a_deleted_file_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_file, "LAST_LINE_S", 0.0)
    path.write_bytes(b"a\n")
    file = FollowedFile(path, 0, 10**6)
    assert lines_of(file) == [b"a"]
    path.unlink()
    assert file.read_lines() is None
    path.write_bytes(b"b\n")
    assert lines_of(file) == [b"b"]
    file.close()


def test_a_line_of_many_reads_is_one_line(path: Path) -> None:
    line = b"x" * 1_000_000
    path.write_bytes(line + b"\n")
    assert lines_of(FollowedFile(path, 0, 10**6)) == [line]


def test_all_writers_of_a_pipe_are_read(path: Path) -> None:
    os.mkfifo(path)
    file = FollowedFile(path, 100, 10**6)
    assert file.read_lines() == []
    for name in (b"a", b"b"):
        with path.open("wb") as pipe:
            assert file.read_lines() == []
            pipe.write(name + b"1\n" + name)
            pipe.flush()
            assert lines_of(file) == [name + b"1"]
            pipe.write(b"2\n")
        assert lines_of(file) == [name + b"2"]
        assert file.read_lines() == []
    file.close()
