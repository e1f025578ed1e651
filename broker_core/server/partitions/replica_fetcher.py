"""Fetches everything that this broker follows from one other broker.

There is one connection and one fetch session, and usually one request in flight: the records of a
response are appended before the next request acknowledges them. Memory is bounded by the size of a
response.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from broker_core import errors
from broker_core.ordered_set import OrderedSet
from broker_core.protocol.definitions import FETCH
from broker_core.replication.follower import Fetched, FetchPosition, Outcome
from broker_core.replication.throttle import ReplicationQuota, is_throttled
from broker_core.server.network.peer import Peer
from broker_core.server.partitions.flusher import Flusher
from broker_core.server.partitions.replicated_partition import ReplicatedPartition

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        FetchRequest,
        FetchRequestForgottenTopicsData,
        FetchRequestPartition,
        FetchRequestTopic,
        FetchResponse,
        FetchResponsePartition,
    )

logger = logging.getLogger(__name__)

_VERSION: Final = 17
_EPOCH_MAX: Final = 2**31 - 1
_RECONNECT_FIRST_S: Final = 0.02
_RECONNECT_LAST_S: Final = 1.0
#: Seconds before a retry if leader and follower do not know the same leader epoch yet; then twice
#: as long, a few times: a leader that has thousands of new replicas opens them one after the other.
_LATER_S: Final = 0.03
_DOUBLINGS: Final = 4

_Key = tuple[bytes, int]  # topic id, partition


class FetchLimits(NamedTuple):
    """Kafka's `replica.fetch.*` properties."""

    partition_bytes_max: int = 1024 * 1024
    response_bytes_max: int = 10 * 1024 * 1024
    wait_ms_max: int = 500
    bytes_min: int = 1


