"""Assignors: they distribute partitions over the members of a group (KIP-848, on the broker).

They run at every change of a group, on the event loop. So their work grows with the partitions and
with the different subscriptions, not with partitions times members: members that subscribe to the
same topics are looked at together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace, nsmallest
from typing import Final

#: A partition, identified by its topic's id.
TopicPartition = tuple[bytes, int]
Assignment = dict[str, frozenset[TopicPartition]]

#: How many partitions a member has, and the member.
_Load = tuple[int, str]
#: Stands for a topic to which all subscribe who subscribe to any.
_ANY: Final = b""


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """The input of an assignor: topic ids by member, and partition counts by topic id."""

    topics: Mapping[str, frozenset[bytes]]
    partitions: Mapping[bytes, int]

    def members_by_topics(self) -> dict[frozenset[bytes], list[str]]:
        """Return the members that subscribe to the same topics together, in order."""
        members: dict[frozenset[bytes], list[str]] = {}
        for member in sorted(self.topics):
            members.setdefault(self.topics[member], []).append(member)
        return members

    def subscribers(self) -> dict[bytes, list[list[str]]]:
        """Return who subscribes to each topic, as lists of members with the same topics."""
        subscribers: defaultdict[bytes, list[list[str]]] = defaultdict(list)
        for topics, members in self.members_by_topics().items():
            for topic_id in topics:
                subscribers[topic_id].append(members)
        return subscribers


def assign_ranges(subscriptions: Subscriptions, _present: Assignment) -> Assignment:
    """Assign consecutive partitions of each topic to each member, so that topics can be joined."""
    assigned: dict[str, set[TopicPartition]] = {member: set() for member in subscriptions.topics}
    for topic_id, alike in subscriptions.subscribers().items():
        partitions = subscriptions.partitions.get(topic_id, 0)
        share, remainder = divmod(partitions, sum(map(len, alike)))
        first = 0
        # If there are fewer partitions than members, the first members have one each.
        candidates = [member for each in alike for member in each[:partitions]]
        for index, member in enumerate(nsmallest(partitions, candidates)):
            end = first + share + (index < remainder)
            assigned[member].update((topic_id, each) for each in range(first, end))
            first = end
    return {member: frozenset(places) for member, places in assigned.items()}


def assign_uniformly(subscriptions: Subscriptions, present: Assignment) -> Assignment:
    """Assign partitions as evenly as subscriptions allow, and move as few as possible."""
    partitions = subscriptions.partitions
    owned: set[TopicPartition] = set()
    held: dict[str, set[TopicPartition]] = {}
    for member in sorted(subscriptions.topics):
        topics = subscriptions.topics[member]
        held[member] = {
            place
            for place in present.get(member, ())
            if place[0] in topics and place[1] < partitions.get(place[0], 0) and place not in owned
        }
        owned |= held[member]
    loads = _Loads(subscriptions, held)
    for topic_id in sorted(loads.subscribed):
        for partition in range(partitions.get(topic_id, 0)):
            place = (topic_id, partition)
            if place not in owned:
                _, member = loads.least(topic_id)
                held[member].add(place)
                loads.increase(member)
    _balance(held, loads)
    return {member: frozenset(places) for member, places in held.items()}


class _Alike:
    """Members that subscribe to the same topics."""

    __slots__ = ("_loads", "least", "topics")

    def __init__(self, topics: frozenset[bytes], loads: list[_Load]) -> None:
        self.topics = topics | {_ANY} if topics else topics
        # Loads of the members, also some that members no longer have.
        self._loads = loads
        heapify(loads)
        self.least = loads[0]

    def change(self, load: _Load, load_of: Mapping[str, int]) -> None:
        """Take note of a member's new load."""
        loads = self._loads
        heappush(loads, load)
        while loads[0][0] != load_of[loads[0][1]]:
            heappop(loads)
        self.least = loads[0]


