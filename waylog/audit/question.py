"""What is asked of an audit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from waylog.audit.days import Day
from waylog.audit.facts import AddressFact
from waylog.forwarding.definition import GROUP

#: The resolver's group unless another one is named.
RESOLVER_GROUP: Final = "resolver"
#: Called with what is read, and how much of how much is done.
Progress = Callable[[str, int, int], object]


class Question(NamedTuple):
    """What is asked."""

    day: Day
    device: str | None = None  # None: all
    fix_id: str | None = None  # only the fix with this id
    late_ms: int = 3_600_000
    resolver_group: str = RESOLVER_GROUP
    expected: frozenset[str] = frozenset()
    forwarding_group: str = GROUP
    ignored: frozenset[str] = frozenset()
    dead_letters: tuple[str, ...] = ()
    #: Records of a topic that may be read; None: as many as there are.
    records_max: int | None = None
    all_partitions: bool = False
    #: False if whoever asks knows the device's address already, which is then `address`.
    reads_addresses: bool = True
    address: AddressFact | None = None
