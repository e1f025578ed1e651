"""The state of the platform for `GET /v1/pipeline`: throughput, lag, devices."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from gateway.observability.metrics import GatewayMetrics
from gateway.views.address_view import AddressView
from gateway.views.location_view import LocationView
from waylog.kafka.clients import consumer_config
from waylog.kafka.topics import LOCATION
from waylog.process.log_throttle import LogThrottle

logger = logging.getLogger(__name__)

REFRESH_S: Final = 2.0
_TIMEOUT_S: Final = 2.0


class GroupLag:
    """The lag of a consumer group behind the end of topic `location`.

    It is queried in a thread when it is requested, at most every two seconds.
    """

    def __init__(self, bootstrap_servers: str, client_id: str, group: str) -> None:
        self.group = group
        self._bootstrap_servers = bootstrap_servers
        self._client_id = client_id
        self._lag: dict[int, int] | None = None
        self._asked = float("-inf")
        self._said = LogThrottle()
        self._asking: asyncio.Future[dict[int, int] | None] | None = None
        self._lock = threading.Lock()
        self._consumer: Consumer | None = None

    async def by_partition(self) -> dict[int, int] | None:
        """Return the lag in records by partition; None while it is not known."""
        if time.monotonic() - self._asked < REFRESH_S:
            return self._lag
        if self._asking is None:
            loop = asyncio.get_running_loop()
            self._asking = loop.run_in_executor(None, self._ask)
            self._asking.add_done_callback(self._answered)
        # If the log does not answer, the last known lag, or None, is better than no response.
        await asyncio.wait([self._asking], timeout=_TIMEOUT_S)
        return self._lag

    async def close(self) -> None:
        """Close the consumer."""
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _answered(self, future: asyncio.Future[dict[int, int] | None]) -> None:
        self._asking = None
        self._asked = time.monotonic()
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self._lag = future.result()
        elif self._said.count(self._asked) is not None:
            logger.error("the lag of %s is not known", self.group, exc_info=error)

    def _ask(self) -> dict[int, int] | None:
        with self._lock:
            try:
                if self._consumer is None:
                    self._consumer = Consumer(
                        consumer_config(
                            self._bootstrap_servers, f"{self._client_id}-lag", self.group
                        )
                    )
                topic = self._consumer.list_topics(LOCATION, timeout=_TIMEOUT_S).topics[LOCATION]
                partitions = [TopicPartition(LOCATION, number) for number in topic.partitions]
                lag: dict[int, int] = {}
                for committed in self._consumer.committed(partitions, timeout=_TIMEOUT_S):
                    low, high = self._consumer.get_watermark_offsets(committed, timeout=_TIMEOUT_S)
                    # A group that has committed nothing starts at the beginning.
                    start = committed.offset if committed.offset >= 0 else low
                    lag[committed.partition] = max(0, high - max(low, start))
                return lag
            except KafkaException as error:
                logger.debug("the lag of group %s is not known: %s", self.group, error)
                return None

    def _close(self) -> None:
        with self._lock:
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None


class Pipeline:
    """Throughput and lag of the platform."""

    def __init__(
        self,
        location_view: LocationView,
        address_view: AddressView,
        metrics: GatewayMetrics,
        lag: GroupLag,
    ) -> None:
        self._location_view = location_view
        self._address_view = address_view
        self._metrics = metrics
        self._lag = lag
        self._started = time.monotonic()

    async def status(self) -> dict[str, Any]:
        """Return the body of `GET /v1/pipeline`."""
        lag = await self._lag.by_partition()
        return {
            "fixes_per_second": round(self._location_view.rate.per_second(), 1),
            "addresses_per_second": round(self._address_view.rate.per_second(), 1),
            "devices": len(self._location_view),
            "uptime_s": round(time.monotonic() - self._started, 1),
            "groups": [
                {
                    "group": self._lag.group,
                    "topic": LOCATION,
                    "lag": None if lag is None else sum(lag.values()),
                    "lag_by_partition": lag,
                }
            ],
            "resolver_lag": None if lag is None else sum(lag.values()),
            "fixes_by_source": self._metrics.fixes,
            "rejected": sum(self._metrics.rejected.values()),
            "positions": {
                view.topic: {str(each): offset for each, offset in sorted(view.positions.items())}
                for view in (self._location_view, self._address_view)
            },
        }

    async def close(self) -> None:
        """Close the consumer."""
        await self._lag.close()
