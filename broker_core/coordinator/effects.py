"""Effects: actions that a coordinator requests. The server performs them; simulations fake them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from broker_core.coordinator.offsets import CommittedOffset
from broker_core.coordinator.transaction import Place, Transaction

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        ConsumerGroupHeartbeatResponse,
        EndTxnResponse,
        JoinGroupResponse,
        SyncGroupResponse,
    )


#: Identifies a request that waits for its response; opaque to the coordinator.
Token = object


class Moment(NamedTuple):
    """The time of a step: `monotonic_ms` measures durations, `wall_ms` is for records."""

    monotonic_ms: int
    wall_ms: int


class Codes(TypedDict):
    """A response about offsets or a whole group: the error code of all, and of each partition."""

    error_code: int
    codes: dict[Place, int]


if TYPE_CHECKING:
    GroupResponse = Codes | JoinGroupResponse | SyncGroupResponse | ConsumerGroupHeartbeatResponse
    #: Also that to InitProducerId, and the error code for AddPartitionsToTxn and AddOffsetsToTxn.
    TransactionResponse = EndTxnResponse


class Respond(NamedTuple):
    """Send a response with the fields of the newest version; the codec omits what others lack."""

    token: Token
    response: GroupResponse | TransactionResponse


@dataclass(slots=True)
class Append:
    """Append records to the group's partition of `__consumer_offsets`.

    An empty list waits for the records appended before. When the append is acknowledged, the server
    calls `GroupCoordinator.appended(effect)`, otherwise `append_failed(effect)`; these produce the
    responses that depend on it.
    """

    group_id: str
    #: Keys and values; the value None is a tombstone.
    records: list[tuple[bytes, bytes | None]]
    responses: list[Respond] = field(default_factory=list)
    #: Offsets that become visible when they are stored; None removes one.
    offsets: dict[tuple[str, int], CommittedOffset | None] = field(default_factory=dict)
    #: The generation that becomes stable with this append.
    stabilises: int | None = None
    #: Producer id and epoch of the transaction that commits or aborts the offsets.
    producer: tuple[int, int] | None = None
    #: True if the change takes effect when it is stored, False if it already has.
    is_awaited: bool = True


@dataclass(slots=True)
class StoreTransaction:
    """Append the new state of a transactional id to its partition of `__transaction_state`.

    When the append is acknowledged the server calls `TransactionCoordinator.stored(effect)`,
    otherwise `store_failed(effect)`.
    """

    transactional_id: str
    #: None removes the id.
    transaction: Transaction | None
    responses: list[Respond] = field(default_factory=list)
    #: True if the change takes effect when it is stored, False if it already has.
    is_awaited: bool = True


@dataclass(slots=True)
class WriteMarkers:
    """Write the end of a transaction, its markers, to its partitions.

    When all of them are durable the server calls `TransactionCoordinator.markers_written(effect)`.
    """

    transaction: Transaction
    committed: bool
    partitions: frozenset[Place]
    responses: list[Respond] = field(default_factory=list)


Effect = Respond | Append
TransactionEffect = Respond | StoreTransaction | WriteMarkers
