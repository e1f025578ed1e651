"""Index files for tests, made from others."""

from __future__ import annotations

from pathlib import Path

from geoservice.index.format import read_header, write_index


def read_sections(path: Path) -> dict[str, bytes]:
    """Return all sections of an index file."""
    data = path.read_bytes()
    header = read_header(memoryview(data))
    return {
        name: data[section.offset : section.offset + section.length]
        for name, section in header.sections.items()
    }


def write_renamed(source: Path, target: Path, old: bytes, new: bytes) -> None:
    """Write a copy of an index with a text in its names replaced by another of the same length."""
    assert len(old) == len(new)
    sections = read_sections(source)
    assert old in sections["strings"]
    write_index(target, sections | {"strings": sections["strings"].replace(old, new)})
