from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.client import topic_matches_sub

from gateway.mqtt.packets.topics import (
    Subscription,
    SubscriptionTree,
    filter_is_valid,
    first_match,
    has_wildcard,
    matches,
    merge,
    split_share,
)
from gateway.mqtt.sessions.session import Session
from gateway.mqtt.settings import Settings
from tests.gateway.mqtt.in_memory import User


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/B", False),
        ("a/b", "a", False),
        ("a/+", "a/b", True),
        ("a/+", "a/", True),
        ("a/+", "a", False),
        ("a/+", "a/b/c", False),
        ("+", "a", True),
        ("+", "/a", False),
        ("+/+", "/a", True),
        ("/+", "/a", True),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("a/#", "ab", False),
        ("#", "a/b", True),
        ("+/b/#", "a/b/c", True),
        ("#", "$SYS/uptime", False),
        ("+/uptime", "$SYS/uptime", False),
        ("$SYS/#", "$SYS/uptime", True),
        ("a/+/c", "a/$b/c", True),
    ],
)
def test_a_filter_matches_as_in_section_4_7(topic_filter: str, topic: str, expected: bool) -> None:
    assert matches(topic_filter, topic) is expected
    tree = SubscriptionTree()
    tree.add(subscription(topic_filter))
    assert bool(tree.match(topic)) is expected


_LEVELS = st.sampled_from(("", "a", "b", "ab", "$a", "\u20ac", "\U0001f6b2"))
_TOPICS = st.lists(_LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
_FILTERS = st.tuples(
    st.lists(st.one_of(st.just("+"), _LEVELS), max_size=4),
    st.sampled_from(([], ["#"])),
).map(lambda parts: "/".join(parts[0] + parts[1]))


@given(_FILTERS.filter(bool), st.lists(_TOPICS, max_size=8), st.integers(0, 9))
def test_a_filter_matches_as_another_implementation_says(
    topic_filter: str, topics: list[str], start: int
) -> None:
    expected = [topic_matches_sub(topic_filter, topic) for topic in topics]
    assert [matches(topic_filter, topic) for topic in topics] == expected
    found = [index for index, matched in enumerate(expected) if matched and start <= index < 6]
    assert first_match(topic_filter, topics, start, 6) == (found[0] if found else -1)


@pytest.mark.parametrize(
    ("topic_filter", "valid"),
    [
        ("a", True),
        ("/", True),
        ("+/a/#", True),
        ("#", True),
        ("", False),
        ("a#", False),
        ("a/#/b", False),
        ("a+", False),
        ("a/+b/c", False),
        ("a/b/c/d/e", False),
    ],
)
def test_wildcards_stand_alone_and_hash_stands_last(topic_filter: str, valid: bool) -> None:
    assert filter_is_valid(topic_filter, levels_max=4) is valid


def test_a_share_has_a_name_and_a_filter() -> None:
    assert split_share("a/b") == (None, "a/b")
    assert split_share("$share/group/a/+") == ("group", "a/+")
    assert split_share("$share/group") == ("group", "")
    assert split_share("$share//a") == ("", "")
    assert split_share("$share/g+/a") == ("g+", "")


def subscription(topic_filter: str, client: str = "c", share: str | None = None) -> Subscription:
    session = Session(client, User("alice"), Settings())
    return Subscription(session, topic_filter, (topic_filter,), share=share)


LEVEL = st.sampled_from(["a", "b", "", "$s"])
TOPIC = st.lists(LEVEL, min_size=1, max_size=4).map("/".join).filter(bool)
FILTER = (
    st.lists(st.one_of(LEVEL, st.just("+")), min_size=1, max_size=4)
    .flatmap(lambda levels: st.sampled_from([levels, [*levels, "#"], ["#"]]))
    .map("/".join)
    .filter(bool)
)


@given(st.lists(FILTER, max_size=12), st.lists(TOPIC, max_size=8), st.data())
def test_the_tree_finds_what_a_comparison_with_each_filter_finds(
    filters: list[str], topics: list[str], data: st.DataObject
) -> None:
    tree = SubscriptionTree()
    present = [subscription(topic_filter, str(n)) for n, topic_filter in enumerate(filters)]
    for item in present:
        tree.add(item)
    removed = data.draw(st.lists(st.sampled_from(present), unique=True) if present else st.just([]))
    for item in removed:
        tree.remove(item)
        present.remove(item)
    for topic in topics:
        expected = {item for item in present if matches(item.topic_filter, topic)}
        found = tree.match(topic)
        assert set(found) == expected
        assert len(found) == len(expected)
    for item in present:
        tree.remove(item)
    assert len(tree) == 0


def test_a_message_goes_to_one_of_a_shared_group_in_turn() -> None:
    tree = SubscriptionTree()
    first, second = (subscription("a/+", name, share="g") for name in ("one", "two"))
    lone = subscription("a/b")
    for item in (first, second, lone):
        tree.add(item)
    chosen = []
    for _ in range(4):
        found = tree.match("a/b")
        assert lone in found
        chosen += [item for item in found if item is not lone]
    assert chosen == [first, second, first, second]
    tree.remove(first)
    assert set(tree.match("a/b")) == {second, lone}
    tree.remove(second)
    assert tree.match("a/b") == [lone]


def test_overlapping_filters_of_a_client_are_one_delivery() -> None:
    first = subscription("a/#")
    second = Subscription(first.session, "a/b", ("a/b",))
    other = subscription("a/b", "other")
    assert merge([first, other, second]) == {
        first.session: [first, second],
        other.session: [other],
    }


def test_only_filters_with_wildcards_have_wildcards() -> None:
    assert has_wildcard("a/+")
    assert has_wildcard("#")
    assert not has_wildcard("a/b")
