"""How new an extract is, by its header, and where its changes are to be had."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from osmium.replication import utils


class ReplicationState(NamedTuple):
    """What the header of an extract says; None where it says nothing."""

    url: str | None  # of the server with its changes
    sequence: int | None  # the last change file that is in it
    time: datetime | None  # of the newest change that is in it

    def describe(self) -> dict[str, str | int | None]:
        """As JSON has it."""
        time = self.time.strftime("%Y-%m-%dT%H:%M:%SZ") if self.time is not None else None
        return {"url": self.url, "sequence": self.sequence, "time": time}


def read_state(extract: Path) -> ReplicationState:
    """The state of an extract; raises RuntimeError when it is none."""
    header = utils.get_replication_header(str(extract))
    return ReplicationState(header.url, header.sequence, header.timestamp)
