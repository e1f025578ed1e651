"""One file of one device and day: positions are added to it in one step.

The new file is written beside it, made durable, and takes its name. So whoever reads it, at any
moment and after any crash, finds a whole file. Positions are in it once, by their ids, and in the
order of their times.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.formats.track_format import TrackFormat, TrackLine
from waylog.folders import sync_folder


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other tasks from changing files of a folder, which is made if need be.

    Raises OSError.
    """
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in made:
        sync_folder(each.parent)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def add_lines(path: Path, form: TrackFormat, device: str, lines: Iterable[TrackLine]) -> None:
    """Add positions to a file; the caller has locked its folder.

    Raises OSError, and ConnectException for a file that something else has written.
    """
    found = {each.id: each for each in read_lines(path, form, device)}
    before = len(found)
    for each in lines:
        found.setdefault(each.id, each)
    if len(found) == before:
        return
    _write(path, form, device, found.values())


def remove_lines(path: Path, form: TrackFormat, device: str, until: str) -> None:
    """Remove positions up to a time (`TrackLine.time`), and a file of which nothing is left.

    The caller has locked its folder. Raises as `add_lines`.
    """
    found = read_lines(path, form, device)
    kept = [each for each in found if each.time > until]
    if not kept:
        path.unlink(missing_ok=True)
        sync_folder(path.parent)
    elif len(kept) < len(found):
        _write(path, form, device, kept)


def _write(path: Path, form: TrackFormat, device: str, lines: Iterable[TrackLine]) -> None:
    texts = [each.text for each in sorted(lines)]
    body = f"{form.separator}\n".join(texts)
    whole = f"{form.head(device)}\n{body}\n{form.tail()}"
    temporary = path.with_name(f".{path.name}.new")
    try:
        with temporary.open("wb") as file:
            file.write(whole.encode())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def read_lines(path: Path, form: TrackFormat, device: str) -> list[TrackLine]:
    """Return the positions of a file, none if it does not exist; raises as `add_lines`."""
    try:
        whole = path.read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    head, tail = form.head(device) + "\n", "\n" + form.tail()
    lines: list[TrackLine | None] = []
    if whole.startswith(head) and whole.endswith(tail):
        texts = whole[len(head) : -len(tail)].split(f"{form.separator}\n")
        lines = [form.read(text) for text in texts]
    found = [each for each in lines if each is not None]
    if not found or len(found) < len(lines):
        raise ConnectException(
            f"{path} was not written by this connector, or was changed: move it away"
        )
    return found
