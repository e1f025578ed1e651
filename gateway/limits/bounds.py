"""Bounds of the HTTP listener, and the small machines that keep them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MEBIBYTE: Final = 1024 * 1024

#: What a request under way takes beside its body, about.
OVERHEAD_BYTES: Final = 1024
#: What a record takes in the log's queue beyond its part of the body: the key, the trace, members
#: that the body had no words for.
RECORD_BYTES: Final = 512

#: The reason of a refusal where the user has too many under way.
TOO_MUCH_UNDER_WAY: Final = "too much that you have sent waits for the log"


@dataclass(frozen=True)
class HttpLimits:
    """Bounds of the listener; sizes are bytes, times seconds."""

    body_bytes_max: int = 8 * MEBIBYTE
    #: Large bodies being received at one time, over all connections; those of one user, or of one
    #: address before its credentials are known.
    all_body_bytes_max: int = 64 * MEBIBYTE
    body_bytes_each_max: int = 24 * MEBIBYTE
    #: What has been received and waits for the log, over all connections; that of one user.
    under_way_bytes_max: int = 64 * MEBIBYTE
    under_way_bytes_each_max: int = 16 * MEBIBYTE
    #: Plain requests that have not come whole, over all connections; those of one address, or of
    #: one account of this machine.
    partial_bytes_max: int = 64 * MEBIBYTE
    partial_bytes_each_max: int = 16 * MEBIBYTE
    body_timeout_s: float = 60.0
    #: From a connection's start, or the end of its last request, to the next request's headers:
    #: who sends them byte by byte is disconnected.
    header_timeout_s: float = 75.0
    header_line_bytes_max: int = 8190
    headers_max: int = 100
    connections_max: int = 10_000
    #: By address; loopback is not limited.
    connections_per_address_max: int = 1_000
    requests_per_s_per_address: float = 1_000.0
    #: Wrong credentials. Beyond it passwords of nobody known are not even verified.
    failures_per_minute_per_address: float = 60.0
    #: Passwords that an address, loopback too, may try for one name.
    guesses_at_once_per_name: int = 20
    guesses_per_minute_per_name: float = 2.0
    #: A request waits so long for the log; the answer is then 503, and a repeat joins the wait.
    append_timeout_s: float = 10.0
    #: An answer waits so long for the address of the fix it acknowledges.
    address_timeout_s: float = 0.05
    #: Live viewers: SSE and WebSocket. Those of one address, unless it is loopback.
    viewers_per_user_max: int = 50
    viewers_per_address_max: int = 200
    #: A viewer that takes nothing for so long is disconnected.
    stalled_viewer_timeout_s: float = 30.0
    #: Of one WebSocket, with bursts of five seconds' worth.
    fixes_per_s_per_websocket: float = 2_000.0
    #: Refused requests that are kept in topic `error`; all are counted.
    refusals_recorded_per_s: float = 10.0
    refusals_recorded_per_s_per_address: float = 2.0
    refusal_bytes_recorded: int = 64 * 1024


class TokenBucket:
    """So many a second, with bursts of five seconds' worth unless said otherwise."""

    __slots__ = ("_capacity", "_clock", "_filled", "_per_second", "_tokens")

    def __init__(
        self,
        per_second: float,
        clock: Callable[[], float] = time.monotonic,
        burst: float | None = None,
    ) -> None:
        self._per_second = per_second
        self._capacity = max(1.0, 5 * per_second if burst is None else burst)
        self._tokens = self._capacity
        self._clock = clock
        self._filled = clock()

    def take(self, count: float = 1) -> bool:
        """Tell whether so many more are allowed now; if not, none is taken."""
        now = self._clock()
        self._tokens = min(self._capacity, self._tokens + (now - self._filled) * self._per_second)
        self._filled = now
        if self._tokens < count:
            return False
        self._tokens -= count
        return True

    def give_back(self, count: float = 1) -> None:
        """Undo `take`."""
        self._tokens += count
