"""Certificates and keys that change while a listener is open."""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from cryptography import x509

from broker_core.protocol.definitions import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from broker_core.server.runtime import Broker
from tests.broker_core.security.tokens import TokenMint, first_message
from tests.broker_core.server.raw_client import RawClient
from tests.certificates import Certificates
from tests.ports import reserved_ports
from waylog.config import Endpoint
from waylog.network.tls import certificate_dates

Start = Callable[..., Awaitable[Broker]]


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a check succeeds."""
    deadline = time.monotonic() + 60
    while not await check():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def tls_client(endpoint: Endpoint, authority: Path, own: Path | None = None) -> RawClient:
    """Open a connection over TLS."""
    context = ssl.create_default_context(cafile=str(authority))
    if own is not None:
        context.load_cert_chain(own)
    reader, writer = await asyncio.open_connection(
        endpoint.host, endpoint.port, ssl=context, server_hostname="127.0.0.1"
    )
    return RawClient(reader, writer)


async def serial_shown(endpoint: Endpoint, authority: Path) -> int:
    """Return the serial number of the certificate that a new connection sees."""
    client = await tls_client(endpoint, authority)
    found = client.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    await client.close()
    return x509.load_der_x509_certificate(found).serial_number


async def test_a_new_certificate_is_shown_and_open_connections_stay(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificates = Certificates(tmp_path / "certificates")
    store = tmp_path / "broker.pem"
    shutil.copy(certificates.broker, store)
    broker = await start(
        listeners="TLS://127.0.0.1:0",
        listener_security_protocol_map="TLS:SSL",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(store),
        ssl_store_check_interval_ms="20",
    )
    endpoint = broker.network.endpoints["TLS"]
    stays = await tls_client(endpoint, certificates.authority)
    before = await serial_shown(endpoint, certificates.authority)
    # Half a file is no certificate: the broker keeps the former one.
    store.write_text("-----BEGIN CERTIFICATE-----\n")
    said = "listener TLS keeps its certificates, and tries the new ones"

    async def is_said() -> bool:
        return said in caplog.text

    await until(is_said)
    await asyncio.sleep(0.1)  # several checks
    assert caplog.text.count(said) == 1
    assert await serial_shown(endpoint, certificates.authority) == before
    renewed = certificates.make("127.0.0.1", common_name="renewed")
    renewed.replace(store)

    async def is_shown() -> bool:
        return await serial_shown(endpoint, certificates.authority) != before

    await until(is_shown)
    answer = await stays.call(API_VERSIONS, 3, {})
    assert answer["api_keys"]
    await stays.close()


async def start_with(start: Start, store: Path) -> Broker:
    return await start(
        listeners="SSL://127.0.0.1:0",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(store),
        ssl_store_check_interval_ms="50",
        metrics_listener="127.0.0.1:0",
    )


async def health_of(broker: Broker) -> str:
    endpoint = broker.metrics_endpoint
    assert endpoint is not None
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer.decode()


@pytest.mark.parametrize(
    ("days", "trouble"),
    [
        ((-20, -10), "the certificate has expired on"),
        ((10, 20), "the certificate is not valid before"),
    ],
)
async def test_a_certificate_that_is_not_valid_is_warned_of_and_named_by_the_health(
    start: Start,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    days: tuple[int, int],
    trouble: str,
) -> None:
    now = datetime.now(UTC)
    first, last = (now + timedelta(days=each) for each in days)
    certificates = Certificates(tmp_path / "certificates")
    bad = certificates.make("127.0.0.1", common_name="bad", valid=(first, last))
    store = tmp_path / "broker.pem"
    shutil.copy(bad, store)
    broker = await start_with(start, store)
    moment = last if last < now else first
    said = f"{trouble} {moment:%Y-%m-%d %H:%M UTC}"
    health = await health_of(broker)
    assert " 503 " in health.splitlines()[0]
    assert f"certificate: listener SSL: {said}" in health
    assert str(store) not in health
    assert broker.network.certificate_expiries()["SSL"] == pytest.approx(last.timestamp(), abs=1)
    await asyncio.sleep(0.3)  # several checks
    (warned,) = (each for each in caplog.messages if trouble in each)
    assert warned == (
        f"listener SSL: ssl.keystore.location={store}: {said}; clients that verify it do not "
        "connect"
    )
    shutil.copy(certificates.broker, store)

    async def is_well() -> bool:
        return " 200 " in (await health_of(broker)).splitlines()[0]

    await until(is_well)


async def test_a_certificate_that_stays_expired_is_warned_of_again(
    start: Start,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(certificate_dates, "WARN_AGAIN_S", 0.1)
    last = datetime.now(UTC) - timedelta(days=1)
    certificates = Certificates(tmp_path / "certificates")
    valid = (last - timedelta(days=9), last)
    await start_with(start, certificates.make("127.0.0.1", common_name="old", valid=valid))

    async def is_said_again() -> bool:
        return len([each for each in caplog.messages if "has expired on" in each]) >= 3

    await until(is_said_again)


async def test_a_certificate_that_expires_soon_is_warned_of_and_is_well(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    last = datetime.now(UTC) + timedelta(days=3)
    certificates = Certificates(tmp_path / "certificates")
    valid = (last - timedelta(days=90), last)
    store = certificates.make("127.0.0.1", common_name="soon", valid=valid)
    broker = await start_with(start, store)
    (warned,) = (each for each in caplog.messages if "the certificate expires on" in each)
    assert warned.endswith(f"expires on {last:%Y-%m-%d %H:%M UTC}; renew it before")
    assert " 200 " in (await health_of(broker)).splitlines()[0]


async def test_a_certificate_for_another_host_is_warned_of(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificates = Certificates(tmp_path / "certificates")
    other = certificates.make("kafka9.example", "*.log.example", common_name="other")
    await start_with(start, other)
    (warned,) = (each for each in caplog.messages if "the certificate is not for" in each)
    assert "not for 127.0.0.1, where others are told to connect, " in warned
    assert warned.endswith("but for *.log.example, kafka9.example")


@pytest.mark.parametrize("voter", ["127.0.0.1", "localhost"])
async def test_a_controllers_certificate_is_for_the_address_of_the_voter(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture, voter: str
) -> None:
    certificates = Certificates(tmp_path / "certificates")
    own = certificates.make("127.0.0.1", common_name="own")
    clients, controllers = reserved_ports(2)
    broker = await start(
        node_id="1",
        process_roles="broker,controller",
        listeners=f"SSL://127.0.0.1:{clients},CONTROLLER://127.0.0.1:{controllers}",
        listener_security_protocol_map="SSL:SSL,CONTROLLER:SSL",
        controller_listener_names="CONTROLLER",
        controller_quorum_voters=f"1@{voter}:{controllers}",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(own),
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(certificates.authority),
    )
    warned = [each for each in caplog.messages if "the certificate is not for" in each]
    assert [each.partition(":")[0] for each in warned] == (
        ["listener CONTROLLER"] if voter == "localhost" else []
    )
    expiries = [each.certificate_expiries() for each in broker.networks]
    assert [list(each) for each in expiries] == [["SSL"], ["CONTROLLER"]]


async def test_another_certificate_that_is_not_valid_either_is_warned_of_at_once(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificates = Certificates(tmp_path / "certificates")
    store = tmp_path / "broker.pem"
    now = datetime.now(UTC)
    for day in (2, 1):
        valid = now - timedelta(days=10), now - timedelta(days=day)
        old = certificates.make("127.0.0.1", common_name=f"old{day}", valid=valid)
        shutil.copy(old, tmp_path / "next.pem")
        (tmp_path / "next.pem").replace(store)
        if day == 2:
            await start_with(start, store)

    async def are_said() -> bool:
        return len([each for each in caplog.messages if "has expired on" in each]) == 2

    await until(are_said)


@pytest.mark.parametrize(
    ("host", "more", "is_warned_of"),
    [
        ("kafka1.example", {}, False),
        ("kafka2.example", {}, True),
        ("kafka2.example", {"ssl_endpoint_identification_algorithm": ""}, False),
    ],
)
async def test_a_certificate_is_for_the_host_that_others_are_told(
    start: Start,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    host: str,
    more: dict[str, str],
    is_warned_of: bool,
) -> None:
    (port,) = reserved_ports(1)
    certificates = Certificates(tmp_path / "certificates")
    await start(
        listeners=f"SSL://127.0.0.1:{port}",
        advertised_listeners=f"SSL://{host}:{port}",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(certificates.make("kafka1.example", common_name="one")),
        **more,
    )
    warned = [each for each in caplog.messages if "the certificate is not for" in each]
    assert len(warned) == is_warned_of


async def test_a_certificate_that_clients_refuse_is_said_to_be_the_listeners_once(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    certificates = Certificates(tmp_path / "certificates")
    last = datetime.now(UTC) - timedelta(days=1)
    valid = (last - timedelta(days=9), last)
    broker = await start_with(start, certificates.make("127.0.0.1", common_name="old", valid=valid))

    def distrust(authority: Path) -> None:
        context = ssl.create_default_context(cafile=str(authority))
        with (
            socket.create_connection((broker.endpoint.host, broker.endpoint.port)) as plain,
            pytest.raises(ssl.SSLCertVerificationError),
        ):
            context.wrap_socket(plain, server_hostname="127.0.0.1")

    for _ in range(5):
        await asyncio.to_thread(distrust, certificates.authority)
    for _ in range(2):  # another reason is said too
        await asyncio.to_thread(distrust, Certificates(tmp_path / "others").authority)

    async def are_said() -> bool:
        return len([each for each in caplog.messages if "is disconnected" in each]) >= 2

    await until(are_said)
    said = [each.partition(" is ")[2] for each in caplog.messages if "is disconnected" in each]
    refused = "disconnected: the client does not accept this listener's certificate: "
    assert said == [f"{refused}expired", f"{refused}unknown CA"]


async def is_let_in(endpoint: Endpoint, authority: Path, own: Path | None) -> bool:
    """Tell whether a client with this certificate, or none, gets an answer."""
    try:
        client = await tls_client(endpoint, authority, own)
        await client.call(API_VERSIONS, 3, {})
        await client.close()
    except (OSError, EOFError, asyncio.IncompleteReadError):
        return False
    return True


@pytest.mark.parametrize("required", [False, True])
async def test_who_logs_in_with_sasl_needs_a_certificate_only_if_the_listener_says_so(
    start: Start, tmp_path: Path, required: bool
) -> None:
    certificates = Certificates(tmp_path / "certificates")
    asked = {"listener_name_tls_ssl_client_auth": "required"} if required else {}
    broker = await start(
        listeners="TLS://127.0.0.1:0",
        listener_security_protocol_map="TLS:SASL_SSL",
        sasl_enabled_mechanisms="PLAIN",
        sasl_jaas_config='Plain required user_anna="a";',
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(certificates.broker),
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(certificates.authority),
        **asked,
    )
    endpoint = broker.network.endpoints["TLS"]
    own = certificates.make("a", common_name="a")
    assert await is_let_in(endpoint, certificates.authority, own)
    assert await is_let_in(endpoint, certificates.authority, None) == (not required)


async def test_a_new_authority_is_believed_and_the_old_one_is_not(
    start: Start, tmp_path: Path
) -> None:
    old, new = Certificates(tmp_path / "old"), Certificates(tmp_path / "new")
    trust = tmp_path / "trust.pem"
    shutil.copy(old.authority, trust)
    broker = await start(
        listeners="TLS://127.0.0.1:0",
        listener_security_protocol_map="TLS:SSL",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(old.broker),
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(trust),
        ssl_client_auth="required",
        ssl_store_check_interval_ms="20",
    )
    endpoint = broker.network.endpoints["TLS"]

    async def lets_in(own: Path) -> bool:
        return await is_let_in(endpoint, old.authority, own)

    of_old, of_new = old.make("a", common_name="a"), new.make("b", common_name="b")
    assert await lets_in(of_old)
    assert not await lets_in(of_new)
    shutil.copy(new.authority, tmp_path / "next.pem")
    (tmp_path / "next.pem").replace(trust)

    async def is_believed() -> bool:
        return await lets_in(of_new)

    await until(is_believed)
    assert not await lets_in(of_old)


@pytest.fixture
def key_server() -> Any:
    """An authorization server's key set over HTTP; it sends `answer`, or an error for None."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            document = server.answer  # type: ignore[attr-defined]
            self.send_response(500 if document is None else 200)
            self.end_headers()
            self.wfile.write(document or b"")

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.answer = None  # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


