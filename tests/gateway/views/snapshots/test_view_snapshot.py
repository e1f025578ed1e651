"""The snapshot file of views."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.views.snapshots.view_snapshot import (
    VERSION,
    Entry,
    Head,
    KeyFileEntry,
    SavedTopic,
    Unfit,
    read,
    write,
)

HEAD = Head(
    VERSION,
    2**63 - 1,
    {"location": SavedTopic("cluster topic", {0: 5, 1: 2**40}, {1: (3, 9)})},
    [KeyFileEntry("00000001.keys", 3, 20_000, {0: 5})],
    False,
)
PARTS = [
    ("location", [Entry("ada/phone", 1, 2, b"{}"), Entry("ada/b\u00fcro", -1, 2**40, b"\xff")]),
    ("address", [Entry("ada/phone", 1, None, b"x" * 1000)]),
]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    assert write(path, HEAD, PARTS) == path.stat().st_size
    assert path.stat().st_mode & 0o777 == 0o600
    head, parts = read(path)
    assert head == HEAD
    assert list(parts) == PARTS
    write(path, HEAD, [])
    assert list(read(path)[1]) == []
    assert [each.name for each in tmp_path.iterdir()] == ["snapshot"]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_is_damaged_is_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "snapshot"
    write(path, HEAD, PARTS)
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        del content[at:]
    else:
        content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    with pytest.raises(Unfit):
        list(read(path)[1])


def test_without_a_file_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(Unfit, match="none yet"):
        read(tmp_path / "snapshot")


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "snapshot", msgspec.structs.replace(HEAD, version=VERSION + 1), PARTS)
    with pytest.raises(Unfit, match="of version"):
        read(tmp_path / "snapshot")
