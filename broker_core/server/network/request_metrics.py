"""How often each API is asked, and where its time goes.

A request's time has Kafka's parts: `queue` (it waits for others of its connection), `local` (its
handler works), `remote` (it waits for the disk, for records or for other members of its group) and
`response` (its answer waits for earlier ones).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker_core.server.network.request import Request

#: Upper bounds of the histogram of total times, in seconds.
BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class Times:
    """How often something took how long."""

    __slots__ = ("buckets", "total_s")

    def __init__(self) -> None:
        #: How often, by the first bound that is not exceeded; the last is "longer".
        self.buckets = [0] * (len(BUCKETS_S) + 1)
        self.total_s = 0.0

    def add(self, seconds: float) -> None:
        """It took so long."""
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
    """Counts requests when their answers are sent."""

    def __init__(self) -> None:
        self.by_api: dict[str, ApiTimes] = {}

    def observe(self, request: Request, now: float) -> None:
        """A request's answer is being sent; `now` is of the clock that its moments are of."""
        name = request.header.api.name
        times = self.by_api.get(name)
        if times is None:
            times = self.by_api[name] = ApiTimes()
        # One that was answered inside of its handler was never anywhere else.
        local_done = request.local_done or request.replied
        times.total.add(now - request.arrived)
        times.bytes_in += request.size
        times.queue += request.begun - request.arrived
        times.local += local_done - request.begun
        times.remote += request.replied - local_done
        times.response += now - request.replied
