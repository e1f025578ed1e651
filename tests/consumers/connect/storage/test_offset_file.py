"""The file of a standalone worker's offsets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from consumers.connect.data.exceptions import ConnectException, DataException
from consumers.connect.storage.offset_file import OffsetFile, OffsetFileDamaged
from consumers.connect.storage.offsets import StoredOffsetReader, check_offset


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "offsets.json"


def test_offsets_outlast_the_process(path: Path) -> None:
    OffsetFile(path).put("source", [({"filename": "a"}, {"position": 5})])
    assert OffsetFile(path).get("source", {"filename": "a"}) == {"position": 5}
    assert OffsetFile(path).get("other", {"filename": "a"}) is None


def test_the_order_of_members_does_not_matter(path: Path) -> None:
    offsets = OffsetFile(path)
    offsets.put("source", [({"a": 1, "b": 2}, {"position": 1})])
    offsets.put("source", [({"b": 2, "a": 1}, {"position": 2})])
    assert offsets.all("source") == [({"a": 1, "b": 2}, {"position": 2})]


def test_offsets_are_forgotten(path: Path) -> None:
    offsets = OffsetFile(path)
    offsets.put("source", [({"f": "a"}, {"p": 1}), ({"f": "b"}, {"p": 2})])
    offsets.put("source", [({"f": "a"}, None), ({"f": "unknown"}, None)])
    assert OffsetFile(path).all("source") == [({"f": "b"}, {"p": 2})]
    offsets.put("source", [({"f": "b"}, None)])
    assert OffsetFile(path).all("source") == []


def test_the_file_is_json(path: Path) -> None:
    OffsetFile(path).put("source", [({"filename": "a"}, {"position": 5})])
    assert json.loads(path.read_text()) == {
        "version": 1,
        "offsets": [
            {"connector": "source", "partition": {"filename": "a"}, "offset": {"position": 5}}
        ],
    }
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_reader_reads_the_offsets_of_its_connector(path: Path) -> None:
    offsets = OffsetFile(path)
    offsets.put("source", [({"f": "a"}, {"p": 1})])
    reader = StoredOffsetReader(offsets, "source")
    assert reader.offsets([{"f": "a"}, {"f": "b"}]) == [({"f": "a"}, {"p": 1}), ({"f": "b"}, None)]


@pytest.mark.parametrize(
    "data",
    [
        b'{"version":1,"offsets":[{"connector":"a"',
        b"[]",
        b"position=5",
        b'{"version":2,"offsets":[]}',
        b"\xac\xed\x00\x05sr\x00\x11java.util.HashMap",
    ],
)
def test_a_damaged_file_is_refused_and_stays_as_it_is(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(OffsetFileDamaged, match=str(path)):
        OffsetFile(path)
    assert path.read_bytes() == data


def test_an_empty_file_has_no_offsets(path: Path) -> None:
    path.touch()
    assert OffsetFile(path).all("source") == []


def test_what_cannot_be_stored_does_not_count(path: Path) -> None:
    offsets = OffsetFile(path)
    offsets.put("source", [({"f": "a"}, {"p": 1})])
    # A folder of the temporary file's name.
    path.with_name(path.name + ".new").mkdir()
    with pytest.raises(ConnectException, match="offsets cannot be stored"):
        offsets.put("source", [({"f": "a"}, {"p": 2})])
    assert offsets.get("source", {"f": "a"}) == {"p": 1}
    assert OffsetFile(path).get("source", {"f": "a"}) == {"p": 1}


@pytest.mark.parametrize("value", [None, {}, {"a": 1, "b": "x", "c": None, "d": 1.5, "e": True}])
def test_offsets_have_primitive_members(value: object) -> None:
    check_offset(value)


@pytest.mark.parametrize("value", [5, [1], {"a": [1]}, {"a": {"b": 1}}, {1: 2}])
def test_other_offsets_are_refused(value: object) -> None:
    with pytest.raises(DataException):
        check_offset(value)
