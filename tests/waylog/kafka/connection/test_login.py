"""Logins at a broker of this package, and at servers that do not keep to the protocol."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.security.scram import BY_NAME, credential_from_password
from tests.broker_core.security.tokens import TokenMint
from tests.certificates import Certificates
from tests.tcp_server import tcp_server
from tests.waylog.kafka.conftest import MECHANISMS, USER, StartBroker, login, over_tls
from waylog.config import ConfigError
from waylog.kafka.connection import broker_connection
from waylog.kafka.connection.broker_connection import BrokerConnection, refusal
from waylog.kafka.connection.properties import client_properties
from waylog.kafka.connection.sasl import LoginRefused
from waylog.kafka.connection.security import connection_security
from waylog.kafka.protocol import requests
from waylog.kafka.protocol.requests import Broker

LOGIN = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}


@asynccontextmanager
async def connected(port: int, properties: dict[str, str]) -> AsyncIterator[BrokerConnection]:
    connection = await BrokerConnection.connect(
        asyncio.get_running_loop(),
        Broker("127.0.0.1", port),
        "test",
        connection_security(client_properties(properties)),
        connect_timeout_s=60,
    )
    try:
        yield connection
    finally:
        connection.close()


async def partitions(connection: BrokerConnection) -> int:
    answer = await connection.ask(requests.METADATA, requests.metadata(["four"]), 10)
    return len(requests.read_metadata(answer).topics[0].partitions)


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_who_knows_the_password_is_let_in_with_and_without_tls(
    start_secured: StartBroker, certificates: Certificates, mechanism: str
) -> None:
    broker = await start_secured(listeners="SASL_PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0")
    plain, encrypted = (
        broker.network.endpoints[name].port for name in ("SASL_PLAINTEXT", "SASL_SSL")
    )
    async with connected(plain, login(mechanism)) as connection:
        assert await partitions(connection) == 4
    async with connected(encrypted, over_tls(login(mechanism), certificates)) as connection:
        assert await partitions(connection) == 4


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password_is_refused_and_told_to_nobody(
    start_secured: StartBroker, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_secured(**LOGIN)
    with caplog.at_level(logging.DEBUG), pytest.raises(LoginRefused) as refused:
        async with connected(broker.endpoint.port, login(mechanism, "wrong secret")):
            pass
    assert refusal(refused.value) is not None
    assert "wrong secret" not in caplog.text + str(refused.value)


async def test_a_broker_without_the_mechanism_says_which_it_has(
    start_secured: StartBroker,
) -> None:
    broker = await start_secured(**LOGIN, sasl_enabled_mechanisms="SCRAM-SHA-256,SCRAM-SHA-512")
    with pytest.raises(LoginRefused, match="offers SCRAM-SHA-256, SCRAM-SHA-512, not PLAIN"):
        async with connected(broker.endpoint.port, login("PLAIN")):
            pass


async def test_a_broker_that_hangs_in_the_login_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_connection, "_LOGIN_TIMEOUT_S", 0.2)

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        while await reader.read(4096):
            pass

    async with tcp_server(silent) as port:
        with pytest.raises(TimeoutError, match="does not answer the login"):
            async with connected(port, login("PLAIN")):
                pass


def framed(correlation_id: bytes, body: bytes) -> bytes:
    return (4 + len(body)).to_bytes(4, "big") + correlation_id + body


async def received(reader: asyncio.StreamReader) -> bytes:
    """Return the correlation id of the next request."""
    size = int.from_bytes(await reader.readexactly(4), "big")
    return (await reader.readexactly(size))[4:8]


HANDSHAKE_DONE = bytes(6)


async def test_a_connection_that_is_lost_in_the_login_is_an_error_of_the_connection() -> None:
    async def leaves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(framed(await received(reader), HANDSHAKE_DONE))
        await received(reader)

    async with tcp_server(leaves) as port:
        for mechanism in MECHANISMS:
            with pytest.raises(ConnectionError, match="ended before its answer"):
                async with connected(port, login(mechanism)):
                    pass


async def test_an_answer_before_the_login_may_not_be_long() -> None:
    async def floods(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await received(reader)
        writer.write((1 << 20).to_bytes(4, "big") + bytes(4096))
        assert await reader.read() == b""

    async with tcp_server(floods) as port:
        with pytest.raises(ConnectionError):
            async with connected(port, login("PLAIN")):
                pass


@settings(max_examples=60)
@given(
    mechanism=st.sampled_from(MECHANISMS),
    answers=st.lists(
        st.binary(max_size=60)
        # What looks like an answer gets further.
        | st.builds(
            lambda data, session: (
                bytes(2)
                + b"\xff\xff"
                + len(data).to_bytes(4, "big")
                + data
                + session.to_bytes(8, "big", signed=True)
            ),
            st.binary(max_size=40),
            st.integers(-1, 1000),
        ),
        max_size=6,
    ),
    handshake=st.just(HANDSHAKE_DONE) | st.binary(max_size=20),
    cut=st.integers(0, 3),
)
def test_whatever_a_server_answers_the_login_ends(
    mechanism: str, answers: list[bytes], handshake: bytes, cut: int
) -> None:
    async def garbled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        bodies = [handshake, *answers]
        for number, body in enumerate(bodies, 1):
            try:
                frame = framed(await received(reader), body)
            except asyncio.IncompleteReadError:
                return
            writer.write(frame[: len(frame) - cut] if number == len(bodies) else frame)

    async def run() -> None:
        async with tcp_server(garbled) as port:
            try:
                async with connected(port, login(mechanism)):
                    # An empty answer to PLAIN is the end of a login that has succeeded.
                    assert mechanism == "PLAIN"
            except OSError as error:
                assert not isinstance(error, TimeoutError)

    asyncio.run(run())


async def test_a_login_is_renewed_while_requests_are_under_way(start_secured: StartBroker) -> None:
    broker = await start_secured(**LOGIN, connections_max_reauth_ms="3000")
    loop = asyncio.get_running_loop()
    async with connected(broker.endpoint.port, login("SCRAM-SHA-256")) as connection:
        # Without a renewal the broker would end the connection.
        until = loop.time() + 7
        while loop.time() < until:
            assert await asyncio.gather(*(partitions(connection) for _ in range(5))) == [4] * 5
    assert broker.login_failures.total == 0


def authenticated(session_ms: int) -> bytes:
    return bytes(2) + b"\xff\xff" + bytes(4) + session_ms.to_bytes(8, "big")


@pytest.mark.parametrize("ends", [False, True])
async def test_a_request_waits_for_a_renewal_and_has_an_answer_whatever_comes_of_that(
    ends: bool,
) -> None:
    renews, may_end, is_sent, may_answer = (asyncio.Event() for _ in range(4))

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(framed(await received(reader), HANDSHAKE_DONE))
        writer.write(framed(await received(reader), authenticated(1)))
        writer.write(framed(await received(reader), HANDSHAKE_DONE))
        renews.set()
        await may_end.wait()
        if ends:
            return
        writer.write(framed(await received(reader), authenticated(0)))
        number = await received(reader)
        is_sent.set()
        await may_answer.wait()
        writer.write(framed(number, b"answer"))

    answers: asyncio.Queue[bytes | None] = asyncio.Queue()
    async with (
        asyncio.timeout(60),
        tcp_server(slow) as port,
        connected(port, login("PLAIN")) as connection,
    ):
        await renews.wait()
        connection.request(requests.METADATA, requests.metadata([]), 60, answers.put_nowait)
        assert answers.empty()
        may_end.set()
        if not ends:
            await is_sent.wait()
            connection.look_after()  # it is not late
            may_answer.set()
        assert await answers.get() == (None if ends else b"answer")


async def test_a_renewal_that_is_refused_ends_the_connection(
    start_secured: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_secured(**LOGIN, connections_max_reauth_ms="1000")
    async with connected(broker.endpoint.port, login("SCRAM-SHA-512")) as connection:
        for mechanism in BY_NAME.values():
            broker.scram_users.put(USER, mechanism, credential_from_password(mechanism, "changed"))
        async with asyncio.timeout(60):
            with pytest.raises(ConnectionError):
                while True:
                    await partitions(connection)
        assert not connection.is_open


async def test_a_token_of_an_authorization_server_lets_in(
    start_secured: StartBroker, tmp_path: Path
) -> None:
    mint, keys = TokenMint(), tmp_path / "keys.json"
    keys.write_bytes(mint.key_set())
    asked: list[bytes] = []
    broker = await start_secured(
        **LOGIN,
        sasl_enabled_mechanisms="OAUTHBEARER",
        sasl_jaas_config="OAuthBearerLoginModule required;",
        sasl_oauthbearer_jwks_endpoint_url=keys.as_uri(),
        sasl_oauthbearer_expected_audience="kafka",
    )

    async def grants(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = next(
            int(line.partition(b":")[2])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        )
        asked.append(head + await reader.readexactly(size))
        granted = b"YW5uYTpzM2NyZXQ=" in head  # anna:s3cret
        body = json.dumps(
            {"access_token": mint.token(aud="kafka"), "expires_in": 60, "token_type": "Bearer"}
            if granted
            else {"error": "invalid_client"}
        ).encode()
        status = b"200 OK" if granted else b"401 Unauthorized"
        writer.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)
        await writer.drain()

    async with tcp_server(grants) as port:
        properties = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "anna",
            "sasl.oauthbearer.client.secret": "s3cret",
            "sasl.oauthbearer.scope": "kafka write",
            "sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{port}/token",
        }
        security = connection_security(properties)
        for _ in range(2):
            connection = await BrokerConnection.connect(
                *(asyncio.get_running_loop(), Broker("127.0.0.1", broker.endpoint.port), "test"),
                security,
            )
            assert await partitions(connection) == 4
            connection.close()
        assert [each.rpartition(b"\r\n")[2] for each in asked] == [
            b"grant_type=client_credentials&scope=kafka+write"
        ]
        wrong = properties | {"sasl.oauthbearer.client.secret": "an0ther"}
        with pytest.raises(LoginRefused, match="HTTP 401") as refused:
            async with connected(broker.endpoint.port, wrong):
                pass
        assert "an0ther" not in str(refused.value)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism=GSSAPI: one of PLAIN"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.username is missing"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "a"}, "sasl.password is missing"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "s3c\0ret"},
            "no NUL character",
        ),
        ({"sasl.kerberos.principal": "s3cret"}, "sasl.kerberos.principal: not supported"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "sasl.oauthbearer.method=: oidc is expected"),
        (
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": "file:///etc/passwd",
            },
            "https://... is expected",
        ),
    ],
)
def test_a_login_that_cannot_be_made_is_named(wrong: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        connection_security({"security.protocol": "SASL_SSL"} | wrong)
    assert message in str(raised.value)
    assert "s3c" not in str(raised.value).replace("s3cret: not", "")


def test_a_login_does_not_show_its_secrets() -> None:
    shown = repr(connection_security(client_properties(login("PLAIN", "s3cret"))))
    assert "anna" in shown
    assert "s3cret" not in shown
