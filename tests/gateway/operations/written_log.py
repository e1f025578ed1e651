"""What tests write into the log, behind the gateway's back."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from waylog.kafka.clients import client_config, consumer_config, producer_config


class Log:
    """A log whose topics and groups tests make as they like."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.admin = AdminClient(client_config(servers, "test"))

    def create(self, name: str, partitions: int = 1) -> None:
        """Create a topic that keeps its records, whatever time they have."""
        topic = NewTopic(name, partitions, config={"retention.ms": "-1"})
        self.admin.create_topics([topic])[name].result(60)
        # Apache Kafka answers before its brokers know the topic.
        deadline = time.monotonic() + 60
        while not self._is_led(name, partitions):
            assert time.monotonic() < deadline, f"nobody leads topic {name}"

    def _is_led(self, name: str, partitions: int) -> bool:
        known = self.admin.list_topics(timeout=60).topics.get(name)
        return (
            known is not None
            and len(known.partitions) == partitions
            and all(each.leader >= 0 for each in known.partitions.values())
        )

    def write(self, topic: str, *records: dict[str, Any]) -> None:
        producer = Producer(producer_config(self.servers, "test", linger_ms=0))
        for each in records:
            producer.produce(topic, **each)
        assert producer.flush(60) == 0

    def take(self, group: str, topic: str, count: int) -> Consumer:
        """Read records as a member of a group, and commit; the member stays."""
        consumer = Consumer(consumer_config(self.servers, "test", group))
        consumer.subscribe([topic])
        taken = 0
        while taken < count:
            message = consumer.poll(60)
            assert message is not None and message.error() is None
            consumer.commit(message=message, asynchronous=False)
            taken += 1
        return consumer
