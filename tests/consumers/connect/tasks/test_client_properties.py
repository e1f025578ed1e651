"""Properties of Java's clients as librdkafka takes them."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.storage.states import TaskId
from consumers.connect.tasks.client_properties import ClientProperties, librdkafka_properties

TASK = TaskId("out", 0)


def clients(worker: dict[str, str], connector: dict[str, str]) -> ClientProperties:
    return ClientProperties("127.0.0.1:9", worker, connector)


def test_the_connector_wins_over_the_worker() -> None:
    found = clients(
        {"consumer.fetch.min.bytes": "5", "consumer.client.rack": "a", "client.rack": "b"},
        {"consumer.override.fetch.min.bytes": "7", "consumer.override.group.id": "mine"},
    )
    properties = found.consumer(TASK)
    assert properties["fetch.min.bytes"] == "7"
    assert properties["client.rack"] == "a"
    assert properties["group.id"] == found.group_id("out") == "mine"


def test_a_sink_connector_has_a_group_of_its_name() -> None:
    found = clients({}, {})
    assert found.group_id("out") == "connect-out"
    assert found.consumer(TASK)["group.id"] == "connect-out"
    assert found.consumer(TASK)["client.id"] == "connector-consumer-out-0"


def test_names_of_java_are_translated() -> None:
    assert librdkafka_properties(
        {
            "fetch.max.wait.ms": "10",
            "auto.offset.reset": "none",
            "max.request.size": "2000000",
            "key.serializer": "org.apache.kafka.common.serialization.ByteArraySerializer",
            "max.block.ms": "5",
            "partition.assignment.strategy": "class "
            "org.apache.kafka.clients.consumer.RangeAssignor, class "
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
            "sasl.jaas.config": 'x required username="u" password="p";',
        }
    ) == {
        "fetch.wait.max.ms": "10",
        "auto.offset.reset": "error",
        "message.max.bytes": "2000000",
        "partition.assignment.strategy": "cooperative-sticky",
        "sasl.username": "u",
        "sasl.password": "p",
    }


@pytest.mark.parametrize("acks", ["1", "0"])
def test_a_producer_is_idempotent_unless_it_must_not_be(acks: str) -> None:
    assert clients({}, {}).producer("p")["enable.idempotence"] is True
    properties = clients({"producer.acks": acks}, {}).producer("p")
    assert properties["enable.idempotence"] is False
    Producer(properties)


def test_librdkafka_takes_the_properties() -> None:
    found = clients(
        {"consumer.max.poll.records": "7", "producer.linger.ms": "5"},
        {
            "producer.override.compression.type": "zstd",
            "consumer.override.max.poll.interval.ms": "60000",
        },
    )
    assert found.poll_records_max == 7
    Consumer(found.consumer(TASK)).close()
    Producer(found.producer("p"))
    assert found.admin("a")["client.id"] == "a"


def test_an_admin_client_logs_in_as_the_worker() -> None:
    found = clients(
        {"security.protocol": "SASL_PLAINTEXT", "admin.sasl.mechanism": "PLAIN"},
        {"admin.override.sasl.username": "u"},
    )
    admin = found.admin("a")
    assert admin["security.protocol"] == "SASL_PLAINTEXT"
    assert admin["sasl.mechanism"] == "PLAIN"
    assert admin["sasl.username"] == "u"
    assert "security.protocol" not in found.consumer(TASK)


def test_key_stores_of_java_are_refused() -> None:
    with pytest.raises(ConfigException, match="PEM is expected"):
        librdkafka_properties({"ssl.keystore.location": "a.jks"})


@pytest.mark.parametrize("text", ["0", "-1", "many"])
def test_a_batch_has_at_least_one_record(text: str) -> None:
    with pytest.raises(ConfigException, match=r"max\.poll\.records"):
        _ = clients({"consumer.max.poll.records": text}, {}).poll_records_max


def test_the_newer_group_protocol_may_be_chosen() -> None:
    properties = clients({"consumer.group.protocol": "consumer"}, {}).consumer(TASK)
    assert "session.timeout.ms" not in properties
    Consumer(properties).close()
