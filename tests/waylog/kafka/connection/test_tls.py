"""Connections with TLS to a broker of this package, on both event loops."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from tests.certificates import Certificates
from tests.tcp_server import tcp_server
from tests.waylog.kafka.conftest import StartBroker
from waylog.config import ConfigError
from waylog.kafka.connection import broker_connection
from waylog.kafka.connection.broker_connection import BrokerConnection, refusal
from waylog.kafka.connection.properties import client_properties
from waylog.kafka.connection.security import configured_security, connection_security
from waylog.kafka.protocol import requests
from waylog.kafka.protocol.requests import Broker, Metadata

TLS = {"listeners": "SSL://127.0.0.1:0"}


async def metadata(host: str, port: int, properties: dict[str, str]) -> Metadata:
    """Connect with a client's properties, of Java or librdkafka, and ask who leads `four`."""
    connection = await BrokerConnection.connect(
        asyncio.get_running_loop(),
        Broker(host, port),
        "test",
        connection_security(client_properties(properties)),
    )
    try:
        return requests.read_metadata(
            await connection.ask(requests.METADATA, requests.metadata(["four"]), 10)
        )
    finally:
        connection.close()


def trusting(certificates: Certificates) -> dict[str, str]:
    return {"security.protocol": "SSL", "ssl.ca.location": str(certificates.authority)}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_broker_answers_whose_certificate_names_its_host(
    start_secured: StartBroker, certificates: Certificates, host: str
) -> None:
    broker = await start_secured(**TLS)
    answer = await metadata(host, broker.endpoint.port, trusting(certificates))
    assert [len(topic.partitions) for topic in answer.topics] == [4]


async def test_a_broker_of_another_authority_or_name_is_refused(
    start_secured: StartBroker, certificates: Certificates, tmp_path: Path
) -> None:
    stranger = Certificates(tmp_path / "other")
    elsewhere = certificates.make("kafka.example.org", common_name="elsewhere")
    broker = await start_secured(**TLS)
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        await metadata("127.0.0.1", broker.endpoint.port, trusting(stranger))
    other = await start_secured(
        **TLS, log_dirs=str(tmp_path / "2"), ssl_keystore_location=str(elsewhere)
    )
    port = other.endpoint.port
    with pytest.raises(ssl.SSLCertVerificationError, match=r"127\.0\.0\.1"):
        await metadata("127.0.0.1", port, trusting(certificates))
    for unchecked in (
        {"ssl.endpoint.identification.algorithm": ""},
        {"ssl.endpoint.identification.algorithm": "none"},
        {
            "enable.ssl.certificate.verification": "false",
            "ssl.ca.location": str(stranger.authority),
        },
    ):
        assert (await metadata("127.0.0.1", port, trusting(certificates) | unchecked)).brokers


async def test_an_expired_certificate_is_refused(
    start_secured: StartBroker, certificates: Certificates
) -> None:
    day = timedelta(days=1)
    now = datetime.now(UTC)
    old = certificates.make("127.0.0.1", common_name="old", valid=(now - 2 * day, now - day))
    broker = await start_secured(**TLS, ssl_keystore_location=str(old))
    with pytest.raises(ssl.SSLCertVerificationError, match="expired") as raised:
        await metadata("127.0.0.1", broker.endpoint.port, trusting(certificates))
    assert refusal(raised.value) is not None


async def test_a_broker_that_hangs_in_the_handshake_is_given_up(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_connection, "_CONNECT_TIMEOUT_S", 0.2)

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        while await reader.read(4096):
            pass

    async with tcp_server(silent) as port:
        with pytest.raises(TimeoutError, match="in time"):
            await metadata("127.0.0.1", port, trusting(certificates))


