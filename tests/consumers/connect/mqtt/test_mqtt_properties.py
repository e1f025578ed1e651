"""Topics and properties of the MQTT connectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.data.exceptions import ConnectException, DataException
from consumers.connect.mqtt.mqtt_sink import MqttSinkConnector
from consumers.connect.mqtt.mqtt_source import MqttSourceConnector
from consumers.connect.mqtt.properties import SINK_CONFIG, Connection, checked
from consumers.connect.mqtt.topics import filter_problem, topic_of
from consumers.connect.plugins.registry import ConnectorRegistry
from tests.consumers.connect.sink_harness import record

SOURCE = {"mqtt.server.uri": "tcp://h", "mqtt.topics": "a/#", "name": "in"}
SINK = {"mqtt.server.uri": "ssl://h", "name": "out"}


@pytest.mark.parametrize(
    "text", ["a", "a/b", "#", "+", "a/+/b", "a/#", "+/+/#", "/", "$SYS/#", "ä"]
)
def test_filters(text: str) -> None:
    assert filter_problem(text) is None


@pytest.mark.parametrize("text", ["", "a#", "#/a", "a/#/b", "a+", "+a/b", "a\0", "x" * 65_536])
def test_what_is_no_filter(text: str) -> None:
    assert filter_problem(text)


@pytest.mark.parametrize(
    ("key", "format_", "topic"),
    [
        (None, "${topic}", "t"),
        ("anna/phone", "owntracks/${key}", "owntracks/anna/phone"),
        (b"anna", "${topic}/${key}/x", "t/anna/x"),
        (5, "${key}", "5"),
    ],
)
def test_a_topic_is_made_of_topic_and_key(key: Any, format_: str, topic: str) -> None:
    assert topic_of(record(1, key=key), format_) == topic


@pytest.mark.parametrize("key", [None, "a/#", "+", "a\0", "", b"\xff", "\ud800", "x" * 65_536])
def test_a_key_that_makes_no_topic_is_refused(key: Any) -> None:
    with pytest.raises(DataException):
        topic_of(record(1, key=key), "${key}")


@pytest.mark.parametrize(
    ("base", "properties", "name", "reason"),
    [
        (SOURCE, {"mqtt.server.uri": "http://h"}, "mqtt.server.uri", "tcp://HOST:PORT"),
        (SOURCE, {"mqtt.server.uri": "tcp://h:x"}, "mqtt.server.uri", "not a URI"),
        (SINK, {"mqtt.server.uri": "tcp://u:s3cr3t@h"}, "mqtt.server.uri", "mqtt.password"),
        (SOURCE, {"mqtt.topics": "a,b#"}, "mqtt.topics", "# has to be the last level"),
        (SOURCE, {"mqtt.topics": ""}, "mqtt.topics", "Empty list"),
        (SOURCE, {"mqtt.qos": "3"}, "mqtt.qos", "no more than 2"),
        (SOURCE, {"mqtt.version": "4"}, "mqtt.version", "must be one of: 3.1.1, 5"),
        (SOURCE, {"mqtt.share.name": "a", "mqtt.version": "3.1.1"}, "mqtt.share.name", "=5"),
        (SOURCE, {"mqtt.share.name": "a/b"}, "mqtt.share.name", "no /"),
        (SINK, {"mqtt.password": "s3cr3t"}, "mqtt.username", "needs it"),
        (SINK, {"mqtt.ssl.key.path": "k"}, "mqtt.ssl.certificate.path", "needs it"),
        (SINK, {"mqtt.topic.format": "a/${id}"}, "mqtt.topic.format", "neither ${topic}"),
        (SINK, {"mqtt.topic.format": "a/#"}, "mqtt.topic.format", "no +, #"),
    ],
)
def test_what_is_wrong_is_told(
    base: dict[str, str], properties: dict[str, str], name: str, reason: str
) -> None:
    connector = MqttSourceConnector() if base is SOURCE else MqttSinkConnector()
    found = connector.validate(base | properties)
    texts = {each.name: each.errors for each in found.values() if each.errors}
    assert list(texts) == [name]
    assert reason in texts[name][0]
    assert "s3cr3t" not in repr(found)
    with pytest.raises(ConfigException):
        connector.start(base | properties)


def test_what_is_required() -> None:
    assert not [each for each in MqttSourceConnector().validate(SOURCE).values() if each.errors]
    assert not [each for each in MqttSinkConnector().validate(SINK).values() if each.errors]
    missing = MqttSourceConnector().validate({})
    assert {each.name for each in missing.values() if each.errors} == {
        "mqtt.server.uri",
        "mqtt.topics",
    }


def test_only_a_shared_subscription_has_several_tasks() -> None:
    connector = MqttSourceConnector()
    connector.start(SOURCE)
    assert connector.task_configs(3) == [SOURCE]
    connector.start({**SOURCE, "mqtt.share.name": "g"})
    names = [each["mqtt.client.id"] for each in connector.task_configs(3)]
    assert names == ["waylog-in-0", "waylog-in-1", "waylog-in-2"]


def test_offsets_cannot_be_chosen() -> None:
    connector = MqttSourceConnector()
    assert connector.alter_offsets(SOURCE, [({"client": "a"}, None)])
    with pytest.raises(ConnectException, match="cannot go back"):
        connector.alter_offsets(SOURCE, [({"client": "a"}, {"message": 5})])


@pytest.mark.parametrize(
    ("name", "connector"), [("MqttSource", MqttSourceConnector), ("MqttSink", MqttSinkConnector)]
)
def test_the_connectors_are_found_by_their_names(name: str, connector: type) -> None:
    assert ConnectorRegistry().find(name).connector is connector


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    own = trustme.CA().issue_cert("client.example")
    (tmp_path / "certificate.pem").write_bytes(own.cert_chain_pems[0].bytes())
    key = load_pem_private_key(own.private_key_pem.bytes(), None)
    (tmp_path / "key.pem").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"a password"))
    )
    properties = {
        "mqtt.server.uri": "ssl://localhost",
        "topics": "t",
        "mqtt.ssl.certificate.path": str(tmp_path / "certificate.pem"),
        "mqtt.ssl.key.path": str(tmp_path / "key.pem"),
    }
    connection = Connection.of(checked(SINK_CONFIG, properties), "sink")
    with pytest.raises(ConfigException, match=r"mqtt\.ssl\.key\.path .*: .* without a password"):
        connection.tls_context()
