"""When the transaction of an exactly-once source ends, as `transaction.boundary` says (KIP-618).

Nothing here waits or writes. All methods are called in the task's thread.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, Protocol

from consumers.connect.configuration.connector_properties import (
    SOURCE_CONFIG,
    TRANSACTION_BOUNDARY,
    TRANSACTION_BOUNDARY_INTERVAL_MS,
)
from consumers.connect.data.records import SourceRecord


class Ending(enum.Enum):
    """What becomes of the transaction."""

    NONE = "none"  # it goes on
    COMMIT = "commit"
    ABORT = "abort"


class TransactionBoundary(Protocol):
    """Decides when a transaction ends."""

    def after_record(self, record: SourceRecord) -> Ending:
        """Decide after a record that was sent, or left out."""

    def after_batch(self, now_s: float) -> Ending:
        """Decide after all records of a `poll`; the time is one of a clock that never goes back."""

    def when_idle(self, now_s: float) -> Ending:
        """Decide after a `poll` without records."""

    def at_end(self) -> Ending:
        """Decide when the task ends in order."""


class PollBoundary:
    """Each batch is a transaction."""

    def after_record(self, record: SourceRecord) -> Ending:
        """See TransactionBoundary."""
        return Ending.NONE

    def after_batch(self, now_s: float) -> Ending:
        """See TransactionBoundary."""
        return Ending.COMMIT

    def when_idle(self, now_s: float) -> Ending:
        """See TransactionBoundary."""
        return Ending.NONE

    def at_end(self) -> Ending:
        """See TransactionBoundary."""
        return Ending.COMMIT


class IntervalBoundary:
    """A transaction lasts for a time, and ends with the next `poll`."""

    def __init__(self, interval_s: float, now_s: float) -> None:
        self.interval_s: Final = interval_s
        self._last_s = now_s

    def after_record(self, record: SourceRecord) -> Ending:
        """See TransactionBoundary."""
        return Ending.NONE

    def after_batch(self, now_s: float) -> Ending:
        """See TransactionBoundary."""
        if now_s < self._last_s + self.interval_s:
            return Ending.NONE
        self._last_s = now_s
        return Ending.COMMIT

    def when_idle(self, now_s: float) -> Ending:
        """See TransactionBoundary: what came last must not wait for more."""
        return self.after_batch(now_s)

    def at_end(self) -> Ending:
        """See TransactionBoundary."""
        return Ending.COMMIT


class ConnectorBoundary:
    """The connector says it, as the `TransactionContext` of its task."""

    def __init__(self) -> None:
        self._after_batch = Ending.NONE
        self._after_record: Final[dict[int, tuple[SourceRecord, Ending]]] = {}

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        """See TransactionContext."""
        self._request(record, Ending.COMMIT)

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        """See TransactionContext."""
        self._request(record, Ending.ABORT)

    def _request(self, record: SourceRecord | None, ending: Ending) -> None:
        if record is None:
            self._after_batch = ending
        else:
            # Records are told apart by what they are, not by what they say.
            self._after_record[id(record)] = record, ending

    def after_record(self, record: SourceRecord) -> Ending:
        """See TransactionBoundary."""
        found = self._after_record.pop(id(record), None)
        return Ending.NONE if found is None else found[1]

    def after_batch(self, now_s: float) -> Ending:
        """See TransactionBoundary."""
        ending, self._after_batch = self._after_batch, Ending.NONE
        # What was asked for records that never came.
        self._after_record.clear()
        return ending

    def when_idle(self, now_s: float) -> Ending:
        """See TransactionBoundary."""
        return Ending.NONE

    def at_end(self) -> Ending:
        """See TransactionBoundary: what the connector has not ended is void."""
        return Ending.ABORT


def transaction_boundary(
    connector: Mapping[str, str], flush_interval_s: float, now_s: float
) -> TransactionBoundary:
    """Return what the properties of a connector say; raises ConfigException."""
    parsed = SOURCE_CONFIG.parse(connector)
    kind = str(parsed[TRANSACTION_BOUNDARY]).lower()
    if kind == "connector":
        return ConnectorBoundary()
    if kind == "poll":
        return PollBoundary()
    interval_ms = parsed[TRANSACTION_BOUNDARY_INTERVAL_MS]
    return IntervalBoundary(flush_interval_s if interval_ms is None else interval_ms / 1000, now_s)
