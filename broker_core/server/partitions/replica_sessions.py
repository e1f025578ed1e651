"""Fetch sessions of followers: partitions are named once, then only when their offsets change.

A follower's request waits here until something is appended. Only those of its partitions are looked
at that have something new, so the cost of a response depends on what is in it. All followers are
answered together, at the pace of `FollowerResponsePacer`, so that their next requests, which
acknowledge the records, arrive together too. A new high watermark is sent along with the next
records, or a little later without records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker_core import errors
from broker_core.configuration.config import BrokerConfig
from broker_core.environment import FileSlice
from broker_core.replication.response_pace import FollowerResponsePacer
from broker_core.replication.throttle import ReplicationQuota, is_throttled
from broker_core.security.acl import CLUSTER_NAME, Operation, ResourceType
from broker_core.security.authorizer import Authorizer
from broker_core.server.network.request import Request
from broker_core.server.partitions.replicated_partition import ReplicatedPartition
from broker_core.server.partitions.topics import TopicRegistry

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        FetchRequest,
        FetchRequestPartition,
        FetchResponse,
        FetchResponsePartition,
    )

logger = logging.getLogger(__name__)

_NO_SESSION: Final = -1
_NEW_SESSION: Final = 0
_TOPIC_IDS_FROM: Final = 13
#: Seconds after which followers are sent a new high watermark if no records take it along.
_COMMITTED_S: Final = 0.02

_NOTHING_SENT: Final = (-1, -1)

_Key = tuple[bytes, int]  # topic id, partition


class _Followed:
    """One partition of a session, with the follower's newest request for it."""

    __slots__ = ("asked", "partition", "sent")

    def __init__(self, partition: ReplicatedPartition, asked: FetchRequestPartition) -> None:
        self.partition = partition
        self.asked = asked
        #: High watermark and log start offset that the follower was last sent.
        self.sent = _NOTHING_SENT

    @property
    def is_behind(self) -> bool:
        """Return whether the high watermark or the log start offset has changed since."""
        return self.sent != (self.partition.high_watermark, self.partition.log.log_start_offset)


