"""Reads the objects of a JSON file that may be larger than memory, as a stream."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from waylog.replay.readers.source import Source, UnreadableTrack

_LINE_BYTES_MAX = 4 * 1024 * 1024


def objects(source: Source, prefix: str) -> Iterator[dict[str, Any]]:
    """Yield the objects at a path as ijson writes it (`features.item`); raises UnreadableTrack."""
    import ijson

    with source.open() as stream:
        if stream.read(3) != b"\xef\xbb\xbf":
            stream.seek(0)
        try:
            for each in ijson.items(stream, prefix, use_float=True):
                if isinstance(each, dict):
                    yield each
        except (ijson.JSONError, UnicodeDecodeError) as error:
            raise UnreadableTrack(f"{source}: {error}") from error


def lines(source: Source) -> Iterator[bytes]:
    """Yield the lines that are not empty; raises UnreadableTrack for a line that is too long."""
    with source.open() as stream:
        try:
            while line := stream.readline(_LINE_BYTES_MAX):
                if len(line) == _LINE_BYTES_MAX:
                    raise UnreadableTrack(
                        f"{source}: a line is longer than {_LINE_BYTES_MAX} bytes"
                    )
                if not line.isspace():
                    yield line
        except EOFError as error:
            raise UnreadableTrack(f"{source}: {error}") from error


def number(value: object) -> float | None:
    """Return a finite number, which may be written as text, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        result = float(value)
    except (ValueError, OverflowError):
        return None
    return result if math.isfinite(result) else None


def not_read(members: Mapping[str, Any], *groups: tuple[str, ...]) -> set[str]:
    """Return the names of values that say something and were not read.

    Of each group of names for the same number the first that has a value is read, if that is a
    number at all.
    """
    names: set[str] = set()
    for group in groups:
        given = [name for name in group if members.get(name) is not None]
        names.update(given[1:])
        if given and number(value := members[given[0]]) is None and not _is_nan(value):
            names.add(given[0])
    return names


def _is_nan(value: object) -> bool:
    if isinstance(value, str):
        return value.strip().lower() == "nan"
    return isinstance(value, float) and math.isnan(value)


def mapping(value: object) -> dict[str, Any]:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> list[Any]:
    """Return the value if it is an array, else an empty one."""
    return value if isinstance(value, list) else []
