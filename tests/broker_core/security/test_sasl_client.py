from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.security.sasl import PLAIN, PlainServer
from broker_core.security.sasl_client import SaslCredentials, ScramClient, client_exchange
from broker_core.security.scram import (
    SCRAM_MECHANISMS,
    AuthenticationFailed,
    CredentialLookup,
    ScramMechanism,
    ScramServer,
    credential_from_password,
)

USER, PASSWORD = "broker,1=a", "pass word"


def server(mechanism: ScramMechanism) -> ScramServer:
    credential = credential_from_password(mechanism, PASSWORD)
    return ScramServer(
        mechanism, CredentialLookup(lambda _, user: credential if user == USER else None)
    )


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
def test_both_sides_of_scram_agree(mechanism: ScramMechanism) -> None:
    peer = server(mechanism)
    client = client_exchange(SaslCredentials(mechanism.name, USER, PASSWORD))
    proof = client.evaluate(peer.evaluate(client.first()))
    assert proof is not None
    assert client.evaluate(peer.evaluate(proof)) is None
    assert peer.user == USER


def test_a_wrong_password_is_refused() -> None:
    peer = server(SCRAM_MECHANISMS[0])
    client = client_exchange(SaslCredentials("SCRAM-SHA-256", USER, "other"))
    proof = client.evaluate(peer.evaluate(client.first()))
    assert proof is not None
    with pytest.raises(AuthenticationFailed):
        peer.evaluate(proof)


def test_a_server_that_does_not_know_the_password_is_refused() -> None:
    peer = server(SCRAM_MECHANISMS[0])
    client = client_exchange(SaslCredentials("SCRAM-SHA-256", USER, PASSWORD))
    client.evaluate(peer.evaluate(client.first()))
    with pytest.raises(AuthenticationFailed):
        client.evaluate(b"v=AAAA")


def test_the_exchange_of_rfc_7677() -> None:
    client = ScramClient(
        SCRAM_MECHANISMS[0],
        SaslCredentials("SCRAM-SHA-256", "user", "pencil"),
        lambda: "rOprNGfwEbeRWgbNEkqO",
    )
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert client.evaluate(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()) == (
        f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    )
    assert client.evaluate(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


@given(st.binary(max_size=80))
def test_nonsense_of_the_server_is_an_authentication_failure(data: bytes) -> None:
    client = client_exchange(SaslCredentials("SCRAM-SHA-512", USER, PASSWORD))
    with pytest.raises(AuthenticationFailed):
        client.evaluate(data)


def test_plain_says_user_and_password() -> None:
    client = client_exchange(SaslCredentials(PLAIN, "broker", PASSWORD))
    peer = PlainServer({"broker": PASSWORD})
    assert client.evaluate(peer.evaluate(client.first())) is None
    assert peer.user == "broker"
