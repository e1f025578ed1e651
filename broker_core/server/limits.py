"""How many connections there may be, how fast they may come, and how much they may send at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

#: A pause between two connections is kept to this, or a burst would lock everybody out for minutes.
_PAUSE_S_MAX: Final = 1.0
_ADDRESSES_MAX: Final = 10_000


@dataclass
class ConnectionLimits:
    """The limits of all listeners together, and what there is. Settings may change at any time."""

    connections_max: int
    connections_per_ip_max: int = 2**31 - 1
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    #: Connections a second.
    creation_rate_max: float = 2**31 - 1
    #: Bytes of requests that have not arrived completely.
    request_bytes_max: int = 2**63 - 1

    #: Connections a second that one address may open; None is no limit.
    creation_rate_of: Callable[[str], float | None] | None = None

    def __post_init__(self) -> None:
        self.connections = 0
        self.refused = 0
        self.request_bytes = 0
        self._by_ip: Counter[str] = Counter()
        self._next_creation_s = 0.0
        self._next_of_ip_s: dict[str, float] = {}

    def add(self, host: str) -> str | None:
        """Count a connection; returns why there must not be one more."""
        self.connections += 1
        self._by_ip[host] += 1
        reason = None
        if self.connections > self.connections_max:
            reason = f"max.connections={self.connections_max}"
        elif self._by_ip[host] > (
            limit := self.per_ip_overrides.get(host, self.connections_per_ip_max)
        ):
            reason = f"max.connections.per.ip={limit}"
        if reason is not None:
            self.refused += 1
        return reason

    def remove(self, host: str) -> None:
        """A connection that was counted is gone."""
        self.connections -= 1
        self._by_ip[host] -= 1
        if not self._by_ip[host]:
            del self._by_ip[host]

    def creation_pause_s(self, host: str, now_s: float) -> float:
        """How long a new connection waits so that no more than the allowed rate are served."""
        pause_s = 0.0
        if self.creation_rate_max < 2**31 - 1:
            self._next_creation_s = _next(self._next_creation_s, now_s, self.creation_rate_max)
            pause_s = self._next_creation_s - now_s
        rate = self.creation_rate_of(host) if self.creation_rate_of is not None else None
        if rate is not None:
            if len(self._next_of_ip_s) >= _ADDRESSES_MAX:
                self._next_of_ip_s.clear()
            next_s = _next(self._next_of_ip_s.get(host, 0.0), now_s, rate)
            self._next_of_ip_s[host] = next_s
            pause_s = max(pause_s, next_s - now_s)
        return min(max(pause_s, 0.0), _PAUSE_S_MAX)


def _next(due_s: float, now_s: float, rate: float) -> float:
    """When the connection after one that was due is due; a second's worth may come at once."""
    return max(due_s, now_s - 1.0) + 1 / rate
