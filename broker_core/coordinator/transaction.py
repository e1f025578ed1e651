"""One transactional id: its producer, its state, and its records in `__transaction_state`.

Keys and values have Kafka's formats (TransactionLogKey, TransactionLogValue).

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing ...
                    `-> PrepareAbort  -> CompleteAbort  -> Ongoing ...
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker_core.coordinator.stored import decode_stored, encode_stored, stored_version
from broker_core.errors import NONE
from broker_core.protocol.schema import StoredMessage

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        EndTxnResponse,
    )

TRANSACTIONS_TOPIC: Final = "__transaction_state"

#: A client never gets the largest epoch: it is reserved for fencing that client.
EPOCH_MAX: Final = 2**15 - 1

#: From this version of the transaction protocol on every transaction has its own epoch, so a late
#: request of one transaction is never taken for one of the next (KIP-890).
EPOCH_PER_TRANSACTION: Final = 2

Place = tuple[str, int]  # topic and partition

_KEY: Final = StoredMessage(
    name="TransactionLogKey",
    versions=(0, 0),
    flexible_from=None,
    fields="""
    transactional_id string 0
""",
)

_VALUE: Final = StoredMessage(
    name="TransactionLogValue",
    versions=(0, 1),
    flexible_from=1,
    fields="""
    producer_id int64 0+
    previous_producer_id int64 1+ tag 0 default -1
    next_producer_id int64 1+ tag 1 default -1
    producer_epoch int16 0+
    transaction_timeout_ms int32 0+
    transaction_status int8 0+
    transaction_partitions [] 0+ nullable 0+
        topic string 0+
        partition_ids []int32 0+
    transaction_last_update_timestamp_ms int64 0+
    transaction_start_timestamp_ms int64 0+
    client_transaction_version int16 1+ tag 2
""",
)


class TransactionState(Enum):
    """The states, with the names that DescribeTransactions shows."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


#: The states in the order of their numbers in the log.
_STATES: Final = list(TransactionState)

PREPARED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})


class TransactionSettings(NamedTuple):
    """The broker's `transaction*` properties."""

    timeout_max_ms: int = 15 * 60_000
    id_expiration_ms: int = 7 * 24 * 60 * 60_000


class Producer(NamedTuple):
    """The producer that sends a transactional request."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id. Times are wall ms; -1 means none."""

    transactional_id: str
    producer_id: int
    timeout_ms: int
    epoch: int = -1
    #: The epoch that a repeated InitProducerId may still send.
    last_epoch: int = -1
    previous_producer_id: int = -1
    #: Becomes the producer id when the markers are written, if the current one has no epochs left.
    next_producer_id: int = -1
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[Place] = frozenset()
    started_ms: int = -1
    updated_ms: int = -1
    #: Version of the transaction protocol that the client used last.
    version: int = 0

    @property
    def is_exhausted(self) -> bool:
        """Tell whether the producer id has no epoch left for its client."""
        return self.epoch >= EPOCH_MAX - 1

    @property
    def has_epoch_per_transaction(self) -> bool:
        """Tell whether the epoch increases at the end of the transaction."""
        return self.version >= EPOCH_PER_TRANSACTION

    def may_continue(self, expected: tuple[int, int] | None) -> bool:
        """True if the transactional id has this producer id and epoch, or had them last."""
        if expected is None or expected[0] == self.producer_id:
            return True
        return expected[0] == self.previous_producer_id and expected[1] == self.last_epoch

    def producer_response(self) -> EndTxnResponse:
        """Return the response to InitProducerId and EndTxn: id and epoch of the producer."""
        return {"error_code": NONE, "producer_id": self.producer_id, "producer_epoch": self.epoch}


def encode_transaction_key(transactional_id: str) -> bytes:
    """Encode the record key of a transactional id."""
    return encode_stored(_KEY, 0, {"transactional_id": transactional_id})


def decode_transaction_key(key: bytes) -> str | None:
    """Decode the transactional id of a record; None for an unknown kind of key."""
    if stored_version(key) != 0:
        return None
    transactional_id: str = decode_stored(_KEY, key)["transactional_id"]
    return transactional_id


def encode_transaction(transaction: Transaction) -> bytes:
    """Encode the record value of a transactional id."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(partition)
    return encode_stored(
        _VALUE,
        1,
        {
            "producer_id": transaction.producer_id,
            "previous_producer_id": transaction.previous_producer_id,
            "next_producer_id": transaction.next_producer_id,
            "producer_epoch": transaction.epoch,
            "transaction_timeout_ms": transaction.timeout_ms,
            "transaction_status": _STATES.index(transaction.state),
            "transaction_partitions": [
                {"topic": topic, "partition_ids": partitions}
                for topic, partitions in topics.items()
            ],
            "transaction_last_update_timestamp_ms": transaction.updated_ms,
            "transaction_start_timestamp_ms": transaction.started_ms,
            "client_transaction_version": transaction.version,
        },
    )


def decode_transaction(transactional_id: str, value: bytes) -> Transaction:
    """Decode a record value; raises RemoteProtocolError."""
    fields: dict[str, Any] = decode_stored(_VALUE, value)
    return Transaction(
        transactional_id,
        fields["producer_id"],
        fields["transaction_timeout_ms"],
        epoch=fields["producer_epoch"],
        previous_producer_id=fields["previous_producer_id"],
        next_producer_id=fields["next_producer_id"],
        state=_STATES[fields["transaction_status"]],
        partitions=frozenset(
            (each["topic"], partition)
            for each in fields["transaction_partitions"] or ()
            for partition in each["partition_ids"]
        ),
        started_ms=fields["transaction_start_timestamp_ms"],
        updated_ms=fields["transaction_last_update_timestamp_ms"],
        version=fields["client_transaction_version"],
    )