class _Loads:
    """How many partitions members have; finds the subscribers that have the fewest."""

    def __init__(
        self, subscriptions: Subscriptions, held: Mapping[str, set[TopicPartition]]
    ) -> None:
        self.of = {member: len(places) for member, places in held.items()}
        self._alike: dict[str, _Alike] = {}
        #: The topics that have subscribers, with those who subscribe to the same topics.
        self.subscribed: defaultdict[bytes, list[_Alike]] = defaultdict(list)
        for topics, members in subscriptions.members_by_topics().items():
            alike = _Alike(topics, [(self.of[member], member) for member in members])
            self._alike.update(dict.fromkeys(members, alike))
            for topic_id in alike.topics:
                self.subscribed[topic_id].append(alike)
        # By topic: the least load of each `_Alike`, as it was when it was looked at last.
        self._least: dict[bytes, list[_Load]] = {}
        # What was at some time the least load of members who have given partitions away, and of
        # those like them.
        self._before: dict[_Alike, int] = {}

    def least(self, topic_id: bytes) -> _Load:
        """Return the subscriber that has the fewest partitions, of these the first."""
        heap = self._least.get(topic_id)
        if heap is None:
            heap = [alike.least for alike in self.subscribed[topic_id]]
            heapify(heap)
            self._least[topic_id] = heap
        while True:
            load = self._alike[heap[0][1]].least
            if load == heap[0]:
                return load
            heapreplace(heap, load)

    def increase(self, member: str) -> None:
        """Count another partition of a member."""
        self.of[member] += 1
        self._alike[member].change((self.of[member], member), self.of)

    def decrease(self, member: str) -> None:
        """Count a partition less; `least` takes note of it after `lowered` only."""
        alike = self._alike[member]
        self._before[alike] = max(self._before.get(alike, 0), alike.least[0])
        self.of[member] -= 1
        alike.change((self.of[member], member), self.of)

    def lowered(self) -> set[bytes]:
        """Return the topics of which subscribers may have fewer partitions than all had before."""
        topics: set[bytes] = set()
        for alike, before in self._before.items():
            if alike.least[0] >= before:
                continue
            topics |= alike.topics
            for topic_id in alike.topics:
                heap = self._least.get(topic_id)
                if heap is not None:
                    heappush(heap, alike.least)
        self._before.clear()
        return topics


class _Giver:
    """The partitions that a member can give away."""

    def __init__(self, places: Iterable[TopicPartition], loads: _Loads) -> None:
        self._loads = loads
        self._partitions: defaultdict[bytes, list[int]] = defaultdict(list)
        for topic_id, partition in sorted(places, reverse=True):
            self._partitions[topic_id].append(partition)
        # The topics by the subscriber that had the fewest partitions when this was looked up.
        self._topics: defaultdict[str, list[bytes]] = defaultdict(list)
        for topic_id in self._partitions:
            self._topics[loads.least(topic_id)[1]].append(topic_id)
        self._takers = [(loads.of[member], member) for member in self._topics]
        heapify(self._takers)

    def give(self, load: int) -> tuple[TopicPartition, str] | None:
        """Remove a partition for a member that has at least two fewer; return it and the member."""
        takers = self._takers
        while takers:
            count, taker = takers[0]
            topics = self._topics[taker]
            if not topics:
                heappop(takers)
            elif count != self._loads.of[taker]:
                heapreplace(takers, (self._loads.of[taker], taker))
            elif not self._partitions[topics[-1]]:
                topics.pop()
            else:
                topic_id = topics[-1]
                least = self._loads.least(topic_id)
                if least[1] != taker:
                    self._topics[least[1]].append(topics.pop())
                    heappush(takers, least)
                if load - least[0] < 2:
                    return None
                return (topic_id, self._partitions[topic_id].pop()), least[1]
        return None


def _balance(held: dict[str, set[TopicPartition]], loads: _Loads) -> None:
    """Move partitions to members that have at least two fewer, until no such move is left."""
    givers = list(held)
    while givers:
        _balance_once(givers, held, loads)
        lowered = loads.lowered()
        givers = [
            member
            for member, places in held.items()
            if lowered and any(topic_id in lowered for topic_id, _ in places)
        ]


def _balance_once(
    members: Iterable[str], held: dict[str, set[TopicPartition]], loads: _Loads
) -> None:
    """Let members give partitions away, first those that have most."""
    waiting = [(-loads.of[member], member) for member in members]
    heapify(waiting)
    givers: dict[str, _Giver] = {}
    while waiting:
        negative, member = heappop(waiting)
        load = loads.of[member]
        if load != -negative:
            continue
        if not held[member] or load - loads.least(_ANY)[0] < 2:
            break
        given = None
        if member in givers:
            given = givers[member].give(load)
        if given is None:
            # The subscriber with the fewest partitions of a topic may be another one by now.
            givers[member] = _Giver(held[member], loads)
            given = givers[member].give(load)
        if given is None:
            continue
        place, taker = given
        held[member].remove(place)
        held[taker].add(place)
        givers.pop(taker, None)
        loads.increase(taker)
        loads.decrease(member)
        heappush(waiting, (-loads.of[member], member))
        heappush(waiting, (-loads.of[taker], taker))


Assignor = Callable[[Subscriptions, Assignment], Assignment]

#: Assignors by the name in `group.remote.assignor`; the first is the default.
ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
