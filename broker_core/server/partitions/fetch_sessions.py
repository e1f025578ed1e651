"""Fetch sessions: a consumer names its partitions once, then only what changes (KIP-227)."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from broker_core import errors

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        FetchRequest,
        FetchRequestForgottenTopicsData,
        FetchRequestPartition,
        FetchRequestTopic,
        FetchResponsePartition,
        FetchResponseResult,
    )

_FULL_WITHOUT_SESSION: Final = -1
_FULL_WITH_NEW_SESSION: Final = 0
_EPOCH_MAX: Final = 2**31 - 1
#: Seconds after its last use during which a session is not evicted for a new one, as in Kafka.
_EVICTION_S: Final = 120.0
#: Partitions in all sessions together; bounds the memory that clients can make the broker use.
PARTITIONS_MAX: Final = 100_000

TopicKey = str | bytes  # topic name, or topic id in versions with ids


@dataclass(slots=True)
class FetchSession:
    """The partitions that one consumer reads, and what it was last told of each."""

    session_id: int
    by_id: bool
    owner: str
    epoch: int = 1
    used_s: float = 0.0
    #: The newest request for each partition. Partitions are read in this order.
    topics: dict[TopicKey, dict[int, FetchRequestPartition]] = field(default_factory=dict)
    #: High watermark, last stable offset and log start offset that the last answer gave.
    told: dict[tuple[TopicKey, int], tuple[int, int, int]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number of partitions in the session."""
        return sum(map(len, self.topics.values()))

    def put(self, topics: Sequence[FetchRequestTopic]) -> None:
        """Add partitions, or change the offsets and limits of those that are in the session."""
        for topic in topics:
            places = self.topics.setdefault(self._key(topic), {})
            for asked in topic["partitions"]:
                places[asked["partition"]] = asked

    def forget(self, topics: Sequence[FetchRequestForgottenTopicsData]) -> None:
        """Remove partitions from the session."""
        for topic in topics:
            key = self._key(topic)
            places = self.topics.get(key, {})
            for index in topic["partitions"]:
                places.pop(index, None)
                self.told.pop((key, index), None)
            if not places:
                self.topics.pop(key, None)

    def _key(
        self, topic: FetchRequestTopic | FetchRequestForgottenTopicsData | FetchResponseResult
    ) -> TopicKey:
        key: TopicKey = topic["topic_id"] if self.by_id else topic["topic"]
        return key

    def wanted(self) -> Iterator[FetchRequestTopic]:
        """Yield the session's topics in the form of a full fetch request."""
        for key, places in self.topics.items():
            yield {
                "topic": "" if isinstance(key, bytes) else key,
                "topic_id": key if isinstance(key, bytes) else bytes(16),
                "partitions": list(places.values()),
            }

    def leave_out_known(
        self, responses: Sequence[FetchResponseResult]
    ) -> list[FetchResponseResult]:
        """Return the responses without the partitions that have nothing new.

        Partitions whose records are returned are read last the next time, so that none starves.
        """
        news: list[FetchResponseResult] = []
        for topic in responses:
            key = self._key(topic)
            changed = [each for each in topic["partitions"] if self._is_news(key, each)]
            if not changed:
                continue
            news.append({**topic, "partitions": changed})
            places = self.topics.get(key)
            if places is not None and any(each["records"] for each in changed):
                for each in changed:
                    asked = places.pop(each["partition_index"], None)
                    if asked is not None:
                        places[each["partition_index"]] = asked
                self.topics[key] = self.topics.pop(key)
        return news

    def _is_news(self, key: TopicKey, result: FetchResponsePartition) -> bool:
        place = key, result["partition_index"]
        if result["error_code"] or "preferred_read_replica" in result:
            # The client has to hear when the error is over: the next answer counts as new.
            self.told.pop(place, None)
            return True
        facts = (
            result["high_watermark"],
            result["last_stable_offset"],
            result["log_start_offset"],
        )
        is_news = bool(result["records"]) or self.told.get(place) != facts
        self.told[place] = facts
        return is_news


class FetchSessions:
    """The fetch sessions of all consumers."""

    def __init__(self, slots: int, randomness: random.Random | None = None) -> None:
        self._slots = slots
        self._random = randomness or random.SystemRandom()
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # in the order of last use
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def find(
        self, body: FetchRequest, owner: str, *, by_id: bool, now_s: float
    ) -> tuple[FetchSession | None, bool]:
        """Return the session of a request, and whether its answer may leave out what is known.

        The session is None for a request without one. Raises FetchSessionIdNotFound,
        InvalidFetchSessionEpoch, FetchSessionTopicIdError.
        """
        session_id, epoch = body["session_id"], body["session_epoch"]
        if epoch in {_FULL_WITHOUT_SESSION, _FULL_WITH_NEW_SESSION}:
            # A client that begins again gives up its old session. It cannot close another client's.
            old = self._sessions.get(session_id)
            if old is not None and old.owner == owner:
                self._drop(old)
            if epoch == _FULL_WITHOUT_SESSION:
                return None, False
            return self._begin(body["topics"], owner, by_id, now_s), False
        session = self._sessions.get(session_id)
        if session is None or session.owner != owner:
            raise errors.FetchSessionIdNotFound()
        if session.epoch != epoch:
            raise errors.InvalidFetchSessionEpoch()
        if session.by_id != by_id:
            raise errors.FetchSessionTopicIdError()
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        session.used_s = now_s
        self._sessions.move_to_end(session_id)
        before = session.size
        session.put(body["topics"])
        session.forget(body["forgotten_topics_data"])
        self._partitions += session.size - before
        if self._partitions > PARTITIONS_MAX:
            self._drop(session)
            raise errors.FetchSessionIdNotFound()
        return session, True

    def _begin(
        self, topics: Sequence[FetchRequestTopic], owner: str, by_id: bool, now_s: float
    ) -> FetchSession | None:
        count = sum(len(topic["partitions"]) for topic in topics)
        if not count or self._partitions + count > PARTITIONS_MAX:
            return None
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_s - oldest.used_s < _EVICTION_S:
                return None
            self._drop(oldest)
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = self._random.randrange(2**31)
        session = FetchSession(session_id, by_id, owner, used_s=now_s)
        session.put(topics)
        self._partitions += session.size
        self._sessions[session_id] = session
        return session

    def _drop(self, session: FetchSession) -> None:
        del self._sessions[session.session_id]
        self._partitions -= session.size
