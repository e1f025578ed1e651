"""Logins with access tokens (SASL OAUTHBEARER): our broker, and Apache Kafka (-m kafka)."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient

from broker_core import errors
from broker_core.protocol.definitions import SASL_AUTHENTICATE, SASL_HANDSHAKE
from tests.apache_kafka import apache_kafka, tool
from tests.broker_core.security.tokens import TokenMint, first_message
from tests.broker_core.server.raw_client import RawClient
from tests.contract.broker_process import BrokerProcess
from tests.ports import reserved_ports
from waylog.config import parse_endpoint

_LOGGER = logging.getLogger("librdkafka")
_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
_HANDLERS = "org.apache.kafka.common.security.oauthbearer.OAuthBearer"


class Secured(NamedTuple):
    """The address to log in at, and the issuer of the tokens."""

    login: str
    mint: TokenMint
    keys: Path


def _properties(keys: Path) -> dict[str, str]:
    return {
        "listener_security_protocol_map": "LOGIN:SASL_PLAINTEXT",
        "listener_name_login_sasl_enabled_mechanisms": "OAUTHBEARER",
        "listener_name_login_oauthbearer_sasl_jaas_config": _MODULE,
        "listener_name_login_oauthbearer_sasl_server_callback_handler_class": (
            f"{_HANDLERS}ValidatorCallbackHandler"
        ),
        "sasl_oauthbearer_jwks_endpoint_url": keys.as_uri(),
        "sasl_oauthbearer_expected_audience": "kafka",
    }


@pytest.fixture(
    scope="module", params=["waylog", pytest.param("apache-kafka", marks=pytest.mark.kafka)]
)
def secured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    """Run a broker that admits clients with a token."""
    folder = tmp_path_factory.mktemp("tokens")
    mint, keys = TokenMint(), folder / "keys.json"
    keys.write_bytes(mint.key_set())
    if request.param == "apache-kafka":
        login = f"127.0.0.1:{reserved_ports(1)[0]}"
        listener = f"LOGIN://{login}"
        with pytest.MonkeyPatch.context() as patch:
            allow_files(patch, keys)
            options = _properties(keys) | {"listeners": listener, "advertised_listeners": listener}
            with apache_kafka(more=options):
                yield Secured(login, mint, keys)
        return
    options = _properties(keys) | {"listeners": "PLAINTEXT://127.0.0.1:0,LOGIN://127.0.0.1:0"}
    broker = BrokerProcess(folder, **options)
    broker.start()
    yield Secured(_login_address(broker), mint, keys)
    assert broker.stop() == 0, "".join(broker.output)


def _login_address(broker: BrokerProcess) -> str:
    deadline = time.monotonic() + 60
    while True:
        found = re.search(r"listener LOGIN at (\S+)", "".join(broker.output))
        if found:
            return found[1]
        assert time.monotonic() < deadline, broker.output
        time.sleep(0.01)


def allow_files(patch: pytest.MonkeyPatch, *files: Path) -> None:
    """Allow Java to read these files: it reads keys and tokens only from files a property names."""
    urls = ",".join(each.as_uri() for each in files)
    name = "org.apache.kafka.sasl.oauthbearer.allowed"
    paths = ",".join(str(each) for each in files)
    options = (
        f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} -D{name}.urls={urls} -D{name}.files={paths}"
    )
    patch.setenv("JAVA_TOOL_OPTIONS", options)


def client(secured: Secured, token: str) -> dict[str, Any]:
    """Return the settings of a librdkafka client that has a token."""
    return {
        "bootstrap.servers": secured.login,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda config: (token, time.time() + 60),
    }


def test_who_has_a_token_is_let_in(secured: Secured) -> None:
    options = client(secured, secured.mint.token(aud="kafka"))
    admin = AdminClient(options, logger=_LOGGER)
    admin.poll(0)  # gets the token
    assert admin.list_topics(timeout=60).brokers


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "others"},
        pytest.param({"aud": "kafka", "lifetime_s": -100}, marks=pytest.mark.long),
        pytest.param({"aud": None}, marks=pytest.mark.long),
    ],
)
def test_who_has_none_that_holds_is_not(secured: Secured, claims: dict[str, Any]) -> None:
    refused = threading.Event()

    def failed(error: KafkaError) -> None:
        if error.code() == KafkaError._AUTHENTICATION:
            refused.set()

    options = client(secured, secured.mint.token(**claims)) | {"error_cb": failed}
    producer = Producer(options, logger=_LOGGER)
    deadline = time.monotonic() + 60
    while not refused.is_set():
        producer.poll(0.05)
        assert time.monotonic() < deadline


def test_a_refusal_is_said_in_the_mechanisms_own_way_first(secured: Secured) -> None:
    async def talk() -> list[dict[str, Any]]:
        raw = await RawClient.connect(parse_endpoint(secured.login))
        await raw.call(SASL_HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"})
        answers = []
        for message in (first_message(TokenMint().token(aud="kafka")), b"\x01"):
            answers.append(await raw.call(SASL_AUTHENTICATE, 2, {"auth_bytes": message}))
        await raw.close()
        return answers

    told, refused = asyncio.run(talk())
    assert told["error_code"] == errors.NONE
    assert told["auth_bytes"] == b'{"status":"invalid_token"}'
    assert refused["error_code"] == errors.SaslAuthenticationFailed.code


@pytest.mark.kafka
def test_the_java_client_logs_in(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text(secured.mint.token(aud="kafka"))
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={_MODULE}\n"
        f"sasl.login.callback.handler.class={_HANDLERS}LoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n"
    )
    allow_files(monkeypatch, token)
    done = tool(
        "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", secured.login,
        "--command-config", str(config), "--create", "--topic", "made-by-java",
    )  # fmt: skip
    assert "Created topic made-by-java" in done.stdout, done.stdout + done.stderr
