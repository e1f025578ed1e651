"""Which certificates of servers forwardings accept: real ones, over MQTT and HTTPS."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from consumers.forwarding.ways_out import trusted_authorities
from tests.certificates import Certificates
from tests.consumers.connect.http.http_server import HttpServer
from tests.consumers.connect.mqtt.mosquitto_server import MosquittoServer, MqttPeer
from tests.consumers.forwarding.running import LOOPBACK, Platform
from tests.consumers.running import Process, await_condition
from waylog.config import ConfigError

#: What is wrong with the certificate of each listener, and what the owner is told of it.
WRONG = {
    "other-name": "not valid for",
    "expired": "expired",
    "stranger": "unable to get local issuer certificate",
}


class Servers(NamedTuple):
    """A mosquitto whose listeners have certificates, and an HTTPS server."""

    authority: Path
    mosquitto: MosquittoServer
    #: Ports by what is wrong with the certificate; `good` is one.
    ports: dict[str, int]
    https: HttpServer


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder: Path = tmp_path_factory.mktemp("tls")
    ours, strangers = Certificates(folder / "ours"), Certificates(folder / "strangers")
    now = datetime.now(UTC)
    past = (now - timedelta(days=2), now - timedelta(days=1))
    certificates = {
        "good": ours.make("localhost", common_name="good"),
        "other-name": ours.make("elsewhere.example.org", common_name="other"),
        "expired": ours.make("localhost", common_name="expired", valid=past),
        "stranger": strangers.make("localhost", common_name="stranger"),
    }
    mosquitto = MosquittoServer(folder, certificates=list(certificates.values()))
    ports = dict(zip(certificates, mosquitto.tls_ports, strict=True))
    https = HttpServer(certificates["good"])
    mosquitto.start()
    https.start()
    try:
        yield Servers(ours.authority, mosquitto, ports, https)
    finally:
        https.stop()
        mosquitto.stop()


def check_delivery(platform: Platform, servers: Servers) -> None:
    peer = MqttPeer(servers.mosquitto, "home/#")
    try:
        url = f"mqtts://localhost:{servers.ports['good']}/home"
        platform.put("anna", 1, url, "mqtt")
        platform.put("anna", 2, f"https://localhost:{servers.https.port}/", "webhook")
        before = len(servers.https.seen)
        platform.fixes("anna/phone", 3)
        await_condition(lambda: len(peer.received) == 3, 60, "three messages")
        await_condition(lambda: len(servers.https.seen) == before + 3, 60, "three requests")
        assert {topic for topic, _, _ in peer.received} == {"home/anna/phone"}
        assert {json.loads(payload)["device"] for _, payload, _ in peer.received} == {"anna/phone"}
    finally:
        peer.close()


def error_of(platform: Platform, number: int) -> str:
    return platform.shown("anna", number)["error"] or ""


def test_certificates_of_the_given_authority_are_accepted_and_no_others(
    platform: Platform, servers: Servers
) -> None:
    platform.worker("--tls-ca", str(servers.authority), "--retry-backoff-max", "2")
    peer = MqttPeer(servers.mosquitto, "wrong/#")
    try:
        for number, wrong in enumerate(WRONG, start=10):
            url = f"mqtts://localhost:{servers.ports[wrong]}/wrong"
            platform.put("anna", number, url, "mqtt", username="anna", password="geheim")
        # The certificate has a name, and no address.
        url = f"mqtts://127.0.0.1:{servers.ports['good']}/wrong"
        platform.put("anna", 9, url, "mqtt")
        check_delivery(platform, servers)
        told = {9: "IP address mismatch"} | dict(enumerate(WRONG.values(), start=10))
        for number, text in told.items():
            # Before, it may be that too many names are looked up for one user at once.
            words = ("its certificate is not accepted", text)
            await_condition(
                lambda: all(each in error_of(platform, number) for each in words),  # noqa: B023
                *(60, f"{number} says why"),
            )
        assert peer.received == []
    finally:
        peer.close()


def test_authorities_of_the_system_are_accepted(platform: Platform, servers: Servers) -> None:
    platform.stop_workers()
    # OpenSSL takes this file for the system's.
    environment = platform.environment | {"SSL_CERT_FILE": str(servers.authority)}
    words = ("--bootstrap-servers", platform.servers, *LOOPBACK)
    worker = Process("forwarding", "run", *words, environment=environment)
    try:
        worker.wait_for("forwarding ready")
        check_delivery(platform, servers)
    finally:
        worker.stop()


def test_a_file_without_certificates_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.pem"
    path.write_text("no certificate\n")
    worker = Process("forwarding", "run", "--tls-ca", str(path))
    assert worker.wait() == 2
    assert f"--tls-ca: {path}: no certificates in it, PEM is expected" in worker.output
    with pytest.raises(ConfigError, match="No such file"):
        trusted_authorities(tmp_path / "none.pem")
