"""What is measured of topologies: the fixes that are sent, and the results that are read."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from load_tests.benches.streams.results import await_taken, result_topics, results
from load_tests.benches.streams.walks import Walks, records
from tests.consumers.running import Broker
from waylog.great_circle import distance_m
from waylog.kafka.clients import consumer_config, ensure_topics, producer_config
from waylog.kafka.topics import EVENT, KEYED_PARTITIONS, LOCATION, TRIP, Topic
from waylog.messages import decode_fix

DEVICES = 20
LIMIT_S = 60.0


def within(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_companions_stay_together_and_groups_apart() -> None:
    places = next(itertools.islice(Walks(DEVICES, companions=2).rounds(), 50, None))
    assert len(places) == DEVICES
    pairs = itertools.pairwise(places)
    metres = [distance_m(*one, *other) for one, other in pairs]
    assert max(metres[::2]) < 75
    assert min(metres[1::2]) > 75


def test_walks_and_gaps_are_the_same_each_time() -> None:
    def sent(gaps: float) -> list[tuple[bytes, bytes]]:
        rounds = itertools.islice(Walks(DEVICES).rounds(), 100)
        return list(records(rounds, itertools.count(1_700_000_000_000, 1000), gaps))

    whole, some = sent(0.0), sent(0.3)
    assert len(whole) == 100 * DEVICES
    assert 0.6 * len(whole) < len(some) < 0.8 * len(whole)
    assert set(some) < set(whole)
    assert some == sent(0.3)
    assert decode_fix(some[0][1]).device.encode() == some[0][0]


def test_topics_of_several_topologies_are_there_once() -> None:
    assert result_topics(["speed", "geofences"]) == [EVENT]
    assert result_topics(["trips", "silence"])[0] == TRIP
    assert result_topics(["trips", "silence"])[-1] == EVENT


def test_results_are_what_was_committed(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    try:
        ensure_topics(broker.address)
        producer = Producer(producer_config(broker.address, "bench", transactional_id="results"))
        producer.init_transactions(LIMIT_S)
        for number in range(3):
            producer.begin_transaction()
            producer.produce(EVENT, b"%d" % number, b"user/phone")
            producer.flush(LIMIT_S)
            if number == 1:
                producer.abort_transaction(LIMIT_S)
            else:
                producer.commit_transaction(LIMIT_S)
        found = list(results(broker.address, [EVENT]))
        assert sorted(found) == [(EVENT, b"user/phone", b"0"), (EVENT, b"user/phone", b"2")]
    finally:
        broker.process.stop()


def test_all_is_taken_but_for_the_marker_of_a_transaction(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    try:
        ensure_topics(broker.address, [Topic("between", KEYED_PARTITIONS), Topic(LOCATION, 1)])
        producer = Producer(producer_config(broker.address, "bench", transactional_id="between"))
        producer.init_transactions(LIMIT_S)
        producer.begin_transaction()
        for _ in range(4):
            producer.produce("between", b"1", b"cell", partition=2)
        producer.flush(LIMIT_S)
        producer.commit_transaction(LIMIT_S)
        consumer = Consumer(consumer_config(broker.address, "bench", "group"))
        answers = []

        def look(is_taken: Callable[[], bool]) -> None:
            for offset in (1, 3, 4):
                places = [TopicPartition("between", 2, offset)]
                consumer.commit(offsets=places, asynchronous=False)
                answers.append(is_taken())

        await_taken(broker.address, "group", "between", look)
        consumer.close()
        assert answers == [False, False, True]
        await_taken(broker.address, "group", "between", within)
    finally:
        broker.process.stop()
