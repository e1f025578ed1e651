"""Requests about many things, answered a few of them at a time.

One small frame may ask for the settings of ten thousand topics, or name a hundred thousand that do
not exist. What it asks is handled in pieces, each as a request of its own, in turns of the event
loop with what others ask; the answers to the pieces make one response. So the time for which
others wait does not grow with what one client asks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from broker_core import errors
from broker_core.protocol.definitions import (
    CREATE_TOPICS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    DESCRIBE_TOPIC_PARTITIONS,
    FETCH,
    METADATA,
    PRODUCE,
)
from broker_core.protocol.encoder import Elements
from broker_core.protocol.schema import AnyApi
from broker_core.server.cluster.new_partitions import (
    WhenKnown,
    new_partitions,
    waits_for_partitions,
    wanted_partitions,
    without_waiting,
)
from broker_core.server.name_counts import SHORT_BYTES, count_of_names, may_be_named
from broker_core.server.network.request import AnyRequest, Request, client_party
from broker_core.server.network.request_turns import RequestTurns
from broker_core.server.partitions.topics import TopicRegistry
from broker_core.server.request_pieces import (
    CHANGES,
    LISTS,
    OF_GROUPS,
    OF_PARTITIONS,
    PARTITIONS_EACH,
    PARTITIONS_OF_TOPICS,
    Changes,
    Lists,
    different,
    groups_of_few_topics,
    partition_pieces,
)
from broker_core.server.settings.admin_operations import NEW_PARTITIONS_MAX, too_many_partitions
from waylog.process.log_throttle import LogThrottle

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsRequestTopic,
        DescribeTopicPartitionsResponse,
        DescribeTopicPartitionsResponseTopic,
        MetadataRequestTopic,
        MetadataResponseTopic,
    )

logger = logging.getLogger(__name__)


#: Requests that are answered in one piece. They come often.
_IN_ONE: Final = frozenset((PRODUCE.key, FETCH.key))
#: New topics whose settings a response has: those of one take as much as a hundred names.
_DESCRIBED_MAX: Final = 500
#: Topics that do not exist, above which a Metadata request is refused.
_MISSING_MAX: Final = 20_000
#: What Metadata of all topics does not tell.
_LEFT_OUT: Final = frozenset(
    (errors.TopicAuthorizationFailed.code, errors.UnknownTopicOrPartition.code)
)


class LongRequests:
    """Answers long requests. `handle` answers a request that is not, now or later."""

    def __init__(
        self,
        turns: RequestTurns,
        topics: TopicRegistry,
        handle: Callable[[AnyRequest], None],
        when_known: WhenKnown,
        default_partitions: int,
    ) -> None:
        """`default_partitions`: those of a new topic for which no number is asked."""
        self._turns = turns
        self._topics = topics
        self._handle = handle
        self._when_known = when_known
        self._default_partitions = default_partitions
        self._refusals = LogThrottle()

    def takes(self, request: AnyRequest) -> bool:
        """Tell whether a request is long, and answer it in that case."""
        api: AnyApi = request.header.api
        if api.key in _IN_ONE and request.size <= SHORT_BYTES:
            return False
        if api.key == DESCRIBE_TOPIC_PARTITIONS.key:
            if len(request.body["topics"]) <= PARTITIONS_OF_TOPICS.size:
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
            if named > PARTITIONS_EACH and api.key in OF_PARTITIONS:
                _LongPartitions(self._turns, self._handle, request).go_on()
                return True
        changes = CHANGES.get(api.key)
        if changes is not None:
            return self._takes_change(request, changes)
        if api.key == DESCRIBE_SHARE_GROUP_OFFSETS.key:
            groups = groups_of_few_topics(request.body["groups"])
            if len(groups) > 1:
                _LongGroups(self._turns, self._handle, request, OF_GROUPS, groups).go_on()
            return len(groups) > 1
        lists = LISTS.get(api.key)
        if lists is None:
            return False
        if api.key == METADATA.key and _asks_for_all(request):
            # In version 0 there is no null, and the empty list means "all".
            request.body["topics"] = None
            few = [{"name": each.name, "topic_id": each.topic_id} for each in self._topics]
            if len(few) > lists.size:
                _AllTopics(self._turns, self._handle, request, lists, few).go_on()
            return len(few) > lists.size
        entries = request.body.get(lists.asked)
        if not entries or len(entries) == 1:
            return False
        if api.key == METADATA.key and self._are_too_many_missing(entries):
            self._refuse(request, "asks for too many topics that do not exist")
            return True
        few = different(entries)
        if len(few) <= lists.size:
            request.body[lists.asked] = few
            return False
        _LongList(self._turns, self._handle, request, lists, few).go_on()
        return True

    def _takes_change(self, request: AnyRequest, changes: Changes) -> bool:
        key, body = request.header.api.key, request.body
        if key == CREATE_TOPICS.key and len(body["topics"]) > NEW_PARTITIONS_MAX:
            self._refuse(request, f"names {len(body['topics']):,} new topics, more than one may")
            return True
        size_of, default = self._topics.partition_count, self._default_partitions
        if wanted_partitions(key, body, default, size_of) > NEW_PARTITIONS_MAX:
            # It adds none of them: nobody goes through all that it names.
            if key != CREATE_TOPICS.key:
                return False
            error = too_many_partitions()
            refused = {"configs": None, "error_code": error.code, "error_message": str(error)}
            names = dict.fromkeys(each["name"] for each in body["topics"])
            request.reply({"topics": [{"name": name, **refused} for name in names]})
            return True
        pieces = changes.pieces(body)
        if len(pieces) > 1:
            _LongChange(
                self._turns, self._handle, request, changes, pieces, self._when_known
            ).go_on()
        return len(pieces) > 1

    def _are_too_many_missing(self, asked: Sequence[MetadataRequestTopic]) -> bool:
        if len(asked) <= _MISSING_MAX:
            return False
        if len(asked) > _MISSING_MAX + sum(1 for _ in self._topics):
            return True
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

    def hold(self) -> None:
        """See Request; the whole request holds the client."""

    release = hold


class _LongRequest:
    """A request of which a piece is handled at a time."""

    def __init__(
        self,
        turns: RequestTurns,
        handle: Callable[[AnyRequest], None],
        request: AnyRequest,
        lists: Lists,
        entries: Sequence[Any],
    ) -> None:
        self._turns = turns
        self._handle = handle
        self._request = request
        self._lists = lists
        self._entries = entries
        self._next = 0
        self._results = self._no_results()
        self._piece: _Piece | None = None
        self._is_going = self._is_over = False
        self._party = client_party(request.principal, request.host)
        request.on_close = self._closed
        # What a client sends behind it stays with the client: such requests hold much memory.
        request.hold()

    def go_on(self) -> None:
        """Handle pieces until the turn is over or an answer has to be waited for."""
        end = self._turns.end_of_turn()
        self._is_going = True
        try:
            while self._has_next:
                self._piece = self._next_piece()
                self._handle(self._piece)
                if self._has_next and self._turns.is_over(end):
                    self._turns.wait(self._party, self._take_turn)
                    return
        finally:
            self._is_going = False

    @property
    def _has_next(self) -> bool:
        """Tell whether a piece can be handled now."""
        return self._piece is None and not self._is_over and self._next < len(self._entries)

    def _take_turn(self) -> None:
        if not self._is_over:
            self._request.run(self.go_on)

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
        self._results.extend(results)

    def _no_results(self) -> Any:
        """Return what the results of pieces are added to."""
        return []

    def _is_last(self, response: Any) -> bool:
        return self._next >= len(self._entries)

    def _reply(self, response: dict[str, Any]) -> None:
        self._end()
        self._request.reply(response)
        self._request.release()

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


class _LongList(_LongRequest):
    """A request for many things, whose descriptions are encoded as they come."""

    def _no_results(self) -> Elements:
        header = self._request.header
        return Elements(header.api.response_plan(header.version), self._lists.answered)


class _AllTopics(_LongList):
    """Metadata of all topics: those that may not be described, or are gone, are left out."""

    def _body(self, piece: Sequence[Any]) -> dict[str, Any]:
        return {**super()._body(piece), "allow_auto_topic_creation": False}

    def _add(self, results: Sequence[MetadataResponseTopic]) -> None:
        super()._add([each for each in results if each["error_code"] not in _LEFT_OUT])


class _LongTopicPartitions(_LongRequest):
    """DescribeTopicPartitions, whose response has a limit, and tells where it ends (KIP-966)."""

    def __init__(
        self,
        turns: RequestTurns,
        handle: Callable[[AnyRequest], None],
        request: Request[DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse],
        entries: list[DescribeTopicPartitionsRequestTopic],
    ) -> None:
        super().__init__(turns, handle, request, PARTITIONS_OF_TOPICS, entries)
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
        lists = Lists("topics", "topics", 1)
        super().__init__(turns, handle, request, lists, partition_pieces(request.body["topics"]))
        # What has been answered of each topic.
        self._of_topics: dict[object, list[Any]] = {}

    def _body(self, piece: Sequence[Any]) -> dict[str, Any]:
        (topics,) = piece
        return super()._body(topics)

    def _add(self, results: Sequence[Any]) -> None:
        for each in results:
            topic = each.get("name") or each.get("topic") or each.get("topic_id")
            answers = self._of_topics.get(topic)
            if answers is None:
                answers = self._of_topics[topic] = []
                self._results.append({**each, "partitions": answers})
            answers += each["partitions"]


class _LongGroups(_LongRequest):
    """A request about groups, some of them with many topics; a piece has a few of one group."""

    def _add(self, results: Sequence[Any]) -> None:
        for each in results:
            last = self._results[-1] if self._results else None
            if last is not None and last["group_id"] == each["group_id"]:
                last["topics"] += each.get("topics", ())
            else:
                self._results.append({**each, "topics": [*each.get("topics", ())]})


class _LongChange(_LongRequest):
    """A request that changes many things; each piece is decided on and stored for itself."""

    def __init__(
        self,
        turns: RequestTurns,
        handle: Callable[[AnyRequest], None],
        request: AnyRequest,
        changes: Changes,
        pieces: Sequence[list[Any]],
        when_known: WhenKnown,
    ) -> None:
        lists = Lists(changes.asked_in(request.body), changes.answered, 1)
        super().__init__(turns, handle, request, lists, pieces)
        self._when_known = when_known
        self._waits = waits_for_partitions(request)

    def _body(self, piece: Sequence[Any]) -> dict[str, Any]:
        (entries,) = piece
        body = super()._body(entries)
        return without_waiting(body) if self._waits else body

    def _add(self, results: Sequence[Any]) -> None:
        for each in results:
            if len(self._results) >= _DESCRIBED_MAX and each.get("configs"):
                each["configs"] = None
                each["topic_config_error_code"] = errors.PolicyViolation.code
            self._results.append(each)

    def _reply(self, response: dict[str, Any]) -> None:
        if self._waits:
            body, key = self._request.body, self._request.header.api.key
            made = new_partitions(key, body, response)
            self._when_known(made, body["timeout_ms"], partial(self._waited, response))
        else:
            super()._reply(response)

    def _waited(self, response: dict[str, Any]) -> None:
        if not self._is_over:
            super()._reply(response)


def _asks_for_all(request: AnyRequest) -> bool:
    asked = request.body["topics"]
    return asked is None or (request.version == 0 and not asked)


def _topics_from_cursor(
    body: DescribeTopicPartitionsRequest,
) -> list[DescribeTopicPartitionsRequestTopic]:
    """Return the topics that are left, in the order in which they are described."""
    cursor = body["cursor"]
    first = "" if cursor is None else cursor["topic_name"]
    names = {each["name"] for each in body["topics"]}
    return [{"name": each} for each in sorted(names) if each >= first]
