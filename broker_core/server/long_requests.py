"""Requests about many things, answered a few of them at a time.

One small frame may ask for the settings of ten thousand topics, or name a hundred thousand that do
not exist. What it asks is handled in pieces, each as a request of its own, in turns of the event
loop with what others ask; the answers to the pieces make one response. So the time for which
others wait does not grow with what one client asks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker_core import errors
from broker_core.protocol.definitions import (
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    DELETE_RECORDS,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TOPIC_PARTITIONS,
    DESCRIBE_TRANSACTIONS,
    FIND_COORDINATOR,
    LEAVE_GROUP,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    SHARE_GROUP_DESCRIBE,
    TXN_OFFSET_COMMIT,
)
from broker_core.protocol.schema import AnyApi
from broker_core.server.name_counts import count_of_names, may_be_named
from broker_core.server.network.request import AnyRequest, Request, client_party
from broker_core.server.network.request_turns import RequestTurns
from broker_core.server.partitions.topics import TopicRegistry
from waylog.process.log_throttle import LogThrottle

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsRequestTopic,
        DescribeTopicPartitionsResponse,
        DescribeTopicPartitionsResponseTopic,
        MetadataRequestTopic,
    )

logger = logging.getLogger(__name__)


class _Lists(NamedTuple):
    """What an API asks for, and how it is answered."""

    #: Names of the lists in the request and in the response.
    asked: str
    answered: str
    #: Elements of a piece. One may have an answer of a megabyte, as a group of many members.
    size: int


_LISTS: Final[dict[int, _Lists]] = {
    api.key: lists
    for api, lists in (
        (CONSUMER_GROUP_DESCRIBE, _Lists("group_ids", "groups", 1)),
        # Each piece is written to the log, here and where members leave.
        (DELETE_GROUPS, _Lists("groups_names", "results", 100)),
        (DESCRIBE_CONFIGS, _Lists("resources", "results", 2)),
        (DESCRIBE_GROUPS, _Lists("groups", "groups", 1)),
        (DESCRIBE_PRODUCERS, _Lists("topics", "topics", 1)),
        (DESCRIBE_TRANSACTIONS, _Lists("transactional_ids", "transaction_states", 20)),
        (FIND_COORDINATOR, _Lists("coordinator_keys", "coordinators", 20)),
        (LEAVE_GROUP, _Lists("members", "members", 100)),
        (METADATA, _Lists("topics", "topics", 4)),
        (OFFSET_FETCH, _Lists("groups", "groups", 1)),
        (SHARE_GROUP_DESCRIBE, _Lists("group_ids", "groups", 1)),
    )
}
#: APIs whose `topics` and their `partitions` are answered by the same lists.
_OF_PARTITIONS: Final = frozenset(
    api.key
    for api in (
        DELETE_RECORDS,
        LIST_OFFSETS,
        OFFSET_COMMIT,
        OFFSET_FOR_LEADER_EPOCH,
        TXN_OFFSET_COMMIT,
    )
)
#: Partitions of a piece. Pieces of commits are written to the log.
_PARTITIONS: Final = 200
#: Topics that do not exist, above which a Metadata request is refused.
_MISSING_MAX: Final = 20_000
_PARTITIONS_OF_TOPICS: Final = _Lists("topics", "topics", 10)


class LongRequests:
    """Answers long requests. `handle` answers a request that is not, now or later."""

    def __init__(
        self, turns: RequestTurns, topics: TopicRegistry, handle: Callable[[AnyRequest], None]
    ) -> None:
        self._turns = turns
        self._topics = topics
        self._handle = handle
        self._refusals = LogThrottle()

    def takes(self, request: AnyRequest) -> bool:
        """Tell whether a request is long, and answer it in that case."""
        api: AnyApi = request.header.api
        if api.key == DESCRIBE_TOPIC_PARTITIONS.key:
            if len(request.body["topics"]) <= _PARTITIONS_OF_TOPICS.size:
                return False
            if topics := _topics_from_cursor(request.body):
                _LongTopicPartitions(self._turns, self._handle, request, topics).go_on()
            else:
                request.reply({"topics": [], "next_cursor": None})
            return True
        if named := count_of_names(request):
            if not may_be_named(named, self._topics):
                self._refuse(
                    request, f"names {named:,} things in {api.name}, more than there can be"
                )
                return True
            if named > _PARTITIONS and api.key in _OF_PARTITIONS:
                _LongPartitions(self._turns, self._handle, request).go_on()
                return True
        lists = _LISTS.get(api.key)
        if lists is None:
            return False
        entries = request.body.get(lists.asked)
        if not entries or len(entries) == 1:
            return False
        if api.key == METADATA.key and self._are_too_many_missing(entries):
            self._refuse(request, "asks for too many topics that do not exist")
            return True
        different = _different(entries)
        if len(different) <= lists.size:
            request.body[lists.asked] = different
            return False
        _LongRequest(self._turns, self._handle, request, lists, different).go_on()
        return True

    def _are_too_many_missing(self, asked: Sequence[MetadataRequestTopic]) -> bool:
        if len(asked) <= _MISSING_MAX:
            return False
        missing = sum(
            self._topics.by_id(each["topic_id"]) is None
            if each["name"] is None
            else self._topics.get(each["name"]) is None
            for each in asked
        )
        return missing > _MISSING_MAX

    def _refuse(self, request: AnyRequest, why: str) -> None:
        if self._refusals.count(time.monotonic()) is not None:
            logger.warning("%s %s", request.host, why)
        request.disconnect()


class _Piece(Request[Any, Any]):
    """A part of a long request, whose answer is a part of the response."""

    __slots__ = ("_answered", "_whole")

    def __init__(
        self, whole: AnyRequest, body: dict[str, Any], answered: Callable[[Any], None]
    ) -> None:
        super().__init__(whole.sink, whole.header, body)
        self._whole = whole
        self._answered = answered

    def reply(self, response: Any) -> None:
        """See Request."""
        self.amend(response)
        self._answered(response)

    def throttle(self, milliseconds: int) -> None:
        """See Request."""
        self._whole.throttle(milliseconds)


class _LongRequest:
    """A request of which a piece is handled at a time."""

    def __init__(
        self,
        turns: RequestTurns,
        handle: Callable[[AnyRequest], None],
        request: AnyRequest,
        lists: _Lists,
        entries: Sequence[Any],
    ) -> None:
        self._turns = turns
        self._handle = handle
        self._request = request
        self._lists = lists
        self._entries = entries
        self._next = 0
        self._results: list[Any] = []
        self._piece: _Piece | None = None
        self._is_going = self._is_over = False
        self._party = client_party(request.principal, request.host)
        request.on_close = self._closed
        # What a client sends behind it stays with the client: such requests hold much memory.
        request.sink.hold()

    def go_on(self) -> None:
        """Handle pieces until the turn is over or an answer has to be waited for."""
        end = self._turns.end_of_turn()
        self._is_going = True
        try:
            while self._piece is None and not self._is_over:
                if self._turns.is_over(end):
                    self._turns.wait(self._party, self._take_turn)
                    return
                self._piece = self._next_piece()
                self._handle(self._piece)
        finally:
            self._is_going = False

    def _take_turn(self) -> None:
        try:
            if not self._is_over:
                self.go_on()
        except Exception:
            header = self._request.header
            logger.exception("%s version %d failed", header.api.name, header.version)
            self._end()
            self._request.disconnect()

    def _next_piece(self) -> _Piece:
        first, self._next = self._next, self._next + self._lists.size
        piece = self._entries[first : self._next]
        return _Piece(self._request, self._body(piece), self._answered)

    def _body(self, piece: Sequence[Any]) -> dict[str, Any]:
        return {**self._request.body, self._lists.asked: piece}

    def _answered(self, response: Any) -> None:
        self._piece = None
        if self._is_over:
            return
        self._add(response.get(self._lists.answered, ()))
        if response.get("error_code", errors.NONE) != errors.NONE:
            self._reply(response)
        elif self._is_last(response):
            self._reply({**response, self._lists.answered: self._results})
        elif not self._is_going:
            self._turns.wait(self._party, self._take_turn)

    def _add(self, results: Sequence[Any]) -> None:
        self._results += results

    def _is_last(self, response: Any) -> bool:
        return self._next >= len(self._entries)

    def _reply(self, response: dict[str, Any]) -> None:
        self._end()
        self._request.reply(response)
        self._request.sink.release()

    def _closed(self) -> None:
        if self._piece is not None and self._piece.on_close is not None:
            self._piece.on_close()
        self._end()

    def _end(self) -> None:
        # The request and what is done for it refer to each other: only the garbage collector would
        # find them.
        self._is_over = True
        self._request.on_close = None
        self._piece = None
        self._entries, self._results = (), []


class _LongTopicPartitions(_LongRequest):
    """DescribeTopicPartitions, whose response has a limit, and tells where it ends (KIP-966)."""

    def __init__(
        self,
        turns: RequestTurns,
        handle: Callable[[AnyRequest], None],
        request: Request[DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse],
        entries: list[DescribeTopicPartitionsRequestTopic],
    ) -> None:
        super().__init__(turns, handle, request, _PARTITIONS_OF_TOPICS, entries)
        self._left = max(request.body["response_partition_limit"], 1)

    def _body(self, piece: Sequence[Any]) -> dict[str, Any]:
        return {**super()._body(piece), "response_partition_limit": self._left}

    def _is_last(self, response: DescribeTopicPartitionsResponse) -> bool:
        topics: Sequence[DescribeTopicPartitionsResponseTopic] = response["topics"]
        self._left -= sum(len(each.get("partitions", ())) for each in topics)
        if response.get("next_cursor") is not None or super()._is_last(response):
            return True
        if self._left > 0:
            return False
        name = self._entries[self._next]["name"]
        response["next_cursor"] = {"topic_name": name, "partition_index": 0}
        return True


class _LongPartitions(_LongRequest):
    """A request about many partitions of topics; a piece has some of one topic, or of several."""

    def __init__(
        self, turns: RequestTurns, handle: Callable[[AnyRequest], None], request: AnyRequest
    ) -> None:
        lists = _Lists("topics", "topics", 1)
        super().__init__(turns, handle, request, lists, _pieces(request.body["topics"]))
        # What has been answered of each topic.
        self._answers: dict[object, list[Any]] = {}

    def _body(self, piece: Sequence[Any]) -> dict[str, Any]:
        (topics,) = piece
        return super()._body(topics)

    def _add(self, results: Sequence[Any]) -> None:
        for each in results:
            topic = each.get("name") or each.get("topic") or each.get("topic_id")
            answers = self._answers.get(topic)
            if answers is None:
                answers = self._answers[topic] = []
                self._results.append({**each, "partitions": answers})
            answers += each["partitions"]


def _pieces(topics: Sequence[Any]) -> list[list[Any]]:
    """Distribute topics with their partitions among pieces."""
    pieces: list[list[Any]] = []
    room = 0
    for topic in topics:
        partitions = _different(topic["partitions"])
        first = 0
        while first < len(partitions):
            if not room:
                pieces.append([])
                room = _PARTITIONS
            some = partitions[first : first + room]
            pieces[-1].append({**topic, "partitions": some})
            first += len(some)
            room -= len(some)
    return pieces


def _different(entries: Sequence[Any]) -> list[Any]:
    """Return elements without repetitions: a name of ten bytes may have an answer of kilobytes."""
    return list({_identity(each): each for each in entries}.values())


def _identity(entry: Any) -> Hashable:
    if isinstance(entry, dict):
        return tuple(map(_identity, entry.values()))
    if isinstance(entry, list | tuple):
        return tuple(dict.fromkeys(map(_identity, entry)))
    hashable: Hashable = entry
    return hashable


def _topics_from_cursor(
    body: DescribeTopicPartitionsRequest,
) -> list[DescribeTopicPartitionsRequestTopic]:
    """Return the topics that are left, in the order in which they are described."""
    cursor = body["cursor"]
    first = "" if cursor is None else cursor["topic_name"]
    names = {each["name"] for each in body["topics"]}
    return [{"name": each} for each in sorted(names) if each >= first]
