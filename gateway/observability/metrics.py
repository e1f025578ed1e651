"""The gateway's counters.

The hot path only increments plain integers: prometheus_client's counters take a lock each time.
`gateway.observability.exposition` turns them into metrics when they are scraped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

LATENCY_BUCKETS_S: Final = (
    0.005,
    0.01,
    0.02,
    0.03,
    0.05,
    0.075,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)


class GatewayMetrics:
    """The counters of one gateway process."""

    def __init__(self) -> None:
        self.fixes: dict[str, int] = {}  # acknowledged, by device format
        self.rejected: dict[str, int] = {}  # by device format
        self.events = 0
        self.notices = 0  # notices of events that users were sent
        self.messages = 0  # MQTT messages on topics mapped by the operator
        self.erased = 0  # fixes and events older than the erasure of their device
        self.repeated = 0  # fixes that were already in the log, or on their way
        self.append_failures = 0
        self.unauthorized = 0
        self.connections_refused = 0
        self.requests: dict[tuple[str, int], int] = {}  # by format or route, and status
        self.pushes: dict[str, int] = {}  # addresses and fixes sent, by channel
        self.view_records: dict[str, int] = {}  # read from the log, by topic
        self.skipped = 0  # events not sent to a slow viewer
        self.viewers_stalled = 0  # viewers disconnected because they did not read
        self.answers_stalled = 0  # clients disconnected because they did not read a large answer
        #: Seconds from the submission of a fix to the log's acknowledgement, by LATENCY_BUCKETS_S.
        self.latency_counts = [0] * (len(LATENCY_BUCKETS_S) + 1)
        self.latency_sum = 0.0
        #: Counters of the MQTT listener, by event.
        self.mqtt: Mapping[str, int] = {}
        #: Gauges with their functions, which are called at each scrape.
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}

    def request(self, route: str, status: int) -> None:
        """Count one answered HTTP request."""
        key = (route, status)
        self.requests[key] = self.requests.get(key, 0) + 1

    def pushed(self, channel: str, count: int = 1) -> None:
        """Count messages sent to a device or a viewer."""
        self.pushes[channel] = self.pushes.get(channel, 0) + count

    def gauge(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        """Add a gauge."""
        self.gauges[name] = (documentation, read)
