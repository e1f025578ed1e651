"""Fetching the leader's log: entries one request after the other, or a snapshot in chunks."""

from __future__ import annotations

from broker_core.quorum.entries import EpochEnd, ReplicaKey, Snapshot
from broker_core.quorum.messages import (
    FetchAnswer,
    FetchRequest,
    FetchSnapshotAnswer,
    FetchSnapshotRequest,
)
from broker_core.quorum.replicated_log import ReplicatedLog
from broker_core.quorum.settings import QuorumSettings

AnyFetch = FetchRequest | FetchSnapshotRequest


class Fetcher:
    """Knows which fetch is next and when, and puts what is fetched into the log.

    One request is in flight, until it is answered or times out.
    """

    def __init__(
        self, key: ReplicaKey, log: ReplicatedLog, settings: QuorumSettings, now: float
    ) -> None:
        self._key = key
        self._log = log
        self._settings = settings
        self._due = now
        self._given_up = now  # when the request in flight times out
        self._sent: AnyFetch | None = None  # the one in flight
        self._snapshot_wanted: EpochEnd | None = None
        self._snapshot_bytes = bytearray()

    # Requests

    @property
    def deadline(self) -> float:
        """When the next request is due, or the one in flight is given up."""
        return self._due if self._sent is None else self._given_up

    def begin(self, now: float) -> None:
        """Forget the request in flight; the next one is due now."""
        self._sent = None
        self._due = now

    def is_waiting(self, now: float) -> bool:
        """Return whether a request is in flight; one that has timed out is given up."""
        if self._sent is not None and now >= self._given_up:
            self.begin(now)
        return self._sent is not None

    def next_request(self, epoch: int, now: float, *, is_follower: bool) -> AnyFetch | None:
        """Return the request to send, None if it is not due; only a follower gets a snapshot."""
        if now < self._due:
            return None
        self._given_up = now + self._settings.request_timeout
        if self._snapshot_wanted is not None and is_follower:
            self._sent = FetchSnapshotRequest(
                epoch, self._key, self._snapshot_wanted, len(self._snapshot_bytes)
            )
        else:
            stored = self._log.stored
            self._sent = FetchRequest(
                epoch, self._key, stored.end_offset, stored.last_epoch, self._log.committed
            )
        return self._sent

    # Answers

    def answered(self, request: AnyFetch, now: float) -> bool:
        """Take note that there is an answer, or will be none, and that the next request may wait.

        False if the request had timed out or was answered before: two answers must not lead to two
        requests.
        """
        if request is not self._sent:
            return False
        self.begin(now + self._settings.retry_backoff)
        return True

    def leader_answered(self, now: float) -> None:
        """Take note that it was the leader who answered: the next request is due now."""
        self._due = now

    def take(self, request: FetchRequest, answer: FetchAnswer) -> bool:
        """Do what the leader's answer says; return False if the log is not as it was.

        Raises LogsDisagree.
        """
        log, stored = self._log, self._log.stored
        if (request.fetch_offset, request.last_epoch) != (stored.end_offset, stored.last_epoch):
            return False
        if answer.snapshot is not None:
            self._snapshot_wanted = answer.snapshot
            self._snapshot_bytes.clear()
        elif answer.diverging is not None:
            log.truncate(answer.diverging, request.epoch)
        else:
            log.append(answer.entries)
            log.commit(min(answer.high_watermark or 0, stored.end_offset))
        return True

    def take_chunk(self, request: FetchSnapshotRequest, answer: FetchSnapshotAnswer) -> bool:
        """Take a chunk of the snapshot, install it when it is whole; False if it is not wanted."""
        if request.snapshot != self._snapshot_wanted:
            return False
        if answer.chunk is None:
            # The leader has a newer one, or is no longer the leader: the next fetch will tell.
            self._snapshot_wanted = None
            return False
        if request.position != len(self._snapshot_bytes):
            return False
        self._snapshot_bytes += answer.chunk
        if len(self._snapshot_bytes) >= answer.size:
            epoch, end_offset = request.snapshot
            data = bytes(self._snapshot_bytes)
            self._snapshot_wanted = None
            self._snapshot_bytes.clear()
            self._log.install(Snapshot(end_offset, epoch, answer.voters, data))
        return True
