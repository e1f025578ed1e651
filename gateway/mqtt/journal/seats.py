"""Which worker of a machine keeps the sessions of clients that are away, after a restart too."""

from __future__ import annotations

import re
import secrets
import zlib
from dataclasses import dataclass
from typing import Final

_WORKER: Final = re.compile(r"worker-(\d+)-[0-9a-f]+")


@dataclass(frozen=True)
class Seat:
    """One of several workers, whichever process it is: its number from 1 on, of how many.

    A process that takes the seat of one before it has its sessions: else no worker would keep
    what is published for their clients until these come back.
    """

    number: int
    count: int

    def worker_name(self) -> str:
        """The name of a new process, different from that of any before it."""
        return f"worker-{self.number}-{secrets.token_hex(4)}"

    def keeps(self, key: tuple[str, str], worker: str) -> bool:
        """Tell whether the session of a client is kept here of which `worker` has written last.

        Those of workers that have no seat any more are divided among all.
        """
        seat = seat_of(worker)
        if not 1 <= seat <= self.count:
            seat = zlib.crc32("\0".join(key).encode("utf-8", "surrogatepass")) % self.count + 1
        return seat == self.number


def seat_of(worker: str) -> int:
    """The number of the seat that a worker of this name has, or had; 0 where it has none."""
    found = _WORKER.fullmatch(worker)
    return int(found[1]) if found else 0