class ReplicaFetcher:
    """A fetcher for all partitions that this broker follows at one leader."""

    def __init__(
        self,
        leader_id: int,
        peer: Peer,
        node_id: int,
        broker_epoch: Callable[[], int],
        flusher: Flusher,
        limits: FetchLimits,
        now_ms: Callable[[], int],
        quota: ReplicationQuota,
    ) -> None:
        self._quota = quota
        self.leader_id = leader_id
        self.peer = peer
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._flusher = flusher
        self._limits = limits
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._partitions: dict[_Key, ReplicatedPartition] = {}
        self._asked: dict[_Key, FetchPosition] = {}
        # Of two requests in flight: what the second one names, as the session has it for the first.
        self._asked_before: dict[_Key, FetchPosition | None] = {}
        # Partitions that the next request has to name.
        self._changed: dict[_Key, None] = {}
        self._forgotten: set[_Key] = set()
        # How often the leader has refused a partition, and those to ask for again, by this number.
        self._refusals: dict[_Key, int] = {}
        self._refused: dict[int, set[_Key]] = {}
        self._unflushed: OrderedSet[ReplicatedPartition] = OrderedSet()
        self._session_id = 0
        self._session_epoch = 0
        self._questions = 0  # requests without a response
        self._generation = 0  # responses to requests of an older generation are ignored
        self._sending: asyncio.Handle | None = None
        self._timers: set[asyncio.TimerHandle] = set()
        self._reconnect_s = _RECONNECT_FIRST_S
        self._is_waiting = False  # for the time to reconnect
        self._closed = False

    # -------------------------------------------------------------------------------- partitions

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def followed(self) -> list[ReplicatedPartition]:
        """The partitions that are fetched."""
        return list(self._partitions.values())

    def add(self, partition: ReplicatedPartition) -> None:
        """Follow a partition, or follow it in a new leader epoch."""
        key = partition.topic_id, partition.index
        self._partitions[key] = partition
        self._forgotten.discard(key)
        partition.on_flushed = self._flushed
        self._change(key)

    def remove(self, partition: ReplicatedPartition) -> None:
        """Stop following a partition."""
        key = partition.topic_id, partition.index
        if self._partitions.get(key) is not partition:
            return
        del self._partitions[key]
        partition.on_flushed = None
        self._changed.pop(key, None)
        self._asked_before.pop(key, None)
        self._refusals.pop(key, None)
        if self._asked.pop(key, None) is not None:
            self._forgotten.add(key)
        if partition in self._unflushed:
            self._unflushed.discard(partition)
            # The other partitions may have waited only for its flush.
            if self._sending is None and not self._closed:
                self._sending = self._loop.call_soon(self._send)

    def close(self) -> None:
        """Stop following all partitions, and close the connection."""
        self._closed = True
        for partition in list(self._partitions.values()):
            self.remove(partition)
        for timer in self._timers:
            timer.cancel()
        if self._sending is not None:
            self._sending.cancel()
        self.peer.close()

    # ---------------------------------------------------------------------------------- questions

    def _change(self, key: _Key) -> None:
        self._changed[key] = None
        self._forgotten.discard(key)
        # The leader holds a request until there are new records; a second one makes it answer.
        if self._questions < 2 and self._sending is None:
            self._sending = self._loop.call_soon(self._send)

    def _send(self) -> None:
        self._sending = None
        if self._closed or self._is_waiting or self._questions >= 2 or not self._partitions:
            return
        if self._unflushed or (self._questions and not self._changed):
            return
        limits = self._limits
        if not self._session_id:
            self._changed = dict.fromkeys(self._partitions)
            self._forgotten.clear()
        body: FetchRequest = {
            "replica_state": {
                "replica_id": self._node_id,
                "replica_epoch": self._broker_epoch(),
            },
            "max_wait_ms": limits.wait_ms_max,
            "min_bytes": limits.bytes_min,
            "max_bytes": limits.response_bytes_max,
            "isolation_level": 0,
            "session_id": self._session_id,
            "session_epoch": self._session_epoch,
            "topics": self._wanted(),
            "forgotten_topics_data": _by_topic(self._forgotten),
            "rack_id": "",
        }
        self._changed.clear()
        self._forgotten.clear()
        self._session_epoch = 1 if self._session_epoch == _EPOCH_MAX else self._session_epoch + 1
        self._questions += 1
        generation = self._generation

        def answered(answer: FetchResponse | None) -> None:
            if generation == self._generation:
                self._answered(answer)

        self.peer.send(FETCH, _VERSION, body, answered)

    def _wanted(self) -> list[FetchRequestTopic]:
        topics: dict[bytes, list[FetchRequestPartition]] = {}
        for key in self._changed:
            partition = self._partitions.get(key)
            follower = partition.follower if partition is not None else None
            if partition is None or follower is None or self._holds(key, partition):
                continue
            if self._questions:
                self._asked_before[key] = self._asked.get(key)
            position = self._asked[key] = follower.position()
            topics.setdefault(key[0], []).append(
                {
                    "partition": key[1],
                    "current_leader_epoch": position.leader_epoch,
                    "fetch_offset": position.offset,
                    "last_fetched_epoch": position.last_epoch,
                    "log_start_offset": position.log_start_offset,
                    "partition_max_bytes": self._limits.partition_bytes_max,
                }
            )
        return [
            {"topic_id": topic_id, "partitions": partitions}
            for topic_id, partitions in topics.items()
        ]

    def _is_throttled(self, partition: ReplicatedPartition) -> bool:
        setting = partition.log.config.follower_replication_throttled_replicas
        return (
            is_throttled(setting, partition.index, self._node_id)
            and self._node_id not in partition.image.isr
        )

    def _holds(self, key: _Key, partition: ReplicatedPartition) -> bool:
        """Return whether the throttle delays a replica that catches up; it is fetched later."""
        if not self._is_throttled(partition):
            return False
        wait_s = self._quota.wait_s(self._loop.time())
        if not wait_s:
            return False
        if self._asked.pop(key, None) is not None:
            self._forgotten.add(key)
        self._later(wait_s, lambda: self._change_if_followed(key))
        return True

    # ------------------------------------------------------------------------------------ answers

    def _answered(self, answer: FetchResponse | None) -> None:
        self._questions -= 1
        if self._closed:
            return
        if answer is None or answer["error_code"]:
            self._begin_again(None if answer is None else answer["error_code"])
            return
        self._reconnect_s = _RECONNECT_FIRST_S
        self._session_id = answer["session_id"]
        for topic in answer["responses"]:
            for each in topic["partitions"]:
                self._take((topic["topic_id"], each["partition_index"]), each)
        self._asked_before.clear()
        for partition in self._unflushed:
            self._flusher.request(partition)
        if self._sending is None:
            self._send()

    def _take(self, key: _Key, each: FetchResponsePartition) -> None:
        partition, newest = self._partitions.get(key), self._asked.get(key)
        asked = self._asked_before.get(key, newest)
        follower = partition.follower if partition is not None else None
        if partition is None or follower is None or asked is None or newest is None:
            return
        diverging = each["diverging_epoch"]
        # What has been received is never a part of a file.
        records = cast("memoryview", each["records"] or b"")
        try:
            outcome = follower.take(
                asked,
                Fetched(
                    each["error_code"],
                    each["high_watermark"],
                    each["log_start_offset"],
                    None if diverging is None else (diverging["epoch"], diverging["end_offset"]),
                    records,
                ),
                self._now_ms(),
            )
        except errors.BrokerError as error:
            logger.error("%s cannot follow broker %d: %s", partition, self.leader_id, error)
            partition.cannot_follow(error)
            self._later(_RECONNECT_LAST_S, lambda: self._change_if_followed(key))
            return
        partition.show_followed()
        if outcome is Outcome.LATER:
            logger.debug("%s: broker %d answers %d", partition, self.leader_id, each["error_code"])
            self._ask_again(key)
            return
        self._refusals.pop(key, None)
        if outcome is Outcome.APPENDED or outcome is Outcome.TRUNCATED:
            self._changed[key] = None
            if records and self._is_throttled(partition):
                self._quota.record(len(records), self._loop.time())
            if partition.acknowledges_after_flush and outcome is Outcome.APPENDED:
                # The next request acknowledges these records, so they must be durable first.
                self._unflushed.add(partition)
        elif newest.offset != partition.log.log_end_offset:
            self._changed[key] = None

    def _ask_again(self, key: _Key) -> None:
        doublings = self._refusals.get(key, 0)
        self._refusals[key] = min(doublings + 1, _DOUBLINGS)
        refused = self._refused.get(doublings)
        if refused is None:
            # One timer, and one request, for all of a response.
            refused = self._refused[doublings] = set()
            self._later(_LATER_S * 2**doublings, partial(self._ask_refused, doublings))
        refused.add(key)
        # Meanwhile the refusal does not come with each response.
        if self._asked.pop(key, None) is not None:
            self._forgotten.add(key)

    def _ask_refused(self, doublings: int) -> None:
        for key in self._refused.pop(doublings):
            self._change_if_followed(key)

    def _flushed(self, partition: ReplicatedPartition) -> None:
        log = partition.log
        if partition not in self._unflushed:
            return
        if log.recovery_point < log.log_end_offset:
            self._flusher.request(partition)
            return
        self._unflushed.discard(partition)
        if not self._unflushed and self._sending is None:
            self._send()

    def _change_if_followed(self, key: _Key) -> None:
        if key in self._partitions:
            self._change(key)

    def _begin_again(self, code: int | None) -> None:
        """Begin a new session after a delay: without a response the session's state is unknown."""
        if code is not None:
            logger.debug("broker %d refuses a fetch: %d", self.leader_id, code)
            self.peer.disconnect()
        self._generation += 1
        self._questions = 0
        self._asked_before.clear()
        self._session_id = self._session_epoch = 0
        self._is_waiting = True
        delay_s, self._reconnect_s = (
            self._reconnect_s,
            min(2 * self._reconnect_s, _RECONNECT_LAST_S),
        )

        def go_on() -> None:
            self._is_waiting = False
            self._send()

        self._later(delay_s, go_on)

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        def run() -> None:
            self._timers.discard(timer)
            action()

        timer = self._loop.call_later(delay_s, run)
        self._timers.add(timer)


def _by_topic(keys: set[_Key]) -> list[FetchRequestForgottenTopicsData]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, index in keys:
        topics.setdefault(topic_id, []).append(index)
    return [{"topic_id": topic_id, "partitions": indexes} for topic_id, indexes in topics.items()]
