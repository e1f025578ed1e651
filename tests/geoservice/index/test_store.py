"""Index files that are missing, damaged or of another format."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geoservice.index.format import IndexFormatError, read_header, write_index
from geoservice.index.store import IndexFile, IndexUnavailable


@pytest.fixture
def copy(world_path: Path, tmp_path: Path) -> Path:
    path = tmp_path / "copy.bin"
    path.write_bytes(world_path.read_bytes())
    return path


def damage(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0xFF]))


def test_a_missing_index_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(IndexUnavailable, match="waylog geo world"):
        IndexFile(tmp_path / "none.bin")


@pytest.mark.parametrize("content", [b"", b"x", b"WAYLOGEO", bytes(5000), b"PK\3\4" * 100])
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "foreign.bin"
    path.write_bytes(content)
    with pytest.raises(IndexUnavailable, match=r"foreign\.bin"):
        IndexFile(path)


def test_a_damaged_section_is_refused_by_its_name(copy: Path) -> None:
    header = read_header(memoryview(copy.read_bytes()))
    for name in ("meta", "vertices", "towns", "strings"):
        section = header.sections[name]
        damage(copy, section.offset + section.length // 2)
        with pytest.raises(IndexUnavailable, match=f"checksum of section '{name}'"):
            IndexFile(copy)
        damage(copy, section.offset + section.length // 2)
    IndexFile(copy)


def test_a_cut_file_is_refused(copy: Path) -> None:
    with copy.open("r+b") as file:
        file.truncate(copy.stat().st_size // 2)
    with pytest.raises(IndexUnavailable, match="damaged"):
        IndexFile(copy)


def test_another_format_version_is_refused_with_what_to_do(copy: Path) -> None:
    damage(copy, 12)
    with pytest.raises(IndexUnavailable, match="build the index again"):
        IndexFile(copy)


def test_any_flipped_byte_of_the_header_is_noticed(copy: Path) -> None:
    for offset in range(0, 200):
        if offset in range(44, 48):
            continue  # unused
        damage(copy, offset)
        with pytest.raises(IndexUnavailable):
            IndexFile(copy)
        damage(copy, offset)


@settings(max_examples=300)
@given(st.binary(max_size=300))
def test_no_header_is_too_strange(garbage: bytes) -> None:
    for data in (garbage, b"WAYLOGEO\4\3\2\1\1\0" + garbage):
        with pytest.raises(IndexFormatError):
            read_header(memoryview(data))


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from("abcdef"), st.binary(max_size=200)))
def test_sections_are_read_as_they_were_written(tmp_path: Path, sections: dict[str, bytes]) -> None:
    path = tmp_path / "some.bin"
    content_hash = write_index(path, sections)
    data = path.read_bytes()
    header = read_header(memoryview(data))
    assert header.content_hash == content_hash
    assert {
        name: data[section.offset : section.offset + section.length]
        for name, section in header.sections.items()
    } == sections
    assert all(section.offset % 64 == 0 for section in header.sections.values())


def test_opening_takes_milliseconds(world_path: Path) -> None:
    times = []
    for _ in range(5):
        started = time.process_time()
        IndexFile(world_path)
        times.append(time.process_time() - started)
    assert min(times) < 0.1


def test_an_open_index_survives_its_replacement(copy: Path) -> None:
    index = IndexFile(copy)
    before = index.world.reverse(47.141, 9.5209)
    write_index(copy, {"meta": b"{}"})
    assert index.world.reverse(47.141, 9.5209) == before
