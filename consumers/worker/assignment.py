"""A partition while it is assigned to a session."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Generic, TypeAlias

from consumers.worker.processor import StateT


@dataclass(eq=False)
class Assignment(Generic[StateT]):
    """A partition while it is assigned. When it is assigned again, there is a new object."""

    partition: int
    state: StateT
    position: int = -1  # after the last record that was processed
    acknowledged: int = -1  # after the last record whose results are acknowledged
    committed: int = -1  # the offset that the group knows; at most `acknowledged`
    restored: bool = False
    revoked: threading.Event = field(default_factory=threading.Event)


#: The assignments of a session by partition.
Assignments: TypeAlias = dict[int, Assignment[StateT]]
#: Assignments with the offset after the last of their records in a batch.
Ends: TypeAlias = list[tuple[Assignment[StateT], int]]
