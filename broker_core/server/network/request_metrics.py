"""Counts of requests by API, and where their time goes.

A request's time has Kafka's parts: `queue` (waits for earlier requests of its connection), `local`
(runs in its handler), `remote` (waits for the disk, for records or for other group members) and
`response` (waits for earlier responses).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker_core.server.network.request import AnyRequest

#: Upper bounds of the histogram of total times, in seconds.
BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class Times:
    """A histogram of durations."""

    __slots__ = ("buckets", "total_s")

    def __init__(self) -> None:
        #: Counts by the first bound that is not exceeded; the last one is for longer durations.
        self.buckets = [0] * (len(BUCKETS_S) + 1)
        self.total_s = 0.0

    def add(self, seconds: float) -> None:
        """Add one duration."""
        self.buckets[bisect_left(BUCKETS_S, seconds)] += 1
        self.total_s += seconds


class ApiTimes:
    """The times of one API, in seconds."""

    __slots__ = ("bytes_in", "local", "queue", "remote", "response", "total")

    def __init__(self) -> None:
        self.total = Times()
        self.bytes_in = 0
        self.queue = 0.0
        self.local = 0.0
        self.remote = 0.0
        self.response = 0.0


class RequestMetrics:
    """Counts requests when their responses are sent."""

    def __init__(self) -> None:
        self.by_api: dict[str, ApiTimes] = {}

    def observe(self, request: AnyRequest, now: float) -> None:
        """Count a request whose response is being sent; `now` is from `time.perf_counter`."""
        name = request.header.api.name
        times = self.by_api.get(name)
        if times is None:
            times = self.by_api[name] = ApiTimes()
        # A request that its handler answered at once has not waited anywhere else.
        local_done = request.local_done or request.replied
        times.total.add(now - request.arrived)
        times.bytes_in += request.size
        times.queue += request.begun - request.arrived
        times.local += local_done - request.begun
        times.remote += request.replied - local_done
        times.response += now - request.replied
