"""The age of an extract and the server of its updates, from its header."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from osmium.replication import utils


class ReplicationState(NamedTuple):
    """The replication fields in the header of an extract; None where one is missing."""

    url: str | None  # of the server with the updates
    sequence: int | None  # last change file that the extract includes
    time: datetime | None  # of the newest change that the extract includes

    def describe(self) -> dict[str, str | int | None]:
        """Return the fields as values for JSON."""
        time = self.time.strftime("%Y-%m-%dT%H:%M:%SZ") if self.time is not None else None
        return {"url": self.url, "sequence": self.sequence, "time": time}


def read_state(extract: Path) -> ReplicationState:
    """Return the state of an extract; raises RuntimeError when the file is not one."""
    header = utils.get_replication_header(str(extract))
    return ReplicationState(header.url, header.sequence, header.timestamp)
