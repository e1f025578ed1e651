"""kafka-python in a process of its own: it leaves sockets to the garbage collector, which causes
warnings that the test run treats as errors.

    python kafka_python_client.py write SERVERS TOPIC CODEC   < records
    python kafka_python_client.py read SERVERS TOPIC COUNT    > records
    python kafka_python_client.py group SERVERS TOPIC COUNT   > {"values", "committed"}

Records are JSON: [timestamp, key, value, [[name, value], ...]], bytes as hexadecimal digits.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import kafka  # type: ignore[import-not-found,import-untyped,unused-ignore]

TIMEOUT_S = 60


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def write(servers: str, topic: str, codec: str) -> None:
    """Produce the records of standard input, waiting for each acknowledgement."""
    producer = kafka.KafkaProducer(
        bootstrap_servers=servers, compression_type=None if codec == "none" else codec
    )
    for timestamp, key, value, headers in json.load(sys.stdin):
        producer.send(
            topic,
            key=_bytes(key),
            value=_bytes(value),
            partition=0,
            timestamp_ms=timestamp,
            headers=[(name, _bytes(each)) for name, each in headers],
        ).get(TIMEOUT_S)
    producer.close()


def read(servers: str, topic: str, count: str) -> None:
    """Print the first records of partition 0, each with its offset in front."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        consumer_timeout_ms=TIMEOUT_S * 1000,
    )
    consumer.assign([kafka.TopicPartition(topic, 0)])
    records: list[Any] = []
    for each in consumer:
        headers = [[name, _text(value)] for name, value in each.headers]
        records.append([each.offset, each.timestamp, _text(each.key), _text(each.value), headers])
        if len(records) == int(count):
            break
    consumer.close()
    json.dump(records, sys.stdout)


def describe(member: kafka.KafkaConsumer) -> str:
    """Describe a member's view of its group, for the report of a failure."""
    coordinator = member._coordinator
    told = {name: str(getattr(coordinator, name, "?")) for name in ("state", "_generation")}
    return f"{sorted(member.assignment())} of {member.subscription()} {told}"


def group(servers: str, topic: str, count: str) -> None:
    """Let two members read a topic of two partitions with numbers in it, and commit.

    Each polls in a thread of its own, as a program with one consumer does: kafka-python discards an
    assignment that arrives between two polls, and joins again (3.0.12, `join_group_async`).

    The topic's metadata is loaded before they join. Otherwise the leader computes an empty
    assignment and joins again once it has read the topic's partitions. If its poll ends while it
    waits for the answer to that SyncGroup, it never asks for the assignment again: `need_rejoin`
    compares the assigned partitions with the known ones, which are equal by then, and ignores the
    join in progress, unlike the Java client's `rejoinNeededOrPending`. The member sends no more
    heartbeats, and is removed when its session ends. It does the same on Apache Kafka.
    """
    values: set[int] = set()
    deadline = time.monotonic() + TIMEOUT_S
    members = [
        kafka.KafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=topic,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=300,
        )
        for _ in range(2)
    ]
    for member in members:
        if not member.partitions_for_topic(topic):
            sys.exit(f"no partitions of {topic}")

    def is_shared() -> bool:
        return len(values) >= int(count) and all(len(each.assignment()) == 1 for each in members)

    def read_and_commit(member: kafka.KafkaConsumer) -> int:
        while not is_shared():
            if time.monotonic() > deadline:
                sys.exit(f"{len(values)} values, {[describe(each) for each in members]}")
            for batch in member.poll(timeout_ms=500).values():
                values.update(int(each.value) for each in batch)
        member.commit()
        return sum(member.committed(place) for place in member.assignment())

    with ThreadPoolExecutor(len(members)) as threads:
        committed = sum(threads.map(read_and_commit, members))
    for member in members:
        member.close()
    json.dump({"values": sorted(values), "committed": committed}, sys.stdout)


if __name__ == "__main__":
    {"write": write, "read": read, "group": group}[sys.argv[1]](*sys.argv[2:])
