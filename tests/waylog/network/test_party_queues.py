"""Queues of parties."""

from __future__ import annotations

import pytest

from waylog.network.party_queues import PartyQueues


def queues(*items: str) -> PartyQueues[str]:
    made: PartyQueues[str] = PartyQueues()
    for item in items:
        made.add(item[0], item)
    return made


def test_parties_come_in_turn_and_their_items_in_order() -> None:
    waiting = queues("a1", "a2", "a3", "b1", "c1", "b2")
    assert len(waiting) == 6
    assert [waiting.next() for _ in range(3)] == [("a", "a1"), ("b", "b1"), ("c", "c1")]
    waiting.add("c", "c2")
    assert [waiting.next()[1] for _ in range(4)] == ["a2", "b2", "c2", "a3"]
    assert len(waiting) == 0
    with pytest.raises(StopIteration):
        waiting.next()


def test_who_has_the_most_loses_the_oldest() -> None:
    waiting = queues("a1", "b1", "b2", "b3", "a2")
    assert waiting.drop() == "b1"
    waiting.add("a", "a3")
    assert waiting.drop() == "a1"
    assert [waiting.next()[1] for _ in range(4)] == ["a2", "b2", "a3", "b3"]
    with pytest.raises(ValueError, match="empty"):
        waiting.drop()
    waiting.add("a", "a4")
    assert waiting.drop() == "a4"
    assert len(waiting) == 0
    with pytest.raises(StopIteration):
        waiting.next()


def test_what_is_put_back_is_the_next_of_its_party() -> None:
    queues: PartyQueues[int] = PartyQueues()
    for party, item in (("a", 1), ("a", 2), ("b", 3)):
        queues.add(party, item)
    assert queues.next() == ("a", 1)
    queues.put_back("a", 1)
    assert len(queues) == 3
    assert [queues.next() for _ in range(3)] == [("b", 3), ("a", 1), ("a", 2)]
    queues.put_back("c", 4)
    assert queues.next() == ("c", 4)
