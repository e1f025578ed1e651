"""Messages of topics that an operator has mapped to a topic of the log."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from gateway.mqtt.packets.packets import PropertyId
from gateway.mqtt.publishing.ingest import Ingest
from gateway.mqtt.publishing.mapping import TopicRule, headers_of, parse_rule
from gateway.mqtt.rights.acl import AccessRules
from gateway.users.rights import Rights
from tests.consumers.running import Broker
from tests.gateway.mqtt.in_memory import MemoryLog, PahoClient, User
from tests.gateway.mqtt.journal.test_restart import MqttGateway
from waylog.kafka.clients import client_config

POSITION = b'{"lat":50.73,"lon":7.1,"time":1761994805000}'


@pytest.mark.parametrize(
    ("text", "topic", "key"),
    [
        ("plant/+/temperature=plant", "plant/7/temperature", "plant/7/temperature"),
        ("plant/+/temperature=plant:{2}", "plant/7/temperature", "7"),
        ("a=b/#=plant:{user}-{3}-{9}", "a=b/c/d", "ada-d-"),
        ("fleet/+/gps=location", "fleet/van/gps", "ada/van"),
        ("fleet/+/+/gps=location:{2}/{3}", "fleet/bob/van/gps", "bob/van"),
        ("x/#=plant:{topic}={1}", "x", "x=x"),
        # Placeholders that occur in the topic itself are not replaced.
        ("x/+=plant:{2}{user}", "x/{user}", "{user}ada"),
    ],
)
def test_a_rule_says_topic_and_key(text: str, topic: str, key: str) -> None:
    rule = parse_rule(text)
    assert rule.matches(topic)
    assert rule.key_of("ada", topic) == key


@pytest.mark.parametrize(
    "text",
    [
        *("plant", "=plant", "plant/#=", "plant/#x=plant", "plant/#=no space", "$SYS/#=plant"),
        *("plant/#=mqtt-state", "plant/#=address", "plant/#=__consumer_offsets", "plant/#=.."),
        *("fleet/gps=location", "fleet/#=location", "fleet/+=location:van"),
        *("fleet/+/gps=plant:{4}", "fleet/+=location:{2}/{3}"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_rule(text)


def ingest_of(log: MemoryLog, *rules: str) -> Ingest:
    return Ingest(
        log, AccessRules(), lambda: 1_761_994_806_000, Counter(), [*map(parse_rule, rules)]
    )


async def test_a_position_of_another_topic_is_a_fix_of_the_users_device() -> None:
    log = MemoryLog()
    ingest = ingest_of(log, "devices/+/+/gps=location:{2}/{3}", "devices/#=plant")
    ada = User("ada")
    route = ingest.route(ada, "devices/ada/van/gps")
    assert ingest.submit(ada, route, POSITION)[0] == 0
    assert [(fix.device, fix.user, fix.lat) for fix in log.fixes] == [("ada/van", "ada", 50.73)]
    # The fast parser assigns a plain position to the same device.
    made = route.record_of(POSITION, 1_761_994_806_000)
    assert made is not None and b'"device":"ada/van","user":"ada"' in made[0]


async def test_nobody_moves_the_devices_of_others_by_a_rule() -> None:
    log = MemoryLog()
    ingest = ingest_of(log, "fleet/+/+=location:{2}/{3}")

    class Granted(User):
        rights = Rights(publish=("fleet/#",))

    ada = Granted("ada")
    assert ingest.submit(ada, ingest.route(ada, "fleet/bob/van"), POSITION)[0] == 0x87
    assert ingest.submit(ada, ingest.route(ada, "fleet/ada/"), POSITION)[0] == 0x87
    assert not log.fixes
    assert ingest.submit(ada, ingest.route(ada, "fleet/ada/van"), POSITION)[0] == 0
    tracker = Granted("ada", "bike")
    assert ingest.submit(tracker, ingest.route(tracker, "fleet/ada/van"), POSITION)[0] == 0x87
    root = User("root", admin=True)
    assert ingest.submit(root, ingest.route(root, "fleet/bob/van"), POSITION)[0] == 0
    assert [fix.device for fix in log.fixes] == ["ada/van", "bob/van"]


async def test_the_first_rule_that_matches_counts_and_fixes_stay_fixes() -> None:
    log = MemoryLog()
    ingest = ingest_of(log, "devices/+/+/a=first", "devices/#=second")
    ada = User("ada")
    for topic in ("devices/ada/x/a", "devices/ada/x/b", "devices/ada/x/position"):
        ingest.submit(ada, ingest.route(ada, topic), POSITION)
    assert [topic for topic, *_ in log.messages] == ["first", "second"]
    assert len(log.fixes) == 1
    assert ingest.submit(ada, ingest.route(ada, "devices/bob/x/b"), b"")[0] == 0x87


def test_properties_become_headers_within_bounds() -> None:
    pairs = [("unit", "C"), ("mqtt.user", "root"), ("traceparent", "00"), ("long", "x" * 9000)]
    headers = headers_of(
        "ada",
        "plant/7",
        {
            PropertyId.CONTENT_TYPE: "text/plain",
            PropertyId.CORRELATION_DATA: b"\x01",
            PropertyId.USER_PROPERTY: pairs,
        },
    )
    assert headers == [
        *(("mqtt.topic", b"plant/7"), ("mqtt.user", b"ada")),
        *(("content-type", b"text/plain"), ("mqtt.correlation-data", b"\x01"), ("unit", b"C")),
    ]


def test_a_rule_is_a_value() -> None:
    assert parse_rule("a/+=b") == TopicRule("a/+", "b", "{topic}")


async def test_plain_data_is_in_the_log_before_it_is_acknowledged(
    gateway_broker: Broker, tmp_path: Path
) -> None:
    gateway = MqttGateway(
        *(tmp_path, gateway_broker.address),
        *("--mqtt-map", "devices/+/+/temperature=temperatures:{2}/{3}"),
    )
    try:
        phone = PahoClient(gateway.port, "phone", version=5)
        await phone.connect("ada")
        await phone.subscribe("devices/ada/+/temperature")
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.UserProperty = ("unit", "C")
        topic = "devices/ada/oven/temperature"
        assert await phone.publish(topic, b"\xff180", properties=properties) == 0
        assert gateway.records("temperatures") == [(b"ada/oven", b"\xff180")]
        # Other clients receive it like any other message.
        assert (await phone.message()).payload == b"\xff180"
        consumer = Consumer(client_config(gateway_broker.address, "test", group_id="test"))
        consumer.assign([TopicPartition("temperatures", number, 0) for number in range(4)])
        message = consumer.poll(60)
        assert message is not None
        headers = dict(message.headers() or [])
        assert (headers["mqtt.topic"], headers["unit"]) == (topic.encode(), b"C")
        consumer.close()
        await phone.close()
    finally:
        gateway.close()
