"""Records of forwardings that are more than one answer may read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.consumers.running import Broker
from waylog.audit.forwarding_records import ForwardingRecords, ForwardingsUnknown
from waylog.audit.log_reader import LogReader
from waylog.forwarding.definition import Forwarding, Progress, encode, record_key
from waylog.forwarding.keys import NO_KEY
from waylog.forwarding.reach import LogState
from waylog.kafka.clients import ensure_topics, producer_config
from waylog.kafka.topics import FORWARDING, FORWARDING_PROGRESS, FORWARDING_TOPICS

ID = "0123456789abcdef"
LOG = LogState({}, {}, None)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    broker = Broker(tmp_path)
    try:
        yield broker.address
    finally:
        broker.process.stop()


def test_half_of_what_is_known_of_a_forwarding_is_not_told(servers: str) -> None:
    ensure_topics(servers, FORWARDING_TOPICS)
    value = Forwarding(name="n", kind="webhook", url="https://x", created=1, since=1)
    producer = Producer(producer_config(servers, "test"))
    producer.produce(FORWARDING, encode(value), record_key("anna", ID), 0)
    for offset in range(3):
        key = record_key("anna", ID, 0)
        producer.produce(FORWARDING_PROGRESS, encode(Progress(offset=offset)), key, 0)
    assert producer.flush(60) == 0
    records = ForwardingRecords(servers)
    with closing(LogReader(servers)) as log:
        # The newest of three is what counts, and one is read for each answer.
        for left in (2, 1):
            records.refresh(log, 1)
            with pytest.raises(ForwardingsUnknown, match=f"^{left} records that tell how far"):
                records.of_user("anna", LOG)
            assert records.of_user("bert", LOG) == []
        records.refresh(log, 1)
    # All is read; what it says cannot be opened here.
    with pytest.raises(ForwardingsUnknown) as raised:
        records.of_user("anna", LOG)
    assert str(raised.value) == NO_KEY
