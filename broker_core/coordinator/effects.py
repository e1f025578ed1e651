"""What the coordinator wants done; the server does it, the simulation pretends to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from broker_core.coordinator.offsets import CommittedOffset
from broker_core.coordinator.transaction import Place, Transaction

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

    Without records, for those that were appended before. When they are acknowledged the server
    calls `GroupCoordinator.appended(effect)`, otherwise `append_failed(effect)`; responses that
    depend on it come out of those.
    """

    group_id: str
    #: Key and value; None as a value is a tombstone.
    records: list[tuple[bytes, bytes | None]]
    responses: list[Respond] = field(default_factory=list)
    #: Offsets that others may see once they are stored; None removes one.
    offsets: dict[tuple[str, int], CommittedOffset | None] = field(default_factory=dict)
    #: The generation that becomes stable by this append.
    stabilises: int | None = None
    #: Producer id and epoch of the transaction that decides about the offsets.
    producer: tuple[int, int] | None = None
    #: What the records say holds only when they are stored; otherwise it holds already.
    is_awaited: bool = True


@dataclass(slots=True)
class StoreTransaction:
    """Append a transactional id's new state to its partition of `__transaction_state`.

    When it is acknowledged the server calls `TransactionCoordinator.stored(effect)`, otherwise
    `store_failed(effect)`.
    """

    transactional_id: str
    #: None removes the id.
    transaction: Transaction | None
    responses: list[Respond] = field(default_factory=list)
    #: Says whether the state holds only when it is stored; otherwise it holds already.
    is_awaited: bool = True


@dataclass(slots=True)
class WriteMarkers:
    """Write the end of a transaction into its partitions.

    When all of them are durable the server calls `TransactionCoordinator.markers_written(effect)`.
    """

    transaction: Transaction
    committed: bool
    partitions: frozenset[Place]
    responses: list[Respond] = field(default_factory=list)


Effect = Respond | Append
TransactionEffect = Respond | StoreTransaction | WriteMarkers
