"""How a long request is divided: which of its lists, and how much of it is a piece."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

from broker_core.protocol.definitions import (
    ALTER_CONFIGS,
    CONSUMER_GROUP_DESCRIBE,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_GROUPS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    LEAVE_GROUP,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    SHARE_GROUP_DESCRIBE,
    TXN_OFFSET_COMMIT,
)


class Lists(NamedTuple):
    """What an API asks for, and how it is answered."""

    #: Names of the lists in the request and in the response.
    asked: str
    answered: str
    #: Elements of a piece. One may have an answer of a megabyte, as a group of many members.
    size: int


LISTS: Final[dict[int, Lists]] = {
    api.key: lists
    for api, lists in (
        (CONSUMER_GROUP_DESCRIBE, Lists("group_ids", "groups", 1)),
        # Each piece is written to the log, here and where members leave.
        (DELETE_GROUPS, Lists("groups_names", "results", 100)),
        (DESCRIBE_CONFIGS, Lists("resources", "results", 2)),
        (DESCRIBE_GROUPS, Lists("groups", "groups", 1)),
        (DESCRIBE_PRODUCERS, Lists("topics", "topics", 1)),
        (DESCRIBE_TRANSACTIONS, Lists("transactional_ids", "transaction_states", 20)),
        (FIND_COORDINATOR, Lists("coordinator_keys", "coordinators", 20)),
        (LEAVE_GROUP, Lists("members", "members", 100)),
        (METADATA, Lists("topics", "topics", 4)),
        (OFFSET_FETCH, Lists("groups", "groups", 1)),
        (SHARE_GROUP_DESCRIBE, Lists("group_ids", "groups", 1)),
    )
}
#: APIs whose `topics` and their `partitions` are answered by the same lists.
OF_PARTITIONS: Final = frozenset(
    api.key
    for api in (
        DELETE_RECORDS,
        LIST_OFFSETS,
        OFFSET_COMMIT,
        OFFSET_FOR_LEADER_EPOCH,
        TXN_OFFSET_COMMIT,
    )
)
OF_GROUPS: Final = Lists("groups", "groups", 1)
#: Topics of a group in a piece.
_TOPICS: Final = 50
#: Partitions of a piece. Pieces of commits are written to the log.
PARTITIONS_EACH: Final = 200
PARTITIONS_OF_TOPICS: Final = Lists("topics", "topics", 10)


class Changes(NamedTuple):
    """What an API changes: the lists in the request and in the response."""

    #: Names of the list in the request: versions may have different ones.
    asked: tuple[str, ...]
    answered: str
    #: Fields of an element that name what is changed; who names it twice is refused.
    key: tuple[str, ...]
    #: Fields of an element that are numbers or lists; so many more of them than one are as dear as
    #: another element.
    dear: Mapping[str, int]

    def asked_in(self, body: Mapping[str, Any]) -> str:
        """Return the name of the list that a request uses."""
        return next((each for each in self.asked if body.get(each)), self.asked[0])

    def pieces(self, body: Mapping[str, Any]) -> list[list[Any]]:
        """Distribute elements among pieces, those about the same thing to the same one."""
        by_name: dict[Hashable, list[Any]] = {}
        name_of = itemgetter(*self.key) if self.key else _identity
        for each in body[self.asked_in(body)] or ():
            name = name_of(each)
            same = by_name.setdefault(name, [])
            if len(same) < 2:  # what is named more often is refused as well
                same.append(each)
        # What is only validated is not stored, and its partitions cost little.
        is_validated = body.get("validate_only", False)
        dear = {} if is_validated else self.dear
        size = _VALIDATED_EACH if is_validated else _CHANGES_EACH
        pieces: list[list[Any]] = []
        room = 0.0
        for same in by_name.values():
            if room <= 0:
                pieces.append([])
                room = size
            pieces[-1] += same
            room -= sum(self._weight(each, dear) for each in same) if dear else len(same)
        return pieces

    @staticmethod
    def _weight(element: Any, dear: Mapping[str, int]) -> float:
        weight = 1.0
        for field, many in dear.items():
            value = element[field] or 0
            weight += max((value if isinstance(value, int) else len(value)) - 1, 0) / many
        return weight


#: What a piece changes: for each there is a record of the metadata log, and one sync for all.
_CHANGES_EACH: Final = 64
_VALIDATED_EACH: Final = 16
_CONFIGS: Final = Changes(
    ("resources",), "responses", ("resource_type", "resource_name"), {"configs": 10}
)
CHANGES: Final[dict[int, Changes]] = {
    ALTER_CONFIGS.key: _CONFIGS,
    INCREMENTAL_ALTER_CONFIGS.key: _CONFIGS,
    CREATE_TOPICS.key: Changes(
        ("topics",), "topics", ("name",), {"num_partitions": 20, "assignments": 20, "configs": 10}
    ),
    CREATE_PARTITIONS.key: Changes(("topics",), "results", ("name",), {"count": 20}),
    DELETE_TOPICS.key: Changes(("topics", "topic_names"), "responses", (), {}),
}


def groups_of_few_topics(groups: Sequence[Any]) -> list[Any]:
    """Return groups, those of many topics several times with a few of them."""
    few: list[Any] = []
    for each in different(groups):
        topics = each["topics"] or ()
        if len(topics) <= _TOPICS:
            few.append(each)
            continue
        for first in range(0, len(topics), _TOPICS):
            few.append({**each, "topics": topics[first : first + _TOPICS]})
    return few


def partition_pieces(topics: Sequence[Any]) -> list[list[Any]]:
    """Distribute topics with their partitions among pieces."""
    pieces: list[list[Any]] = []
    room = 0
    for topic in topics:
        partitions = different(topic["partitions"])
        first = 0
        # A topic without partitions is answered too.
        while first < max(len(partitions), 1):
            if not room:
                pieces.append([])
                room = PARTITIONS_EACH
            some = partitions[first : first + room]
            pieces[-1].append({**topic, "partitions": some})
            first += max(len(some), 1)
            room -= max(len(some), 1)
    return pieces


def different(entries: Sequence[Any]) -> list[Any]:
    """Return elements without repetitions: a name of ten bytes may have an answer of kilobytes."""
    if entries and isinstance(entries[0], str):
        return list(dict.fromkeys(entries))
    return list({_identity(each): each for each in entries}.values())


def _identity(entry: Any) -> Hashable:
    if isinstance(entry, dict):
        values = tuple(entry.values())
        try:
            hash(values)
        except TypeError:
            return tuple(map(_identity, values))
        return values  # nearly always: there may be 50,000
    if isinstance(entry, list | tuple):
        return tuple(dict.fromkeys(map(_identity, entry)))
    hashable: Hashable = entry
    return hashable
