"""Assignors: they distribute partitions over the members of a group (KIP-848, on the broker)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

#: A partition, identified by its topic's id.
TopicPartition = tuple[bytes, int]
Assignment = dict[str, frozenset[TopicPartition]]


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """The input of an assignor: topic ids by member, and partition counts by topic id."""

    topics: Mapping[str, frozenset[bytes]]
    partitions: Mapping[bytes, int]


def assign_ranges(subscriptions: Subscriptions, _present: Assignment) -> Assignment:
    """Assign consecutive partitions of each topic to each member, so that topics can be joined."""
    assigned: dict[str, set[TopicPartition]] = {member: set() for member in subscriptions.topics}
    for topic_id, count in sorted(subscriptions.partitions.items()):
        members = sorted(
            member for member, topics in subscriptions.topics.items() if topic_id in topics
        )
        first = 0
        for index, member in enumerate(members):
            share = count // len(members) + (index < count % len(members))
            assigned[member].update((topic_id, first + each) for each in range(share))
            first += share
    return {member: frozenset(places) for member, places in assigned.items()}


def assign_uniformly(subscriptions: Subscriptions, present: Assignment) -> Assignment:
    """Assign partitions as evenly as subscriptions allow, and move as few as possible."""
    topics = subscriptions.topics
    subscribers: dict[bytes, list[str]] = {
        topic_id: sorted(member for member, chosen in topics.items() if topic_id in chosen)
        for topic_id in subscriptions.partitions
    }
    owner: dict[TopicPartition, str] = {}
    held: dict[str, set[TopicPartition]] = {member: set() for member in topics}
    for member in sorted(topics):
        for place in sorted(present.get(member, ())):
            topic_id, partition = place
            if (
                topic_id in topics[member]
                and partition < subscriptions.partitions.get(topic_id, 0)
                and place not in owner
            ):
                owner[place] = member
                held[member].add(place)
    for topic_id, count in sorted(subscriptions.partitions.items()):
        for partition in range(count if subscribers[topic_id] else 0):
            place = (topic_id, partition)
            if place not in owner:
                member = min(subscribers[topic_id], key=lambda each: len(held[each]))
                owner[place] = member
                held[member].add(place)
    _balance(subscribers, held)
    return {member: frozenset(places) for member, places in held.items()}


def _balance(subscribers: Mapping[bytes, list[str]], held: dict[str, set[TopicPartition]]) -> None:
    """Move partitions to members that have at least two fewer, until no such move is left."""
    is_moving = True
    while is_moving:
        is_moving = False
        for giver in sorted(held, key=lambda member: (-len(held[member]), member)):
            for place in sorted(held[giver]):
                taker = min(subscribers[place[0]], key=lambda each: len(held[each]))
                if len(held[giver]) - len(held[taker]) < 2:
                    continue
                held[giver].remove(place)
                held[taker].add(place)
                is_moving = True


Assignor = Callable[[Subscriptions, Assignment], Assignment]

#: Assignors by the name in `group.remote.assignor`; the first is the default.
ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
