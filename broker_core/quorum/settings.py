"""The times of a quorum."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    """Times in seconds, named after Kafka's `controller.quorum.*` properties."""

    election_timeout: float = 1.0  # a vote takes this long at most; drawn from once to twice this
    election_backoff_max: float = 1.0  # wait at most this long after a lost vote
    fetch_timeout: float = 2.0  # without an answer of the leader for this long, ask for a vote
    disconnect_backoff_max: float = 0.1  # a leader whose connection broke is doubted after this
    request_timeout: float = 2.0  # a request without an answer is given up
    retry_backoff: float = 0.02  # before a failed request is sent again
    fetch_entries_max: int = 500  # in one answer
    snapshot_chunk_bytes: int = 1 << 20

    @property
    def check_quorum_timeout(self) -> float:
        """A leader whose majority has not fetched for this long resigns (KIP-835)."""
        return 1.5 * self.fetch_timeout
