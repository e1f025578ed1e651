"""TLS and SASL listeners, with commonly used clients."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, Producer

from broker_core.protocol.definitions import (
    API_VERSIONS,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from broker_core.security.scram import BY_NAME, credential_from_password
from broker_core.server.handlers.security import sasl
from broker_core.server.network import connection
from broker_core.server.runtime import Broker
from tests.broker_core.server.raw_client import RawClient
from tests.broker_core.server.topics import create_topic
from tests.certificates import Certificates
from waylog.config import Endpoint

Start = Callable[..., Awaitable[Broker]]

ALL = {
    "listeners": "PLAINTEXT://127.0.0.1:0,TLS://127.0.0.1:0,LOGIN://127.0.0.1:0,BOTH://127.0.0.1:0",
    "listener.security.protocol.map": "TLS:SSL,LOGIN:SASL_PLAINTEXT,BOTH:SASL_SSL",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "listener.name.tls.ssl.client.auth": "required",
    "ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/L,DEFAULT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "plain.sasl.jaas.config": 'PlainLoginModule required user_anna="pl;ain pw" user_bert="x";',
    "connection.failed.authentication.delay.ms": "50",
}


@pytest.fixture
async def broker(start: Start, certificates: Certificates) -> Broker:
    """A broker with a listener of each kind, and a user anna with a password for each mechanism."""
    broker = await start(
        ssl_keystore_location=str(certificates.broker),
        ssl_truststore_location=str(certificates.authority),
        **ALL,
    )
    for mechanism in BY_NAME.values():
        broker.scram_users.put("anna", mechanism, credential_from_password(mechanism, "scram pw"))
    create_topic(broker, "t", 1, {})
    return broker


def address(broker: Broker, listener: str) -> Endpoint:
    return broker.network.endpoints[listener]


def login_options(mechanism: str, password: str | None = None) -> dict[str, str]:
    right = "pl;ain pw" if mechanism == "PLAIN" else "scram pw"
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "anna",
        "sasl_plain_password": right if password is None else password,
    }


def confluent_round_trip(options: dict[str, Any]) -> bytes | None:
    quiet = {"logger": logging.getLogger("librdkafka")}
    producer = Producer(options, **quiet)
    producer.produce("t", b"hello")
    assert producer.flush(60) == 0
    consumer = Consumer(options | {"group.id": "g", "auto.offset.reset": "earliest"}, **quiet)
    consumer.subscribe(["t"])
    try:
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        return message.value()
    finally:
        consumer.close()


MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.mark.parametrize("listener", ["LOGIN", "BOTH"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_librdkafka_logs_in(
    broker: Broker, certificates: Certificates, listener: str, mechanism: str
) -> None:
    options = {
        "bootstrap.servers": str(address(broker, listener)),
        "security.protocol": "SASL_PLAINTEXT" if listener == "LOGIN" else "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": "anna",
        "sasl.password": login_options(mechanism)["sasl_plain_password"],
        "ssl.ca.location": str(certificates.authority),
    }
    assert await asyncio.to_thread(confluent_round_trip, options) == b"hello"


async def test_librdkafka_shows_a_certificate(broker: Broker, certificates: Certificates) -> None:
    client = certificates.make(common_name="Van-7")
    options = {
        "bootstrap.servers": str(address(broker, "TLS")),
        "security.protocol": "SSL",
        "ssl.ca.location": str(certificates.authority),
        "ssl.certificate.location": str(client),
        "ssl.key.location": str(client),
    }
    assert await asyncio.to_thread(confluent_round_trip, options) == b"hello"


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka_logs_in(broker: Broker, certificates: Certificates, mechanism: str) -> None:
    options = {
        "bootstrap_servers": str(address(broker, "BOTH")),
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=str(certificates.authority)),
        **login_options(mechanism),
    }
    async with AIOKafkaProducer(**options) as producer:
        await producer.send_and_wait("t", b"hello")
    async with AIOKafkaConsumer("t", auto_offset_reset="earliest", **options) as consumer:
        assert (await consumer.getone()).value == b"hello"


#: Runs in its own process, because kafka-python leaves sockets to the garbage collector.
_KAFKA_PYTHON = """
import json, sys
from kafka import KafkaConsumer, KafkaProducer
options = json.loads(sys.argv[1])
producer = KafkaProducer(**options)
producer.send("t", b"hello").get(60)
producer.close()
consumer = KafkaConsumer("t", auto_offset_reset="earliest", consumer_timeout_ms=60000, **options)
print(next(consumer).value.decode())
consumer.close()
"""


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_kafka_python_logs_in(
    broker: Broker, certificates: Certificates, mechanism: str
) -> None:
    options = {
        "bootstrap_servers": str(address(broker, "BOTH")),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(certificates.authority),
        **login_options(mechanism),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _KAFKA_PYTHON, json.dumps(options),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, errors = await process.communicate()
    assert output == b"hello\n", errors.decode()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password_is_refused_after_a_delay(broker: Broker, mechanism: str) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    producer = AIOKafkaProducer(
        bootstrap_servers=str(address(broker, "LOGIN")),
        security_protocol="SASL_PLAINTEXT",
        **login_options(mechanism, "wrong"),
    )
    with pytest.raises(AioKafkaError):
        await producer.start()
    await producer.stop()
    assert loop.time() - began >= 0.05
    assert broker.login_failures.total >= 1


async def test_nothing_is_answered_before_the_login(broker: Broker) -> None:
    client = await RawClient.connect(address(broker, "LOGIN"))
    assert (await client.call(API_VERSIONS, 3, {"client_software_name": "x"}))["error_code"] == 0
    client.send(METADATA, 1, {"topics": None})
    assert await client.is_closed_by_peer()
    await client.close()


async def test_a_request_before_the_login_may_not_be_long(broker: Broker) -> None:
    client = await RawClient.connect(address(broker, "LOGIN"))
    client.writer.write((512 * 1024 + 1).to_bytes(4, "big"))
    assert await client.is_closed_by_peer()
    await client.close()


async def test_an_old_client_sends_its_messages_without_headers(broker: Broker) -> None:
    client = await RawClient.connect(address(broker, "LOGIN"))
    answer = await client.call(SASL_HANDSHAKE, 0, {"mechanism": "PLAIN"})
    assert answer == {"error_code": 0, "mechanisms": MECHANISMS}
    token = b"\0anna\0pl;ain pw"
    client.writer.write(len(token).to_bytes(4, "big") + token)
    assert await client.reader.readexactly(4) == bytes(4)
    assert (await client.call(METADATA, 1, {"topics": []}))["brokers"]
    await client.close()


async def test_an_unknown_mechanism_is_told_which_there_are(broker: Broker) -> None:
    client = await RawClient.connect(address(broker, "LOGIN"))
    answer = await client.call(SASL_HANDSHAKE, 1, {"mechanism": "GSSAPI"})
    assert answer == {"error_code": 33, "mechanisms": MECHANISMS}
    assert await client.is_closed_by_peer()
    await client.close()


async def log_in(client: RawClient, token: bytes) -> dict[str, Any]:
    await client.call(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
    return await client.call(SASL_AUTHENTICATE, 2, {"auth_bytes": token})


class Clock:
    """Stands in for module `time` where logins expire."""

    now_ns = 1_000_000_000

    def monotonic_ns(self) -> int:
        return self.now_ns

    def monotonic(self) -> float:
        return self.now_ns / 1e9


async def test_a_login_that_has_expired_is_renewed_or_the_connection_ends(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    for module in (connection, sasl):
        monkeypatch.setattr(module, "time", clock)
    broker = await start(**{
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.jaas.config": ALL["plain.sasl.jaas.config"],
        "connections.max.reauth.ms": "60000",
    })  # fmt: skip
    renews, forgets = [await RawClient.connect(broker.endpoint) for _ in range(2)]
    for client in (renews, forgets):
        answer = await log_in(client, b"\0bert\0x")
        assert answer["session_lifetime_ms"] == 60_000
    clock.now_ns += 61_000_000_000
    assert (await log_in(renews, b"\0bert\0x"))["error_code"] == 0
    assert (await renews.call(METADATA, 1, {"topics": []}))["brokers"]
    forgets.send(METADATA, 1, {"topics": []})
    assert await forgets.is_closed_by_peer()
    assert (await log_in(renews, b"\0anna\0pl;ain pw"))["error_code"] == 58
    for client in (renews, forgets):
        await client.close()


async def test_a_client_without_a_certificate_stays_outside(
    broker: Broker, certificates: Certificates
) -> None:
    context = ssl.create_default_context(cafile=str(certificates.authority))
    endpoint = address(broker, "TLS")
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context)
        try:
            await reader.readexactly(1)
        finally:
            writer.transport.abort()


async def test_garbage_at_the_tls_port_is_refused(broker: Broker) -> None:
    for garbage in (
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(5000),
        b"\x16\x03\x01\xff\xff" + bytes(70_000),
    ):
        client = await RawClient.connect(address(broker, "TLS"))
        client.writer.write(garbage)
        while True:
            try:
                if not await asyncio.wait_for(client.reader.read(4096), 10):
                    break  # an alert may come before the end
            except ConnectionError:
                break
        await client.close()
    plain = await RawClient.connect(broker.endpoint)
    assert (await plain.call(API_VERSIONS, 0, {}))["error_code"] == 0
    await plain.close()


@contextmanager
def no_secret_in(caplog: pytest.LogCaptureFixture, *secrets: str) -> Iterator[None]:
    with caplog.at_level(logging.DEBUG):
        yield
    assert not [secret for secret in secrets if secret in caplog.text]


async def test_each_listener_advertises_itself_and_knows_its_clients(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with no_secret_in(caplog, "pl;ain pw", "scram pw"):
        client = await RawClient.connect(address(broker, "LOGIN"))
        await log_in(client, b"\0anna\0pl;ain pw")
        answer = await client.call(METADATA, 1, {"topics": []})
        assert answer["brokers"][0]["port"] == address(broker, "LOGIN").port
        await client.close()


async def test_passwords_are_not_in_the_text_of_the_settings(broker: Broker) -> None:
    assert "pl;ain" not in repr(broker.config.listeners)


async def test_a_listener_without_a_key_is_refused(start: Start, tmp_path: Path) -> None:
    from waylog.config import ConfigError

    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for properties, message in (
        ({}, "ssl.keystore.location"),
        ({"ssl.keystore.location": "x.jks"}, "PEM only"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.location": "/nowhere"}, "No such file"),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(tmp_path / "empty.pem")},
            "read",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            await start(**{"listeners": "SSL://127.0.0.1:0"} | properties)


async def test_a_first_user_is_stored_before_the_broker_starts(
    start: Start, tmp_path: Path
) -> None:
    config = tmp_path / "server.properties"
    config.write_text(f"log.dirs={tmp_path / 'logs'}\n")
    command = [sys.executable, "-m", "waylog.cli", "broker", "--config", str(config)]
    for word, secret, status in (("SCRAM-SHA-256=anna", b"pw\n", 0), ("MD5=anna", b"pw\n", 1)):
        process = await asyncio.create_subprocess_exec(
            *command, "--add-scram", word,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, _ = await process.communicate(secret)
        assert process.returncode == status
        assert b"pw" not in output
    broker = await start(
        listeners="SASL_PLAINTEXT://127.0.0.1:0", sasl_enabled_mechanisms="SCRAM-SHA-256"
    )
    async with AIOKafkaProducer(
        bootstrap_servers=str(broker.endpoint),
        security_protocol="SASL_PLAINTEXT",
        **login_options("SCRAM-SHA-256", "pw"),
    ) as producer:
        assert producer.client.cluster.brokers()
