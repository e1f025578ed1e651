"""Seats: which worker of a machine keeps the sessions of absent clients, also after a restart."""

from __future__ import annotations

import re
import secrets
import zlib
from dataclasses import dataclass
from typing import Final

_WORKER: Final = re.compile(r"worker-(\d+)-[0-9a-f]+")


@dataclass(frozen=True)
class Seat:
    """The place of one of several workers, independent of its process: number from 1, and count.

    A process that takes over a seat takes over its sessions. Otherwise no worker would queue what
    is published for their clients until they return.
    """

    number: int
    count: int

    def worker_name(self) -> str:
        """Return a name for a new process, different from those of earlier processes."""
        return f"worker-{self.number}-{secrets.token_hex(4)}"

    def keeps(self, key: tuple[str, str], worker: str) -> bool:
        """Return whether this seat keeps the session that `worker` has written last.

        Sessions of workers whose seat no longer exists are divided among all seats.
        """
        seat = seat_of(worker)
        if not 1 <= seat <= self.count:
            seat = zlib.crc32("\0".join(key).encode("utf-8", "surrogatepass")) % self.count + 1
        return seat == self.number


def seat_of(worker: str) -> int:
    """Return the seat number in the name of a worker, present or past; 0 if it has none."""
    found = _WORKER.fullmatch(worker)
    return int(found[1]) if found else 0
