"""The file with a snapshot of a gateway's views, which saves reading the log again.

A file consists of frames with a length, a CRC-32 and MessagePack: a head, the entries of the views,
an end. It is written to a temporary file, synced and renamed, so there is always a complete one or
none. It holds nothing that is not in the log, and can be deleted at any time.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final, NamedTuple

import msgspec

from waylog.folders import sync_folder
from waylog.malformed import MALFORMED

#: Version of the file format; a file with another one is ignored.
VERSION: Final = 1
_MAGIC: Final = b"waylog-v"
_FRAME = struct.Struct("<II")
_FRAME_BYTES_MAX: Final = 256 * 1024 * 1024


class Unfit(Exception):
    """There is no usable snapshot; the text says why."""


class KeyFileEntry(msgspec.Struct):
    """One file of keys (gateway.views.snapshots.key_files)."""

    name: str
    keys: int
    day: int  # days since 1970, when it was written
    covers: dict[int, int]  # by partition: the offset after the last fix whose key is in the file


class SavedTopic(msgspec.Struct):
    """The offsets of a view, by partition."""

    identity: str  # waylog.kafka.ranges.topic_extent
    next: dict[int, int]
    #: Ranges before `next` that have not been read yet.
    gaps: dict[int, tuple[int, int]] = {}


class Head(msgspec.Struct):
    """The facts that apply to all entries."""

    version: int
    key_check: int  # identifies the secret with which keys are made
    topics: dict[str, SavedTopic]
    runs: list[KeyFileEntry]
    forgot: bool  # gateway.fixes.device_times


class Entry(NamedTuple):
    """The newest value of a device."""

    device: str
    live: int  # the time that decides which value is the newest, ms
    time: int | None  # gateway.fixes.device_times, ms
    value: bytes


class _Entries(msgspec.Struct):
    topic: str
    entries: list[Entry]


class _End(msgspec.Struct):
    entries: int


_encode = msgspec.msgpack.Encoder().encode
_head = msgspec.msgpack.Decoder(Head)
_entries = msgspec.msgpack.Decoder(_Entries)
_end = msgspec.msgpack.Decoder(_End)


def write(path: Path, head: Head, parts: Iterable[tuple[str, list[Entry]]]) -> int:
    """Write a snapshot in place of the previous one; return its size. Raises OSError."""
    aside = path.with_name(f"{path.name}.new")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    count = 0
    with os.fdopen(descriptor, "wb") as file:
        file.write(_MAGIC)
        _write_frame(file, _encode(head))
        for topic, entries in parts:
            count += len(entries)
            _write_frame(file, _encode(_Entries(topic, entries)))
        _write_frame(file, b"")
        _write_frame(file, _encode(_End(count)))
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    aside.replace(path)
    sync_folder(path.parent)
    return size


def read(path: Path) -> tuple[Head, Iterator[tuple[str, list[Entry]]]]:
    """Return the head and an iterator of the entries; both raise Unfit for an invalid file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise Unfit("there is none yet") from None
    except OSError as error:
        raise Unfit(str(error)) from error
    frames = _frames(content)
    try:
        head = _head.decode(next(frames))
    except (*MALFORMED, StopIteration) as error:
        raise Unfit(f"its head cannot be read: {error}") from error
    if head.version != VERSION:
        raise Unfit(f"it is of version {head.version}")
    return head, _parts(frames)


def _parts(frames: Iterator[bytes]) -> Iterator[tuple[str, list[Entry]]]:
    count = 0
    try:
        for frame in frames:
            if not frame:
                if _end.decode(next(frames)).entries != count:
                    raise Unfit("entries are missing")
                return
            part = _entries.decode(frame)
            count += len(part.entries)
            yield part.topic, part.entries
    except (*MALFORMED, StopIteration) as error:
        raise Unfit(f"its entries cannot be read: {error}") from error
    raise Unfit("its end is missing")


def _frames(content: bytes) -> Iterator[bytes]:
    if not content.startswith(_MAGIC):
        raise Unfit("it is no snapshot")
    view = memoryview(content)
    at = len(_MAGIC)
    while at < len(content):
        if len(content) - at < _FRAME.size:
            raise Unfit("it is cut short")
        size, checksum = _FRAME.unpack_from(content, at)
        at += _FRAME.size
        if size > min(_FRAME_BYTES_MAX, len(content) - at):
            raise Unfit("it is cut short")
        frame = bytes(view[at : at + size])
        if zlib.crc32(frame) != checksum:
            raise Unfit("a checksum is wrong")
        at += size
        yield frame


def _write_frame(file: IO[bytes], payload: bytes) -> None:
    file.write(_FRAME.pack(len(payload), zlib.crc32(payload)))
    file.write(payload)
