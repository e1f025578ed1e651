"""The offsets up to which Spark has written a history, out of its write-ahead log.

Spark plans batch N in `offsets/N`: a line with the version, one with settings, and a line of JSON
for each source. When the batch is done, there is `commits/N`.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from waylog.history.storage import Storage
from waylog.malformed import MALFORMED

logger = logging.getLogger(__name__)

_VERSION: Final = b"v1"


def committed_offsets(storage: Storage, checkpoint: str) -> dict[int, int]:
    """Return the next offset of each partition after the last batch that is done.

    `checkpoint` is a folder in the storage. Empty if there is no such batch, or none that can be
    read: who starts at the beginning of the log finds by the files what is written already.
    """
    done = _numbers(storage, f"{checkpoint}/commits")
    for number in sorted(done & _numbers(storage, f"{checkpoint}/offsets"), reverse=True)[:1]:
        content = storage.read_bytes(f"{checkpoint}/offsets/{number}") or b""
        lines = content.splitlines()
        if len(lines) != 3 or lines[0] != _VERSION:
            logger.warning("%s/offsets/%d cannot be read", checkpoint, number)
            return {}
        try:
            return msgspec.json.decode(lines[2], type=dict[int, int])
        except MALFORMED as error:
            logger.warning("%s/offsets/%d cannot be read: %s", checkpoint, number, error)
    return {}


def _numbers(storage: Storage, folder: str) -> set[int]:
    try:
        names = [path.rpartition("/")[2] for path in storage.list_files(folder)]
    except FileNotFoundError:
        return set()
    return {int(name) for name in names if name.isdecimal()}
