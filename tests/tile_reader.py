"""A reader of Mapbox Vector Tiles, written from the specification for the tests."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

Value = str | int | float | bool


def read_tile(content: bytes) -> dict[str, dict[str, Any]]:
    """Return layers by name.

    A layer has `extent`, and `features` with type, members, commands, parts and areas.
    """
    layers = {}
    for field, value in _fields(content):
        assert field == 3
        layer = _layer(value)
        layers[layer["name"]] = layer
    return layers


def _layer(content: bytes) -> dict[str, Any]:
    found: dict[int, list[Any]] = {}
    for field, value in _fields(content):
        found.setdefault(field, []).append(value)
    assert found[15] == [2]
    keys = [key.decode() for key in found.get(3, [])]
    values = [_value(value) for value in found.get(4, [])]
    return {
        "name": found[1][0].decode(),
        "extent": found[5][0],
        "features": [_feature(each, keys, values) for each in found[2]],
    }


def _value(content: bytes) -> Value:
    ((field, value),) = _fields(content)
    if field == 1:
        return str(value, "utf-8")
    if field in (2, 3):
        (number,) = struct.unpack("<f" if field == 2 else "<d", value)
        return float(number)
    if field == 7:
        return bool(value)
    assert field in (4, 5, 6)
    return _signed(value) if field == 6 else int(value)


def _feature(content: bytes, keys: list[str], values: list[Value]) -> dict[str, Any]:
    fields = dict(_fields(content))
    tags = list(_varints(fields.get(2, b"")))
    commands = list(_varints(fields[4]))
    parts = _parts(commands)
    return {
        "type": fields[3],
        "members": {
            keys[key]: values[value] for key, value in zip(tags[::2], tags[1::2], strict=True)
        },
        "commands": commands,
        "parts": parts,
        "areas": [_area(part) for part in parts],
    }


def _parts(commands: list[int]) -> list[list[tuple[int, int]]]:
    parts: list[list[tuple[int, int]]] = []
    x = y = at = 0
    while at < len(commands):
        identifier, count = commands[at] & 7, commands[at] >> 3
        at += 1
        if identifier == 7:
            assert count == 1
            continue
        for _ in range(count):
            x += _signed(commands[at])
            y += _signed(commands[at + 1])
            at += 2
            if identifier == 1:
                parts.append([])
            parts[-1].append((x, y))
    return parts


def _area(ring: list[tuple[int, int]]) -> float:
    following = [*ring[1:], ring[0]]
    return sum(x1 * y2 - x2 * y1 for (x1, y1), (x2, y2) in zip(ring, following, strict=True)) / 2


def _signed(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


def _fields(content: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        if tag & 7 == 0:
            value, at = _varint(content, at)
            yield tag >> 3, value
        elif tag & 7 in (1, 5):
            size = 8 if tag & 7 == 1 else 4
            yield tag >> 3, content[at : at + size]
            at += size
        else:
            assert tag & 7 == 2
            size, at = _varint(content, at)
            assert at + size <= len(content)
            yield tag >> 3, content[at : at + size]
            at += size


def _varints(content: bytes) -> Iterator[int]:
    at = 0
    while at < len(content):
        value, at = _varint(content, at)
        yield value


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
