"""The topics that workers share, on a real broker."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.data.exceptions import ConnectException
from consumers.connect.topics.internal_topics import InternalTopic, ensure_internal_topics
from consumers.connect.topics.offset_store import OffsetTopicStore
from tests.contract.broker_process import BrokerProcess
from waylog.kafka.clients import LogUnreachable, client_config, consumer_config
from waylog.kafka.topic_log import TopicLog, TopicRecord

WAIT_S = 60


def internal(name: str, partitions: int = 3, *, single: bool = False) -> InternalTopic:
    return InternalTopic(name, "offset.storage.topic", "offsets", partitions, 1, {}, single)


def make_log(servers: str, topic: str, taken: list[TopicRecord]) -> TopicLog:
    return TopicLog(
        {topic: taken.append},
        consumer=consumer_config(servers, "tests", "tests", enable_partition_eof=True),
        producer=client_config(servers, "tests", acks="all", delivery_timeout_ms=0),
        admin=client_config(servers, "tests"),
        name="tests",
        error=ConnectException,
    )


@pytest.fixture
def topic(servers: str) -> str:
    name = f"shared-{uuid.uuid4().hex[:8]}"
    ensure_internal_topics(client_config(servers, "tests"), [internal(name)])
    return name


@pytest.fixture
def taken() -> list[TopicRecord]:
    return []


@pytest.fixture
def log(servers: str, topic: str, taken: list[TopicRecord]) -> Iterator[TopicLog]:
    log = make_log(servers, topic, taken)
    log.start()
    yield log
    log.close()


def test_what_was_written_before_is_read(
    log: TopicLog, topic: str, taken: list[TopicRecord], servers: str
) -> None:
    log.read_to_end(topic).result(WAIT_S)
    assert taken == []
    for number in range(50):
        log.write(topic, str(number).encode(), b"v").result(WAIT_S)
    log.write(topic, b"0", None).result(WAIT_S)
    log.read_to_end(topic).result(WAIT_S)
    assert len(taken) == 51
    others: list[TopicRecord] = []
    other = make_log(servers, topic, others)
    other.start()
    other.read_to_end(topic).result(WAIT_S)
    assert set(others) == set(taken)
    other.close()


def test_a_topic_that_is_missing_is_told(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waylog.kafka.topic_log._START_S", 0.3)
    log = make_log(servers, f"missing-{uuid.uuid4().hex[:8]}", [])
    with pytest.raises(LogUnreachable, match=r"^topic missing-"):
        log.start()
    log.close()


def test_who_waits_is_told_when_the_log_closes(servers: str, topic: str) -> None:
    log = make_log(servers, topic, [])
    waits = log.read_to_end(topic)
    log.close()
    with pytest.raises(ConnectException, match="is stopping"):
        waits.result(WAIT_S)


def test_writing_and_reading_wait_for_a_log_that_is_away(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    servers = broker.start()
    ensure_internal_topics(client_config(servers, "tests"), [internal("shared")])
    taken: list[TopicRecord] = []
    log = make_log(servers, "shared", taken)
    log.start()
    log.read_to_end("shared").result(WAIT_S)
    os.kill(broker.pid, signal.SIGSTOP)
    written, read = log.write("shared", b"k", b"v"), log.read_to_end("shared")
    with pytest.raises(TimeoutError):
        written.result(0.5)
    assert not read.done()
    os.kill(broker.pid, signal.SIGCONT)
    written.result(WAIT_S)
    log.read_to_end("shared").result(WAIT_S)
    read.result(WAIT_S)
    assert [each.key for each in taken] == [b"k"]
    log.close()
    broker.stop()


def test_what_is_committed_behind_an_open_transaction_is_waited_for(
    servers: str, topic: str, log: TopicLog, taken: list[TopicRecord]
) -> None:
    one, two = (
        Producer(client_config(servers, "tests", transactional_id=f"{topic}-{number}"))
        for number in range(2)
    )
    for each in (one, two):
        each.init_transactions(WAIT_S)
        each.begin_transaction()
    one.produce(topic, b"v", b"open", partition=0)
    one.flush(WAIT_S)
    two.produce(topic, b"v", b"committed", partition=0)
    two.commit_transaction(WAIT_S)
    read = log.read_to_end(topic)
    with pytest.raises(TimeoutError):
        read.result(1.0)
    # A reader that need not know it does not wait.
    log.read_to_end(topic, waits=False).result(WAIT_S)
    assert not taken
    one.abort_transaction(WAIT_S)
    read.result(WAIT_S)
    assert [each.key for each in taken] == [b"committed"]


def test_topics_are_created_compacted_and_may_be_there(servers: str, topic: str) -> None:
    admin = client_config(servers, "tests")
    ensure_internal_topics(admin, [internal(topic)])
    assert len(AdminClient(admin).list_topics(topic).topics[topic].partitions) == 3
    with pytest.raises(ConfigException, match="to have a single partition"):
        ensure_internal_topics(admin, [internal(topic, single=True)])


def test_a_topic_that_is_not_compacted_alone_is_refused(servers: str) -> None:
    admin = client_config(servers, "tests")
    name = f"both-{uuid.uuid4().hex[:8]}"
    new = NewTopic(name, 1, 1, config={"cleanup.policy": "compact,delete"})
    client = AdminClient(admin)
    client.create_topics([new])[name].result(WAIT_S)
    with pytest.raises(ConfigException, match="but found the topic currently has"):
        ensure_internal_topics(admin, [internal(name)])


def test_too_many_replicas_are_refused(servers: str) -> None:
    with pytest.raises(ConfigException, match="cannot be created with replication factor 3"):
        ensure_internal_topics(
            client_config(servers, "tests"),
            [internal(f"three-{uuid.uuid4().hex[:8]}")._replace(replication_factor=3)],
        )


def test_a_worker_that_is_no_member_stores_no_offsets(servers: str, topic: str) -> None:
    is_member = [False]
    store = OffsetTopicStore(topic, 30.0, lambda: is_member[0])
    log = TopicLog(
        {topic: store.handle},
        consumer=consumer_config(servers, "tests", "tests", enable_partition_eof=True),
        producer=client_config(servers, "tests", acks="all"),
        admin=client_config(servers, "tests"),
        name="tests",
        error=ConnectException,
    )
    store.use(log)
    log.start()
    with pytest.raises(ConnectException, match="no member of its group"):
        store.put("c", [({"f": "a"}, {"p": 1})])
    is_member[0] = True
    store.put("c", [({"f": "a"}, {"p": 2})])
    store.refresh()
    assert store.get("c", {"f": "a"}) == {"p": 2}
    store.put("c", [({"f": "a"}, None)])
    store.refresh()
    assert store.all("c") == []
    log.close()
