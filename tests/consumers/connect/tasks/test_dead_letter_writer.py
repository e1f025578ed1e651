"""Dead letters in the topic of a broker, and what is left of their writer."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer

from consumers.connect.data.exceptions import DataException
from consumers.connect.errors.dead_letters import DeadLetter, dead_letter
from consumers.connect.errors.failures import ConsumedRecord, Failure
from consumers.connect.errors.stages import Stage
from consumers.connect.tasks.client_properties import ClientProperties
from consumers.connect.tasks.dead_letter_writer import DeadLetterWriter
from tests.contract.reading import read_topic
from waylog.kafka.clients import consumer_config
from waylog.kafka.dead_letters import RecordPlace, read_dead_letter

PLACE: Final = RecordPlace("orders", 3, 42)
#: More than any topic takes without being asked to.
TOO_LARGE: Final = b"x" * 1_048_000


def a_letter(
    topic: str, value: bytes, *, with_context: bool, headers: bytes = b"own"
) -> DeadLetter:
    consumed = ConsumedRecord(*PLACE, b"key", value, 1_700_000_000_000, headers=(("h", headers),))
    failure = Failure(consumed, Stage.VALUE_CONVERTER, "JsonConverter", DataException("no JSON"))
    letter = dead_letter(topic, "sink", 0, failure, with_context=with_context)
    assert letter is not None
    return letter


def threads() -> int:
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def a_writer(servers: str, topic: str) -> DeadLetterWriter:
    clients = ClientProperties(servers, {}, {})
    return DeadLetterWriter(topic, 1, clients.producer("letters"), clients.admin("letters"))


@pytest.mark.parametrize("with_context", [True, False])
def test_of_a_record_that_is_too_large_the_place_is_told(servers: str, with_context: bool) -> None:
    topic = f"letters-{with_context}"
    writer = a_writer(servers, topic)
    stored = [
        writer.write(a_letter(topic, TOO_LARGE, with_context=with_context, headers=b"h" * 2000)),
        writer.write(a_letter(topic, b"after", with_context=with_context)),
    ]
    assert writer.wait(60)
    assert [each.exception() for each in stored] == [None, None]
    writer.close(1)
    consumer = Consumer(consumer_config(servers, "tests", "tests"))
    records = sorted(read_topic(consumer, topic, 1, 2), key=lambda each: len(each.value() or b""))
    consumer.close()
    large, after = map(read_dead_letter, records)
    assert (large.origin, large.value, large.is_whole) == (PLACE, None, False)
    assert large.time == 1_700_000_000_000
    assert ("no JSON" in large.reason) is with_context
    assert (after.value, after.is_whole) == (b"after", True)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads in /proc")
def test_a_closed_writer_leaves_no_thread(servers: str) -> None:
    before = threads()
    writer = a_writer(servers, "letters")
    assert threads() > before
    writer.close(1)
    assert threads() <= before
