"""Knows whether a history falls behind without a word; sans-IO.

A job that has nothing to write is well, and so is one that is behind and writes. It stalls when
there are records that it has not written, and no batch has been finished for long.
"""

from __future__ import annotations

from collections.abc import Mapping


class Stall:
    """Is told what is seen of the log and of the batches, with monotonic times in seconds.

    For use under a lock. `written` are the next offsets after the last finished batch; None if they
    are not known.
    """

    def __init__(self, patience_s: float, written: Mapping[int, int] | None = None) -> None:
        self._patience_s = patience_s
        self._written = None if written is None else dict(written)
        self._ends: dict[int, int] = {}
        self._waiting_since: float | None = None
        self._reason: str | None = None
        self._phase: str | None = None

    def begins(self, written: Mapping[int, int] | None) -> None:
        """Note up to where everything was written before the first batch of this run."""
        self._written = None if written is None else dict(written)

    def log_ends(self, ends: Mapping[int, int], now: float) -> None:
        """Note where the log's partitions end."""
        self._ends = dict(ends)
        if self._written is None:
            # All of it may be written: only what comes later is known to wait.
            self._written = dict(ends)
        if self._waiting_since is None and any(
            end > self._written.get(partition, 0) for partition, end in ends.items()
        ):
            self._waiting_since = now

    def failed(self, reason: str) -> None:
        """Note that the stream has ended with an error."""
        self._reason = reason

    def in_phase(self, phase: str) -> None:
        """Note what the stream says that it does."""
        self._phase = phase

    def committed(self) -> None:
        """Note that a batch is finished.

        It counts as one with all that the log had when it was looked at last: it may lack a few
        records, which are in the next one.
        """
        self._written = dict(self._ends) if self._ends else None
        self._waiting_since = self._reason = None

    def waiting_s(self, now: float) -> float:
        """Return for how long records have waited without a batch being finished."""
        return 0.0 if self._waiting_since is None else now - self._waiting_since

    def trouble(self, now: float) -> str | None:
        """Return that nothing has been written for too long, and why as far as it is known."""
        waiting_s = self.waiting_s(now)
        if waiting_s < self._patience_s:
            return None
        reason = f"nothing has been written for {waiting_s:.0f} s, and records wait"
        known = self._reason or self._phase
        return f"{reason}; {known}" if known else reason
