"""The timeouts and limits of a quorum."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    """Times in seconds, named after Kafka's `controller.quorum.*` properties."""

    election_timeout: float = 1.0  # minimum; each election has a random timeout up to twice this
    election_backoff_max: float = 1.0  # longest wait after a lost election
    fetch_timeout: float = 2.0  # without a response of the leader for this long, ask for votes
    disconnect_backoff_max: float = 0.1  # longest wait after the leader's connection broke
    request_timeout: float = 2.0  # after which a request without a response is given up
    retry_backoff: float = 0.02  # wait before a failed request is sent again
    fetch_entries_max: int = 500  # in one response
    snapshot_chunk_bytes: int = 1 << 20

    @property
    def check_quorum_timeout(self) -> float:
        """Seconds after which a leader resigns if no majority has fetched (KIP-835)."""
        return 1.5 * self.fetch_timeout
