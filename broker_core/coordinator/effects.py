"""What the coordinator wants done; the server does it, the simulation pretends to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from broker_core.coordinator.offsets import CommittedOffset

#: Identifies a request that waits for its response; opaque to the coordinator.
Token = object


class Moment(NamedTuple):
    """The time of a step: `monotonic_ms` measures durations, `wall_ms` goes into records."""

    monotonic_ms: int
    wall_ms: int


class Respond(NamedTuple):
    """Send a response: the members of the newest version; the codec leaves out the rest."""

    token: Token
    response: dict[str, Any]


@dataclass(slots=True)
class Append:
    """Append records to the group's partition of `__consumer_offsets`.

    When they are acknowledged the server calls `GroupCoordinator.appended(effect)`, otherwise
    `append_failed(effect)`; responses that depend on it come out of those.
    """

    group_id: str
    #: Key and value; None as a value is a tombstone.
    records: list[tuple[bytes, bytes | None]]
    responses: list[Respond] = field(default_factory=list)
    #: Offsets that others may see once they are stored; None removes one.
    offsets: dict[tuple[str, int], CommittedOffset | None] = field(default_factory=dict)
    #: The generation that becomes stable by this append.
    stabilises: int | None = None


Effect = Respond | Append
