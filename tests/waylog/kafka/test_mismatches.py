"""A client and a listener that do not fit: one sentence says what is wrong and what to do."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.certificates import Certificates
from tests.waylog.kafka.conftest import PASSWORD, USER, StartBroker, login, over_tls
from waylog.kafka.connection.properties import client_properties
from waylog.kafka.connection.security import connection_security
from waylog.kafka.reach import reach

PROTOCOLS = ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]


@dataclass(frozen=True)
class Case:
    """A client's properties at a listener, and what its sentence has to say."""

    listener: str
    client: str
    says: list[str]
    password: str | None = None
    user: str | None = None
    mechanism: str = "PLAIN"
    trust: str = "authority"
    own: str | None = None
    #: The broker's certificate is another one.
    shown: str = "broker"
    broker: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.client}-at-{self.listener}-{self.says[0]}"


def crossed() -> list[Case]:
    """Return all pairs of protocols that differ."""
    cases = []
    for listener in PROTOCOLS:
        for client in PROTOCOLS:
            says = [f"set security.protocol={listener}", f"this client speaks {client}"]
            if listener.startswith("SASL") and not client.startswith("SASL"):
                says += ["it wants clients to log in", "sasl.username", "SCRAM-SHA-512"]
            if client.startswith("SASL") and not listener.startswith("SASL"):
                says += ["it has no logins"]
            if listener.endswith("SSL") and not client.endswith("SSL"):
                says += ["it wants TLS", "ssl.truststore.location"]
            if client.endswith("SSL") and not listener.endswith("SSL"):
                says += ["it does not speak TLS"]
            if listener != client:
                cases.append(Case(listener, client, says))
    return cases


LOGINS = [
    Case(listener, listener, says, **more)
    for listener in ("SASL_PLAINTEXT", "SASL_SSL")
    for says, more in (
        (
            ["refuses the login of user anna by PLAIN", "sasl.password"],
            {"password": "wrong"},
        ),
        (
            ["refuses the login of user anna by SCRAM-SHA-256", "sasl.password"],
            {"password": "wrong", "mechanism": "SCRAM-SHA-256"},
        ),
        (["refuses the login of user nobody", "sasl.username"], {"user": "nobody"}),
        (
            ["refuses the login of user nobody", "sasl.username"],
            {"user": "nobody", "mechanism": "SCRAM-SHA-512"},
        ),
        (
            ["the broker offers PLAIN, not SCRAM-SHA-512", "set sasl.mechanism"],
            {"mechanism": "SCRAM-SHA-512", "broker": {"sasl.enabled.mechanisms": "PLAIN"}},
        ),
    )
]
CERTIFICATES = [
    Case(protocol, protocol, says, **more)
    for protocol in ("SSL", "SASL_SSL")
    for says, more in (
        (["not of an authority that this client trusts", "ssl.truststore"], {"trust": "machine"}),
        (["not of an authority that this client trusts", "ssl.truststore"], {"trust": "another"}),
        (["does not name 127.0.0.1", "advertised.listeners"], {"shown": "elsewhere"}),
        (["certificate has expired", "renew it"], {"shown": "expired"}),
        (
            ["wants a certificate of every client", "ssl.keystore.location"],
            {"broker": {"ssl.client.auth": "required"}},
        ),
        (
            ["one that the broker does not trust", "ssl.keystore.location"],
            {"own": "another", "broker": {"ssl.client.auth": "required"}},
        ),
    )
]


@pytest.fixture
def another(tmp_path: Path) -> Certificates:
    folder = tmp_path / "another"
    folder.mkdir()
    return Certificates(folder)


def of_client(case: Case, certificates: Certificates, another: Certificates) -> dict[str, str]:
    properties: dict[str, str] = {}
    if case.client.startswith("SASL"):
        properties = login(case.mechanism, case.password or PASSWORD)
        jaas = properties["sasl.jaas.config"]
        properties["sasl.jaas.config"] = jaas.replace(f'"{USER}"', f'"{case.user or USER}"')
    if case.client.endswith("SSL") and case.trust != "machine":
        trusted = certificates if case.trust == "authority" else another
        properties = over_tls(properties, trusted)
    if case.own:
        properties["ssl.keystore.location"] = str(another.make(common_name="stranger"))
    return properties | {"security.protocol": case.client}


def of_broker(case: Case, certificates: Certificates) -> dict[str, str]:
    properties = {"listeners": f"{case.listener}://127.0.0.1:0", **case.broker}
    if case.shown == "elsewhere":
        shown = certificates.make("elsewhere.example", common_name="elsewhere")
        properties["ssl.keystore.location"] = str(shown)
    elif case.shown == "expired":
        day = timedelta(days=1)
        valid = (datetime.now(UTC) - 3 * day, datetime.now(UTC) - day)
        shown = certificates.make("127.0.0.1", common_name="expired", valid=valid)
        properties["ssl.keystore.location"] = str(shown)
    return properties


@pytest.mark.parametrize("case", crossed() + LOGINS + CERTIFICATES, ids=str)
async def test_one_sentence_says_what_does_not_fit_at_every_try(
    case: Case, start_secured: StartBroker, certificates: Certificates, another: Certificates
) -> None:
    broker = await start_secured(**of_broker(case, certificates))
    properties = client_properties(of_client(case, certificates, another))
    security = connection_security(properties)
    first, *later = [await reach(str(broker.endpoint), security) for _ in range(5)]
    assert first is not None
    assert f"{broker.endpoint} does not let us in: " in first
    for words in case.says:
        assert words in first
    assert "\n" not in first
    assert "local-accounts" not in first
    assert set(later) == {first}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_client_that_fits_is_let_in(
    protocol: str, start_secured: StartBroker, certificates: Certificates, another: Certificates
) -> None:
    case = Case(protocol, protocol, ["nothing"])
    broker = await start_secured(**of_broker(case, certificates))
    properties = client_properties(of_client(case, certificates, another))
    assert await reach(str(broker.endpoint), connection_security(properties)) is None


async def test_an_address_that_has_failed_often_still_hears_that_its_password_is_wrong(
    start_secured: StartBroker,
) -> None:
    broker = await start_secured(
        listeners="SASL_PLAINTEXT://127.0.0.1:0", connection_failed_authentication_delay_ms="100"
    )
    for _ in range(20):
        broker.login_failures.delay_ms("127.0.0.1", time.monotonic())
    security = connection_security(client_properties(login("PLAIN", "wrong")))
    why = await reach(str(broker.endpoint), security)
    assert why is not None
    assert "refuses the login of user anna by PLAIN" in why
