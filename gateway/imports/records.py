"""What is known of an import: the file `import.json` of its folder, and what its owner is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

State = Literal["uploading", "waiting", "reading", "storing", "done", "failed", "interrupted"]

#: States in which some process of the platform works on it, or has before it was killed.
RUNNING: Final = ("waiting", "reading", "storing")

#: The source of fixes that an import has brought; by it an undo tells them from all others.
SOURCE: Final = "import"


class ImportedFile(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One uploaded file, and what was found in it."""

    name: str
    bytes: int
    fixes: int = 0
    #: Entries that became no fix, by reason.
    skipped: dict[str, int] = {}
    #: What could not be read: parts of the file, or files of an archive.
    damage: list[str] = []


class Import(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An import; times are ms since 1970."""

    id: str
    user: str
    device: str  # without the user
    created: int
    files: list[ImportedFile]
    state: State = "uploading"
    #: Why it has failed, or what it waits for.
    reason: str | None = None
    #: Whether the device had no fixes before; None: nobody has looked yet.
    is_new_device: bool | None = None
    #: Whether some fix may be in the log already.
    has_begun_to_store: bool = False
    #: Bytes of unpacked content that were read, and of how many; 0: not known.
    read_bytes: int = 0
    of_bytes: int = 0
    found: int = 0
    stored: int = 0
    #: Fixes that the platform does not take, by reason.
    refused: dict[str, int] = {}
    #: Different times of the fixes that may be in the log, by which an undo counts.
    times: int = 0
    first: int | None = None
    last: int | None = None
    finished: int | None = None

    @property
    def full_device(self) -> str:
        """The device as `user/device`."""
        return f"{self.user}/{self.device}"


class ReadingPlan(msgspec.Struct):
    """The order to the reading process, one line of JSON."""

    folder: str
    user: str
    device: str
    names: list[str]  # of the files 0, 1, ... in the folder
    content_bytes_max: int
    fixes_max: int
    memory_bytes_max: int


class ReadingProgress(msgspec.Struct, omit_defaults=True):
    """The progress of the reading process."""

    read_bytes: int = 0
    of_bytes: int = 0
    found: int = 0
    files: list[ImportedFile] = []
    refused: dict[str, int] = {}
    first: int | None = None
    last: int | None = None
    error: str | None = None


def shown(found: Import, received: Sequence[int]) -> dict[str, Any]:
    """Return an import as its owner sees it; `received` are the uploaded bytes of each file."""
    refusal = undo_refusal(found)
    return {
        "id": found.id,
        "device": found.full_device,
        "created": found.created,
        "state": found.state,
        "reason": found.reason,
        "files": [
            {
                "name": file.name,
                "bytes": file.bytes,
                "received": size,
                "fixes": file.fixes,
                "skipped": file.skipped,
                "damage": file.damage,
            }
            for file, size in zip(found.files, received, strict=True)
        ],
        # Formats that are looked at before they are read are counted twice, or more often.
        "read_bytes": min(found.read_bytes, found.of_bytes) if found.of_bytes else found.read_bytes,
        "of_bytes": found.of_bytes or None,
        "found": found.found,
        "stored": found.stored,
        "refused": found.refused,
        "from": found.first,
        "to": found.last,
        "finished": found.finished,
        "undoable": refusal is None,
        "undo_refusal": refusal,
    }


def undo_refusal(found: Import) -> str | None:
    """Return why an import cannot be undone, as far as that is known without a look at the log."""
    if not found.has_begun_to_store or found.is_new_device:
        return None
    return (
        f"{found.full_device} had positions before this import, and to undo it would erase the "
        "whole device"
    )