async def test_keys_are_read_when_they_are_there_and_again_when_they_change(
    start: Start, key_server: Any
) -> None:
    mint = TokenMint()
    broker = await start(
        listeners="LOGIN://127.0.0.1:0",
        listener_security_protocol_map="LOGIN:SASL_PLAINTEXT",
        sasl_enabled_mechanisms="OAUTHBEARER",
        sasl_oauthbearer_jwks_endpoint_url=f"http://127.0.0.1:{key_server.server_port}/keys",
        sasl_oauthbearer_jwks_endpoint_retry_backoff_ms="10",
        connection_failed_authentication_delay_ms="1",
    )

    async def lets_in() -> bool:
        client = await RawClient.connect(broker.network.endpoints["LOGIN"])
        await client.call(SASL_HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"})
        message = {"auth_bytes": first_message(mint.token())}
        answer = await client.call(SASL_AUTHENTICATE, 2, message)
        await client.close()
        return answer["auth_bytes"] == b"" and not answer["error_code"]

    # The authorization server has no keys yet: logins are refused, and the broker serves.
    assert not await lets_in()
    key_server.answer = mint.key_set()
    await until(lets_in)
    # A token with an unknown key makes the broker fetch the keys again.
    mint.new_key()
    key_server.answer = mint.key_set()
    await until(lets_in)
