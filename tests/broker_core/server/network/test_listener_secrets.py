"""Certificates and keys that change while a listener is open."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import time
from collections.abc import Awaitable, Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from cryptography import x509

from broker_core.protocol.definitions import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from broker_core.server.runtime import Broker
from tests.broker_core.security.tokens import TokenMint, first_message
from tests.broker_core.server.certificates import Certificates
from tests.broker_core.server.raw_client import RawClient
from waylog.config import Endpoint

Start = Callable[..., Awaitable[Broker]]


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a check succeeds."""
    deadline = time.monotonic() + 10
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
    start: Start, tmp_path: Path
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
    await asyncio.sleep(0.1)
    assert await serial_shown(endpoint, certificates.authority) == before
    renewed = certificates.make("127.0.0.1", common_name="renewed")
    renewed.replace(store)

    async def is_shown() -> bool:
        return await serial_shown(endpoint, certificates.authority) != before

    await until(is_shown)
    answer = await stays.call(API_VERSIONS, 3, {})
    assert answer["api_keys"]
    await stays.close()


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
        try:
            client = await tls_client(endpoint, old.authority, own)
            await client.call(API_VERSIONS, 3, {})
            await client.close()
        except (OSError, EOFError, asyncio.IncompleteReadError):
            return False
        return True

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
