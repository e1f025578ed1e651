"""Sink tasks refuse topics that cannot exist, instead of reading none of the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.tasks.subscription import Subscription
from waylog.kafka.clients import consumer_config


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    """A consumer whose broker is away."""
    made = Consumer(consumer_config("127.0.0.1:1", "tests", "tests"))
    yield made
    made.close()


@pytest.mark.parametrize("name", ["a b", "a/b", ".", "..", "é", "x" * 250])
def test_names_that_no_topic_can_have_fail_the_task(consumer: Consumer, name: str) -> None:
    subscribed: list[list[str]] = []
    with pytest.raises(ConnectException, match=r"^Invalid topics: \["):
        Subscription(consumer, {"topics": f"good,{name}"}, subscribed.append)
    assert subscribed == []


def test_other_names_are_subscribed_to(consumer: Consumer) -> None:
    subscribed: list[list[str]] = []
    Subscription(consumer, {"topics": f"a.b, a-b ,{'x' * 249}"}, subscribed.append)
    assert subscribed == [["a.b", "a-b", "x" * 249]]