class ReplicaSession:
    """The fetch session of one follower; a ReplicaReader of each of its partitions."""

    def __init__(
        self, sessions: ReplicaSessions, session_id: int, broker_id: int, broker_epoch: int
    ) -> None:
        self.session_id = session_id
        self.broker_id = broker_id
        self._sessions = sessions
        self._broker_epoch = broker_epoch
        self._epoch = 0
        self._followed: dict[_Key, _Followed] = {}
        # Partitions to look at, in this order.
        self._news: dict[_Key, None] = {}
        # Partitions of which only the high watermark is new, which is no reason to answer at once.
        self._moved: set[_Key] = set()
        self._unknown: dict[_Key, int] = {}  # error codes of partitions that cannot be fetched
        self._request: Request[FetchRequest, FetchResponse] | None = None
        self._timer: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------------------------------ requests

    def fetch(self, request: Request[FetchRequest, FetchResponse]) -> None:
        """Answer a request or let it wait; raises InvalidFetchSessionEpoch."""
        body = request.body
        if self._request is not None:
            # The follower names more partitions before the response to its last request.
            self._answer({})
        epoch = body["session_epoch"]
        if epoch > 0 and epoch != self._epoch:
            raise errors.InvalidFetchSessionEpoch()
        self._epoch = 1 if epoch in {_NO_SESSION, 2**31 - 1} else epoch + 1
        for gone in body["forgotten_topics_data"]:
            for index in gone["partitions"]:
                self._forget((gone["topic_id"], index))
        for topic in body["topics"]:
            for asked in topic["partitions"]:
                self._take(topic["topic_id"], asked)
        self._request = request
        response: dict[bytes, list[FetchResponsePartition]] = {}
        if not self._sessions.is_gathering or body["max_wait_ms"] <= 0:
            response = self._collect()
        if response or body["max_wait_ms"] <= 0:
            self._answer(response)
            return
        if self._moved:
            self._sessions.tell_committed()
        request.on_close = self.close
        self._timer = asyncio.get_running_loop().call_later(
            body["max_wait_ms"] / 1000, self._time_out
        )

    def _take(self, topic_id: bytes, asked: FetchRequestPartition) -> None:
        key = topic_id, asked["partition"]
        followed = self._followed.get(key)
        if followed is None or followed.partition.deleted:
            partition = self._find(key)
            if partition is None:
                return
            if followed is not None:
                followed.partition.readers.discard(self)
            followed = self._followed[key] = _Followed(partition, asked)
            partition.readers.add(self)
        followed.asked = asked
        self._news[key] = None
        self._tell_position(followed)

    def _tell_position(self, followed: _Followed) -> None:
        asked = followed.asked
        followed.partition.fetched_by(
            self.broker_id,
            asked["current_leader_epoch"],
            asked["fetch_offset"],
            asked["last_fetched_epoch"],
            log_start_offset=asked["log_start_offset"],
            broker_epoch=self._broker_epoch,
        )

    def _find(self, key: _Key) -> ReplicatedPartition | None:
        topic = self._sessions.topics.by_id(key[0])
        try:
            if topic is None:
                raise errors.UnknownTopicId()
            partition = topic.partition(key[1])
            if not isinstance(partition, ReplicatedPartition):
                raise errors.NotLeaderOrFollower()
        except errors.BrokerError as error:
            self._unknown[key] = error.code
            return None
        return partition

    def _forget(self, key: _Key) -> None:
        followed = self._followed.pop(key, None)
        if followed is not None:
            followed.partition.readers.discard(self)
        self._news.pop(key, None)
        self._moved.discard(key)

    # ------------------------------------------------------------------------------------- answers

    def _collect(self) -> dict[bytes, list[FetchResponsePartition]]:
        assert self._request is not None
        left = self._request.body["max_bytes"]
        topics: dict[bytes, list[FetchResponsePartition]] = {}
        size = 0
        for key, code in self._unknown.items():
            topics.setdefault(key[0], []).append(_refused(key[1], code, -1))
        self._unknown.clear()
        for key in list(self._news):
            followed = self._followed.get(key)
            if followed is None:
                continue
            if size and left <= 0:
                break
            if self._holds(followed):
                continue
            del self._news[key]
            result = self._read(followed, left, first=not size)
            if result is None:
                continue
            length = len(result["records"] or b"")
            size += length
            left -= length
            topics.setdefault(key[0], []).append(result)
            self._moved.discard(key)
        if topics:
            self._add_moved(topics)
        return topics

    def _is_throttled(self, partition: ReplicatedPartition) -> bool:
        setting = partition.log.config.leader_replication_throttled_replicas
        return (
            is_throttled(setting, partition.index, self._sessions.node_id)
            and self.broker_id not in partition.image.isr
        )

    def _holds(self, followed: _Followed) -> bool:
        """Return whether the throttle delays a follower that catches up; it is told later."""
        quota = self._sessions.quota
        if not self._is_throttled(followed.partition):
            return False
        wait_s = quota.wait_s(asyncio.get_running_loop().time())
        if wait_s:
            self._sessions.tell_after(wait_s)
        return wait_s > 0

    def _add_moved(self, topics: dict[bytes, list[FetchResponsePartition]]) -> None:
        moved, self._moved = self._moved, set()
        for key in moved:
            followed = self._followed.get(key)
            if followed is not None and followed.partition.is_led:
                topics.setdefault(key[0], []).append(_result(followed, b"", None))

    def _read(
        self, followed: _Followed, left: int, *, first: bool
    ) -> FetchResponsePartition | None:
        partition, asked = followed.partition, followed.asked
        try:
            records, diverging = partition.read_as_leader(
                asked["current_leader_epoch"],
                asked["fetch_offset"],
                asked["last_fetched_epoch"],
                max(min(asked["partition_max_bytes"], left), 0),
                first=first,
                unread=self._request is not None and self._request.sends_files,
            )
        except errors.BrokerError as error:
            if error.code == errors.KafkaStorageError.code:
                logger.error("%s cannot be read: %s", partition, error)
            return _refused(partition.index, error.code, partition.log.log_start_offset)
        quota = self._sessions.quota
        if records and self._is_throttled(partition):
            quota.record(len(records), asyncio.get_running_loop().time())
        if records or diverging is not None or followed.sent == _NOTHING_SENT:
            return _result(followed, records, diverging)
        if followed.is_behind:
            self._moved.add((partition.topic_id, partition.index))
        return None

    def _answer(self, topics: dict[bytes, list[FetchResponsePartition]]) -> None:
        request, self._request = self._request, None
        assert request is not None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        request.on_close = None
        request.reply(
            {
                "session_id": self.session_id,
                "responses": [
                    {"topic_id": topic_id, "partitions": partitions}
                    for topic_id, partitions in topics.items()
                ],
            }
        )

    def _time_out(self) -> None:
        self._timer = None
        # Sessions are not told when records are deleted; followers learn it here, a little later.
        self._moved.update(key for key, followed in self._followed.items() if followed.is_behind)
        topics = self._collect()
        self._add_moved(topics)
        self._answer(topics)

    def tell(self) -> None:
        """Answer the waiting request if there is anything new."""
        if self._request is None:
            return
        topics = self._collect()
        if self._moved:
            self._add_moved(topics)
        if topics:
            self._answer(topics)

    # ----------------------------------------------------------------------- news from partitions

    def appended(self, partition: ReplicatedPartition) -> None:
        """See ReplicaReader."""
        self._news[partition.topic_id, partition.index] = None
        self._sessions.tell_appended()

    def committed(self, partition: ReplicatedPartition) -> None:
        """See ReplicaReader."""
        self._moved.add((partition.topic_id, partition.index))
        if self._request is not None:
            self._sessions.tell_committed()

    def changed(self, partition: ReplicatedPartition) -> None:
        """See ReplicaReader."""
        # A new leader epoch starts without followers' positions. A follower that learnt of the
        # epoch first has sent its position already, and does not repeat it without new records.
        self.replicas_changed(partition)
        self.appended(partition)

    def replicas_changed(self, partition: ReplicatedPartition) -> None:
        """See ReplicaReader."""
        followed = self._followed.get((partition.topic_id, partition.index))
        if followed is not None:
            self._tell_position(followed)

    def close(self) -> None:
        """Leave all partitions; the follower is gone or begins a new session."""
        self._request = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for followed in self._followed.values():
            followed.partition.readers.discard(self)
        self._followed.clear()
        self._news.clear()
        self._moved.clear()


