"""A connection that is made once and run by its caller, to a real mosquitto."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from paho.mqtt.reasoncodes import ReasonCode

from tests.certificates import Certificates
from tests.consumers.connect.mqtt.mosquitto_server import PASSWORD, USER, WAIT_S, MosquittoServer
from waylog.network.outbound.mqtt_connection import MqttConnection, MqttServer, is_lasting

#: Nobody looks it up: no name ends so (RFC 6761).
NAME: Final = "mqtt.invalid"


class Connection(MqttConnection):
    """Remembers what became of it."""

    def __init__(self, server: MqttServer) -> None:
        super().__init__(server)
        self.is_connected = False
        self.refusal: ReasonCode | None = None

    def on_connected(self, *, session_present: bool) -> None:
        self.is_connected = True

    def on_refused(self, code: ReasonCode) -> None:
        self.refusal = code


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def mosquitto(tmp_path: Path, certificates: Certificates) -> Iterator[MosquittoServer]:
    server = MosquittoServer(
        tmp_path, password=True, certificates=[certificates.make(NAME, common_name="mqtt")]
    )
    server.start()
    yield server
    server.stop()


def server_at(port: int, *, host: str = NAME, **more: object) -> MqttServer:
    login = {"user": USER, "password": PASSWORD}
    settings = {"client_id": "", "address": "127.0.0.1", "clean_session": True} | login | more
    return MqttServer(host=host, port=port, **settings)  # type: ignore[arg-type]


def soon() -> float:
    return time.monotonic() + WAIT_S


def test_a_connection_goes_to_the_address_and_certificates_are_those_of_the_name(
    mosquitto: MosquittoServer, certificates: Certificates
) -> None:
    tls = ssl.create_default_context(cafile=str(certificates.authority))
    [port] = mosquitto.tls_ports
    connection = Connection(server_at(port, tls=tls))
    connection.connect_once()
    assert connection.run_until(lambda: connection.is_connected, soon())
    connection.disconnect()
    # The certificate has neither this name nor the address.
    other = Connection(server_at(port, tls=tls, host="other.invalid"))
    with pytest.raises(ssl.SSLCertVerificationError, match=r"not valid for 'other\.invalid'"):
        other.connect_once()


def test_what_does_not_become_so_ends_in_time_and_a_lost_connection_at_once(
    mosquitto: MosquittoServer,
) -> None:
    connection = Connection(server_at(mosquitto.port))
    connection.connect_once()
    assert connection.run_until(lambda: connection.is_connected, soon())
    assert not connection.run_until(lambda: False, time.monotonic())
    mosquitto.stop()
    with pytest.raises(OSError, match="the connection is lost"):
        connection.run_until(lambda: False, soon())
    with pytest.raises(ConnectionRefusedError):
        Connection(server_at(mosquitto.port)).connect_once()


def test_a_wrong_password_lasts_until_somebody_changes_it(mosquitto: MosquittoServer) -> None:
    connection = Connection(server_at(mosquitto.port, password="wrong"))
    connection.connect_once()
    assert connection.run_until(lambda: connection.refusal is not None, soon())
    assert connection.refusal is not None
    assert is_lasting(connection.refusal)
    assert "wrong" not in repr(server_at(mosquitto.port, password="wrong"))
