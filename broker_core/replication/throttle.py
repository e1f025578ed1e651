"""A limit on the bytes of replicas that catch up, so that clients keep their share.

Operators name the replicas in a topic's settings, and the rate in a broker's settings (KIP-73).
In-sync replicas are never throttled: producers wait for them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

UNLIMITED: Final = 2**63 - 1
_ALL: Final = "*"
#: Most allowance that accumulates in a quiet time, in seconds of the rate.
_BURST_S: Final = 1.0


class ReplicationQuota:
    """A byte rate limit, in bytes per second; times are monotonic seconds."""

    __slots__ = ("_allowance", "_at", "_rate")

    def __init__(self) -> None:
        self._rate = UNLIMITED
        self._allowance = 0.0
        self._at = float("-inf")

    @property
    def rate(self) -> int:
        """Bytes per second."""
        return self._rate

    @rate.setter
    def rate(self, rate: int) -> None:
        if rate != self._rate:
            self._rate = rate
            self._at = float("-inf")

    def _refill(self, now: float) -> None:
        most = self._rate * _BURST_S
        if self._at == float("-inf"):
            self._allowance = most
        else:
            self._allowance = min(most, self._allowance + (now - self._at) * self._rate)
        self._at = now

    def record(self, size: int, now: float) -> None:
        """Count bytes that were transferred."""
        if self._rate != UNLIMITED:
            self._refill(now)
            self._allowance -= size

    def wait_s(self, now: float) -> float:
        """Return how many seconds to wait before the next transfer; 0 for none."""
        if self._rate == UNLIMITED:
            return 0.0
        self._refill(now)
        if self._allowance > 0:
            return 0.0
        return min((1 - self._allowance) / self._rate, 1.0) if self._rate else 1.0


@lru_cache(maxsize=1024)
def throttled_replicas(text: str) -> frozenset[tuple[int, int]] | None:
    """Return (partition, broker) pairs of `PARTITION:BROKER,...`; None for `*`."""
    if text == _ALL:
        return None
    words = (word.split(":") for word in text.split(",") if word.strip())
    return frozenset((int(index), int(broker)) for index, broker in words)


def is_throttled(text: str, index: int, broker_id: int) -> bool:
    """Tell whether a setting names the replica of a partition on a broker."""
    if not text:
        return False
    replicas = throttled_replicas(text)
    return replicas is None or (index, broker_id) in replicas
