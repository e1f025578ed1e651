"""Friendships in the log: those that exist, what changes, and what has changed meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.friends.friendship_topic import differences
from tests.consumers.running import Broker, await_condition
from tests.gateway.running import Gateway
from waylog.kafka.clients import producer_config
from waylog.kafka.librdkafka_producer import LibrdkafkaProducer
from waylog.kafka.ranges.topic_reader import read_topic
from waylog.kafka.topics import FRIENDSHIP
from waylog.observability.telemetry import now_ms

NAMES = st.sampled_from(["ada", "bob", "cyd", "dan"])
FRIENDSHIPS = st.dictionaries(
    st.tuples(NAMES, NAMES).filter(lambda pair: pair[0] != pair[1]), st.integers(-1, 3)
)


@given(FRIENDSHIPS, FRIENDSHIPS, st.none() | st.sets(NAMES))
def test_what_differs_makes_the_topic_like_the_table(
    stored: dict[tuple[str, str], int], table: dict[tuple[str, str], int], of: set[str] | None
) -> None:
    asked = {pair: since for pair, since in table.items() if of is None or of & {*pair}}
    changes = differences(stored, asked, of)
    after = dict(stored)
    for pair, since in changes.items():
        assert stored.get(pair) != since
        if since is None:
            del after[pair]
        else:
            after[pair] = since
    others = {pair: since for pair, since in stored.items() if of is not None and not of & {*pair}}
    assert after == asked | others


@pytest.fixture
def own_gateway(gateway_broker: Broker, tmp_path: Path) -> Iterator[Gateway]:
    running = Gateway(tmp_path, gateway_broker.address)
    yield running
    running.close()


def records(broker: Broker) -> list[tuple[bytes, bytes | None]]:
    return [(each.key() or b"", each.value()) for each in read_topic(broker.address, FRIENDSHIP)]


def await_friendship(broker: Broker, key: str, since: int | None) -> None:
    expected = None if since is None else json.dumps({"since": since}, separators=(",", ":"))

    def is_so() -> bool:
        value = dict(records(broker)).get(key.encode(), b"")
        return (None if value is None else value.decode("utf-8", "replace")) == expected

    await_condition(is_so, 60, f"{key!r} since {since}")


def test_a_friendship_is_in_the_log_from_its_beginning_to_its_end(
    gateway_broker: Broker, own_gateway: Gateway
) -> None:
    for name in ("ft-ada", "ft-bob", "ft-cyd"):
        own_gateway.user(name)
    rights = own_gateway.users.rights
    rights.befriend("ft-ada", "ft-bob", 5_000)
    rights.befriend("ft-bob", "ft-ada", 7_000)
    rights.befriend("ft-cyd", "ft-ada", 0)
    await_friendship(gateway_broker, "ft-ada\nft-bob", 5_000)
    await_friendship(gateway_broker, "ft-bob\nft-ada", 7_000)
    rights.befriend("ft-ada", "ft-bob", 4_000)
    await_friendship(gateway_broker, "ft-ada\nft-bob", 4_000)
    rights.unfriend("ft-ada", "ft-bob")
    await_friendship(gateway_broker, "ft-ada\nft-bob", None)
    # A user who is revoked has no friends, and is nobody's.
    own_gateway.users.revoke("ft-ada")
    await_friendship(gateway_broker, "ft-bob\nft-ada", None)
    await_friendship(gateway_broker, "ft-cyd\nft-ada", None)


def test_what_has_changed_while_no_gateway_ran_is_put_right_and_nothing_written_twice(
    gateway_broker: Broker, own_gateway: Gateway
) -> None:
    for name in ("fu-ada", "fu-bob", "fu-cyd", "fu-dan"):
        own_gateway.user(name)
    rights = own_gateway.users.rights
    rights.befriend("fu-ada", "fu-bob", 1)
    rights.befriend("fu-ada", "fu-cyd", 2)
    await_friendship(gateway_broker, "fu-ada\nfu-bob", 1)
    await_friendship(gateway_broker, "fu-ada\nfu-cyd", 2)
    own_gateway.kill()
    rights.unfriend("fu-ada", "fu-bob")
    rights.befriend("fu-dan", "fu-ada", 3)
    producer = LibrdkafkaProducer(producer_config(gateway_broker.address, "test"))
    producer.produce(FRIENDSHIP, b"\xff{no friendship", b"fu-ada\nfu-dan")
    producer.produce(FRIENDSHIP, b'{"since":1}', b"\xff\xfe")
    producer.produce(FRIENDSHIP, b'{"since":1}', b"fu-bob\nfu-dan")
    assert producer.flush(60) == 0
    own_gateway.start()
    await_friendship(gateway_broker, "fu-ada\nfu-bob", None)
    await_friendship(gateway_broker, "fu-dan\nfu-ada", 3)
    for ended in ("fu-ada\nfu-dan", "fu-bob\nfu-dan"):
        await_friendship(gateway_broker, ended, None)
    keys = [key for key, _ in records(gateway_broker)]
    known = (b"fu-ada\nfu-bob", b"fu-ada\nfu-cyd", b"fu-dan\nfu-ada")
    assert [keys.count(key) for key in known] == [2, 1, 1]


def test_who_is_shown_squares_is_no_friend_whose_meetings_are_found(
    gateway_broker: Broker, own_gateway: Gateway
) -> None:
    for name in ("fv-ada", "fv-bob", "fv-cyd"):
        own_gateway.user(name)
    rights = own_gateway.users.rights
    rights.befriend("fv-ada", "fv-bob", 5)
    rights.befriend("fv-ada", "fv-cyd", 5, precision="town")
    await_friendship(gateway_broker, "fv-ada\nfv-bob", 5)
    rights.befriend("fv-ada", "fv-bob", precision="metres", metres=50)
    await_friendship(gateway_broker, "fv-ada\nfv-bob", None)
    assert b"fv-ada\nfv-cyd" not in dict(records(gateway_broker))
    rights.befriend("fv-ada", "fv-bob", 6, precision="exact")
    await_friendship(gateway_broker, "fv-ada\nfv-bob", 6)
    # It ends by itself.
    rights.befriend("fv-ada", "fv-bob", precision="exact", until=now_ms() + 1_000)
    await_friendship(gateway_broker, "fv-ada\nfv-bob", None)
