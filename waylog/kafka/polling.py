"""Takes what has come to a consumer of librdkafka, without waiting for more than there is."""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import Consumer, Message

_POLL_S: Final = 0.2


def next_messages(consumer: Consumer, most: int, timeout_s: float) -> list[Message]:
    """Return the messages that have come, once there is one.

    `consume` alone waits until it has `most`, or for all of its timeout.
    """
    first = consumer.poll(timeout_s)
    return [] if first is None else [first, *consumer.consume(most - 1, timeout=0)]


def next_batch(consumer: Consumer, most: int) -> list[Message]:
    """Return up to `most` messages, as many as come at once; fewer at the end of a partition."""
    messages = next_messages(consumer, most, _POLL_S)
    deadline = time.monotonic() + _POLL_S
    while messages and len(messages) < most and messages[-1].error() is None:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            break
        more = next_messages(consumer, most - len(messages), left_s)
        if not more:
            break
        messages += more
    return messages