def _result(
    followed: _Followed, records: bytes | FileSlice, diverging: tuple[int, int] | None
) -> FetchResponsePartition:
    partition = followed.partition
    followed.sent = (partition.high_watermark, partition.log.log_start_offset)
    result: FetchResponsePartition = {
        "partition_index": partition.index,
        "error_code": errors.NONE,
        "high_watermark": followed.sent[0],
        "log_start_offset": followed.sent[1],
        "aborted_transactions": None,
        "records": records,
    }
    if diverging is not None:
        result["diverging_epoch"] = {"epoch": diverging[0], "end_offset": diverging[1]}
    return result


def _refused(index: int, code: int, log_start_offset: int) -> FetchResponsePartition:
    return {
        "partition_index": index,
        "error_code": code,
        "high_watermark": -1,
        "log_start_offset": log_start_offset,
        "aborted_transactions": None,
        "records": b"",
    }


class ReplicaSessions:
    """The sessions of all followers, one for each broker."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicRegistry,
        authorizer: Authorizer | None,
        quota: ReplicationQuota,
        is_registered: Callable[[int], bool],
    ) -> None:
        """`is_registered` tells whether there is a broker with an id."""
        self.node_id = config.node_id
        self.topics = topics
        #: The throttle for followers that catch up.
        self.quota = quota
        self._authorizer = authorizer
        self._is_registered = is_registered
        self._sessions: dict[int, ReplicaSession] = {}  # by broker id
        self._next_id = 1
        self._loop = asyncio.get_running_loop()
        self._pace = FollowerResponsePacer(config.replica_fetch_linger_ms / 1000)
        #: True while appended records wait for more, to be sent together.
        self.is_gathering = False
        self._telling: asyncio.Handle | None = None
        self._tell_at = 0.0

    def fetch(
        self, request: Request[FetchRequest, FetchResponse], broker_id: int, broker_epoch: int
    ) -> None:
        """Answer a follower's Fetch request, now or later."""
        body = request.body
        try:
            if request.version < _TOPIC_IDS_FROM:
                raise errors.UnsupportedVersion("followers name topics by id")
            self._check(request, broker_id)
            session = self._sessions.get(broker_id)
            if body["session_epoch"] in {_NO_SESSION, _NEW_SESSION}:
                if session is not None:
                    session.close()
                session = self._sessions[broker_id] = ReplicaSession(
                    self, self._next_id, broker_id, broker_epoch
                )
                self._next_id += 1
            elif session is None or session.session_id != body["session_id"]:
                raise errors.FetchSessionIdNotFound()
            session.fetch(request)
        except errors.BrokerError as error:
            request.reply({"error_code": error.code})

    def tell_appended(self) -> None:
        """Schedule an answer to the followers for records that have just been appended."""
        now = self._loop.time()
        at = self._pace.appended(now)
        if at > now:
            self.is_gathering = True
        self._tell(now, at)

    def tell_after(self, delay_s: float) -> None:
        """Schedule an answer to the followers after a delay."""
        now = self._loop.time()
        self._tell(now, now + delay_s)

    def tell_committed(self) -> None:
        """Schedule an answer to the followers for a new high watermark."""
        if self._telling is None:
            now = self._loop.time()
            self._tell(now, now + _COMMITTED_S)

    def _tell(self, now: float, at: float) -> None:
        if self._telling is not None:
            if self._tell_at <= at:
                return
            self._telling.cancel()
        self._tell_at = at
        if at > now:
            self._telling = self._loop.call_at(at, self._tell_all)
        else:
            # Everything that this iteration of the event loop appends goes into the same responses.
            self._telling = self._loop.call_soon(self._tell_all)

    def _tell_all(self) -> None:
        self._telling = None
        self._pace.answered(self._loop.time(), has_waited=self.is_gathering)
        self.is_gathering = False
        for session in self._sessions.values():
            session.tell()

    def _check(self, request: Request[FetchRequest, FetchResponse], broker_id: int) -> None:
        authorizer = self._authorizer
        if not self._is_registered(broker_id) or (
            authorizer is not None
            and not authorizer.allows(
                request.principal,
                request.host,
                Operation.CLUSTER_ACTION,
                ResourceType.CLUSTER,
                CLUSTER_NAME,
            )
        ):
            raise errors.ClusterAuthorizationFailed()

    def close(self) -> None:
        """Close all sessions."""
        if self._telling is not None:
            self._telling.cancel()
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()
