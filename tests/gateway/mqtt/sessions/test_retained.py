from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt.packets.message import Message
from gateway.mqtt.packets.topics import matches
from gateway.mqtt.sessions.retained import RetainedStore


def message(topic: str, payload: bytes = b"x") -> Message:
    return Message(topic, payload, 1, True)


def found(store: RetainedStore, topic_filter: str) -> list[str]:
    """Return the topics that match, without the pauses of the search."""
    return [topic for topic in store.matching(topic_filter) if topic is not None]


def test_the_last_message_of_a_topic_is_kept_and_an_empty_one_removes_it() -> None:
    store = RetainedStore(10, 10_000)
    store.put(message("a/b/c", b"old"))
    store.put(message("a/b/c", b"new"))
    kept = store.get("a/b/c")
    assert kept is not None
    assert kept.payload == b"new"
    assert found(store, "a/+/c") == ["a/b/c"]
    store.put(message("a/b/c", b""))
    assert store.get("a/b/c") is None
    assert found(store, "#") == []
    assert store.size_bytes == 0
    store.put(message("never/there", b""))
    assert len(store) == 0


def test_when_it_is_full_the_message_not_renewed_longest_goes() -> None:
    store = RetainedStore(2, 10_000)
    store.put(message("a/1"))
    store.put(message("a/2"))
    store.put(message("a/1", b"again"))
    store.put(message("a/3"))
    assert set(found(store, "a/#")) == {"a/1", "a/3"}
    assert store.evicted == 1


def test_bytes_are_bounded_too() -> None:
    store = RetainedStore(1000, 5000)
    for number in range(50):
        store.put(message(f"a/{number}", b"x" * 1000))
        assert store.size_bytes <= 5000
    assert len(store) == 3
    store.put(message("a/huge", b"x" * 6000))
    assert len(store) == 0
    assert store.size_bytes == 0


TOPIC = st.lists(st.sampled_from(["a", "b", "c", ""]), min_size=1, max_size=4).map("/".join)


@given(
    st.lists(st.tuples(TOPIC, st.binary(max_size=2)), max_size=30),
    st.sampled_from(["#", "a/#", "a/b/#", "a/+", "+/b", "+/+/c", "a/b/+", "a/b", "a"]),
)
def test_it_finds_what_a_comparison_with_each_topic_finds(
    puts: list[tuple[str, bytes]], topic_filter: str
) -> None:
    store = RetainedStore(1000, 1_000_000)
    model: dict[str, bytes] = {}
    for topic, payload in puts:
        store.put(message(topic, payload))
        model.pop(topic, None)
        if payload:
            model[topic] = payload
    expected = {topic for topic in model if matches(topic_filter, topic)}
    assert set(found(store, topic_filter)) == expected
    for topic in expected:
        kept = store.get(topic)
        assert kept is not None
        assert kept.payload == model[topic]


POSITION_TOPIC = "devices/ada/phone/position"


@pytest.mark.parametrize(
    ("topic", "kept", "late"),
    [
        (
            "owntracks/ada/phone",
            b'{"_type":"location","tst":1761994805,"lat":1,"lon":2}',
            b'{"_type":"location","tst":1761991205,"lat":3,"lon":4}',
        ),
        (POSITION_TOPIC, b'{"time":1761994805000,"lat":1}', b'{"time":1761991205,"lat":3}'),
    ],
)
def test_a_late_position_does_not_take_the_place_of_a_newer_one(
    topic: str, kept: bytes, late: bytes
) -> None:
    store = RetainedStore(10, 10_000)
    put: list[bytes] = []
    store.on_put = lambda message: put.append(message.payload)
    for payload in (kept, late):
        store.put(Message(topic, payload, 1, True))
    store.take(Message(topic, late, 1, True))
    retained = store.get(topic)
    assert retained is not None
    assert retained.payload == kept
    assert put == [kept]
    # One that is ahead of the clock is replaced.
    years = 40 * 366 * 86_400
    ahead = re.sub(rb"17619948\d\d", lambda found: b"%d" % (int(found[0]) + years), kept)
    for payload in (ahead, late, kept):
        store.put(Message(topic, payload, 1, True))
    assert put == [kept, ahead, late, kept]
    # Other payloads replace the message, whatever time they contain.
    for payload in (b"not json", b'{"_type":"lwt","tst":1}', late, b""):
        store.put(Message(topic, payload, 1, True))
    assert store.get(topic) is None
