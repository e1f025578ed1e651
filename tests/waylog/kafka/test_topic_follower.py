"""A compacted topic that is followed: all partitions, failures, topics that are not there yet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Message

from tests.consumers.running import await_condition
from tests.dying_threads import assert_process_ends
from tests.spark.running import start_broker
from waylog.kafka.clients import LogUnreachable, ensure_topics
from waylog.kafka.librdkafka_producer import append_records
from waylog.kafka.topic_follower import TopicFollower
from waylog.kafka.topics import Topic

TOPIC = Topic("table", 3)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    broker, servers = start_broker(tmp_path_factory.mktemp("broker"))
    ensure_topics(servers, [TOPIC])
    append_records(servers, [("table", b"key %d" % number, b"") for number in range(100)])
    yield servers
    broker.terminate()


def following(
    servers: str,
    take: Callable[[Message], object],
    topic: str = TOPIC.name,
    *,
    may_be_missing: bool = False,
) -> TopicFollower:
    return TopicFollower(servers, topic, take, client_id="follower", may_be_missing=may_be_missing)


def test_all_partitions_are_read_before_the_wait_ends(servers: str) -> None:
    # All of them are in one partition, so that others end at once.
    records: list[tuple[str, bytes, bytes | None]] = [("sided", b"key", bytes(100))] * 20_000
    ensure_topics(servers, [Topic("sided", 3)])
    append_records(servers, records)
    taken: list[Message] = []
    follower = following(servers, taken.append, "sided")
    try:
        assert follower.wait(30.0)
        assert len(taken) == len(records)
    finally:
        follower.close()


def test_a_record_that_the_function_fails_at_is_handed_to_it_again(
    servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    keys: list[bytes | None] = []
    failures = [LogUnreachable("no keys"), LogUnreachable("no keys")]

    def take(message: Message) -> None:
        if len(keys) == 50 and failures:
            raise failures.pop()
        keys.append(message.key())

    follower = following(servers, take)
    try:
        assert follower.wait(30.0)
        assert len(keys) == len(set(keys)) == 100
    finally:
        follower.close()
    assert caplog.text.count("reading topic table failed; it is tried again: no keys") == 1


def test_a_topic_that_may_be_missing_is_read_once_it_is_there(servers: str) -> None:
    keys: list[bytes | None] = []
    follower = following(
        servers, lambda message: keys.append(message.key()), "later", may_be_missing=True
    )
    try:
        assert follower.wait(30.0)
        ensure_topics(servers, [Topic("later", 1)])
        append_records(servers, [("later", b"key", b"")])
        await_condition(lambda: keys == [b"key"], 30, "the record")
    finally:
        follower.close()


def test_a_topic_that_has_to_be_there_is_waited_for(servers: str) -> None:
    follower = following(servers, lambda _message: None, "never")
    try:
        with pytest.raises(LogUnreachable, match="topic never did not answer for 0 s"):
            follower.wait(0.2)
        stopping = threading.Event()
        stopping.set()
        assert not follower.wait(30.0, stopping=stopping)
    finally:
        follower.close()


def test_a_thread_that_follows_takes_its_process_with_it() -> None:
    assert_process_ends(
        """
        from waylog.kafka import topic_follower
        topic_follower.check_allowed = die
        topic_follower.TopicFollower("127.0.0.1:1", "table", print, client_id="test")
        """,
        "follow table",
    )