async def test_a_client_shows_its_certificate_where_the_broker_wants_one(
    start_secured: StartBroker, certificates: Certificates, tmp_path: Path
) -> None:
    broker = await start_secured(**TLS, ssl_client_auth="required")
    port = broker.endpoint.port
    own = certificates.make(common_name="van-7")
    text = own.read_text()
    encrypted = tmp_path / "encrypted.pem"
    encrypted.write_bytes(
        load_pem_private_key(text.encode(), None).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
        )
    )
    for shown in (
        {"ssl.certificate.location": str(own), "ssl.key.location": str(own)},
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(own)},
        {
            "ssl.certificate.location": str(own),
            "ssl.key.location": str(encrypted),
            "ssl.key.password": "secret",
        },
        # As Kafka's property files have it: in one line, with \n for the ends of lines.
        {
            "ssl.keystore.certificate.chain": text.replace("\n", "\\n"),
            "ssl.keystore.key": text.replace("\n", "\\n"),
        },
    ):
        assert (await metadata("127.0.0.1", port, trusting(certificates) | shown)).brokers
    with pytest.raises(OSError, match=r"(?i)certificate|reset|ended"):
        await metadata("127.0.0.1", port, trusting(certificates))


async def test_a_listener_that_speaks_no_tls_is_an_error_and_no_wait_for_ever(
    certificates: Certificates,
) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    async with tcp_server(plain) as port:
        with pytest.raises(OSError, match=r"(?i)ssl|record|reset"):
            await metadata("127.0.0.1", port, trusting(certificates))


def test_the_authority_may_stand_in_the_properties_or_be_the_machines(
    certificates: Certificates,
) -> None:
    inline = certificates.authority.read_text().replace("\n", "\\n")
    given = client_properties({"security.protocol": "ssl", "ssl.truststore.certificates": inline})
    context = connection_security(given).tls
    assert context is not None
    assert len(context.get_ca_certs()) == 1
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    of_the_machine = connection_security({"security.protocol": "SSL"}).tls
    assert of_the_machine is not None
    assert of_the_machine.verify_mode is ssl.CERT_REQUIRED


def test_without_tls_its_properties_do_not_matter() -> None:
    assert connection_security({"ssl.ca.location": "/nowhere"}).tls is None
    assert connection_security({"security.protocol": "PLAINTEXT"}).tls is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"security.protocol": "TLS"}, "security.protocol=tls"),
        ({"ssl.ca.location": "/nowhere/ca.pem"}, "ssl.ca.location=/nowhere/ca.pem: No such file"),
        ({"ssl.ca.pem": "garbage"}, "ssl.ca.pem: no certificates"),
        ({"ssl.certificate.location": "/nowhere"}, "ssl.certificate.location=/nowhere: no such"),
        ({"ssl.key.pem": "garbage"}, "ssl.certificate.location or ssl.certificate.pem is missing"),
        ({"ssl.key.pem": "x", "ssl.certificate.pem": "x"}, "ssl.key: key and certificate cannot"),
        ({"ssl.endpoint.identification.algorithm": "ldap"}, "https or none is expected"),
        ({"enable.ssl.certificate.verification": "maybe"}, "true or false is expected"),
        ({"ssl.cipher.suites": "ROT13"}, "OpenSSL knows none of them"),
        ({"ssl.sigalgs.list": "RSA+SHA256"}, "ssl.sigalgs.list: not supported"),
    ],
)
def test_a_setting_that_cannot_be_kept_is_named(wrong: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        connection_security({"security.protocol": "SSL"} | wrong)
    assert message in str(raised.value)


def test_a_key_without_its_password_is_refused_and_not_asked_for(
    certificates: Certificates, tmp_path: Path
) -> None:
    own = certificates.make(common_name="locked")
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        load_pem_private_key(own.read_bytes(), None).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"pass phrase")
        )
    )
    files = {"ssl.certificate.location": str(own), "ssl.key.location": str(locked)}
    for password in ({}, {"ssl.key.password": "wrong phrase"}):
        with pytest.raises(ConfigError, match="cannot be read") as raised:
            connection_security({"security.protocol": "SSL"} | files | password)
        assert "phrase" not in str(raised.value)


def test_the_environments_file_is_read(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WAYLOG_KAFKA_CONFIG", raising=False)
    assert configured_security().tls is None
    file = tmp_path / "client.properties"
    file.write_text(f"security.protocol=SSL\nssl.ca.location={certificates.authority}\n")
    monkeypatch.setenv("WAYLOG_KAFKA_CONFIG", str(file))
    assert configured_security().tls is not None
