"""The client of both connectors, on a real mosquitto."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from consumers.connect.mqtt.client import MqttClient
from consumers.connect.mqtt.properties import SINK_CONFIG, SOURCE_CONFIG, Connection, checked
from tests.consumers.connect.mqtt.mosquitto_server import WAIT_S, MosquittoServer, MqttPeer
from tests.consumers.running import await_condition
from waylog.network.outbound.mqtt_connection import Arrival


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[MosquittoServer]:
    server = MosquittoServer(tmp_path)
    server.start()
    yield server
    server.stop()


def test_an_outcome_that_nobody_waits_for_is_not_that_of_a_later_message(
    mosquitto: MosquittoServer,
) -> None:
    properties = {"mqtt.server.uri": mosquitto.uri, "topics": "t"}
    client = MqttClient(Connection.of(checked(SINK_CONFIG, properties), "sink"))
    client.start()
    try:
        assert client.connected.wait(WAIT_S)
        early = client.publish("a", b"1", retain=True)
        assert early is not None
        assert client.outcome(early, WAIT_S) == (True, None)
        # Acknowledged, and forgotten before and after that.
        first, second, last = (client.publish("a", b"%d" % each, retain=True) for each in (2, 3, 4))
        assert first is not None
        assert second is not None
        assert last is not None
        client.forget(first)
        assert client.outcome(last, WAIT_S) == (True, None)
        client.forget(second)
        for each in (first, second):
            assert client.outcome(each, 0.0) == (False, None)
    finally:
        client.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_client_whose_thread_has_failed_says_so(mosquitto: MosquittoServer) -> None:
    def fail(_: Arrival) -> None:
        raise RuntimeError("planted")

    properties = {
        "mqtt.server.uri": mosquitto.uri,
        "mqtt.topics": "owntracks/#",
        "kafka.topic": "t",
    }
    connection = Connection.of(checked(SOURCE_CONFIG, properties), "source")
    client = MqttClient(connection, ["owntracks/#"], fail)
    client.start()
    peer = MqttPeer(mosquitto)
    try:
        assert client.connected.wait(WAIT_S)
        assert client.refusal is None
        peer.publish("owntracks/ada/phone", b"{}")
        await_condition(lambda: client.refusal is not None, WAIT_S, "the client's trouble")
        assert "the client's thread has failed" in str(client.refusal)
    finally:
        peer.close()
        client.close()
