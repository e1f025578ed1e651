"""The client's side of SASL against the broker's, and against what no broker says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.security.access_tokens import AccessToken
from broker_core.security.oauthbearer import OAuthBearerServer
from broker_core.security.sasl import PlainServer
from broker_core.security.scram import (
    SCRAM_MECHANISMS,
    AuthenticationFailed,
    CredentialLookup,
    ScramMechanism,
    ScramServer,
    credential_from_password,
)
from waylog.kafka.connection.sasl import (
    PLAIN,
    BearerClient,
    LoginRefused,
    SaslCredentials,
    ScramClient,
    client_exchange,
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
    with pytest.raises(LoginRefused):
        client.evaluate(b"v=AAAA")


def test_the_exchange_of_rfc_7677() -> None:
    client = ScramClient(
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
def test_nonsense_of_the_server_is_a_refused_login(data: bytes) -> None:
    client = client_exchange(SaslCredentials("SCRAM-SHA-512", USER, PASSWORD))
    with pytest.raises(LoginRefused):
        client.evaluate(data)


def test_plain_says_user_and_password() -> None:
    client = client_exchange(SaslCredentials(PLAIN, "broker", PASSWORD))
    peer = PlainServer({"broker": PASSWORD})
    assert client.evaluate(peer.evaluate(client.first())) is None
    assert peer.user == "broker"


@given(st.data())
def test_a_scram_message_that_was_changed_or_cut_is_a_refused_login(data: st.DataObject) -> None:
    client = client_exchange(SaslCredentials("SCRAM-SHA-256", USER, PASSWORD))
    message = bytearray(server(SCRAM_MECHANISMS[0]).evaluate(client.first()))
    position = data.draw(st.integers(0, len(message) - 1))
    if data.draw(st.booleans()):
        del message[position:]
    else:
        message[position] ^= data.draw(st.integers(1, 255))
    # Another salt or number of iterations is noticed by the signature at the end.
    with pytest.raises(LoginRefused):
        if client.evaluate(bytes(message)) is not None:
            client.evaluate(b"v=AAAA")


@pytest.mark.parametrize("iterations", ["1", "4095", "1000001", "999999999"])
def test_a_server_does_not_choose_how_long_a_password_is_salted(iterations: str) -> None:
    client = ScramClient(SaslCredentials("SCRAM-SHA-256", USER, PASSWORD), lambda: "abc")
    with pytest.raises(LoginRefused, match=f"wants {iterations} iterations"):
        client.evaluate(f"r=abcdef,s=c2FsdA==,i={iterations}".encode())


def valid_token(token: str) -> AccessToken:
    if token != "right":
        raise AuthenticationFailed("invalid token")
    return AccessToken("anna", 60_000)


def test_a_token_and_its_extensions_are_sent_as_the_broker_reads_them() -> None:
    peer = OAuthBearerServer(valid_token)
    client = BearerClient("right", {"logicalCluster": "one"})
    assert client.evaluate(peer.evaluate(client.first())) is None
    assert peer.user == "anna"


def test_a_refused_token_ends_the_exchange_with_the_brokers_reason() -> None:
    peer = OAuthBearerServer(valid_token)
    client = BearerClient("wrong")
    last = client.evaluate(peer.evaluate(client.first()))
    assert last == b"\x01"
    with pytest.raises(AuthenticationFailed):
        peer.evaluate(last)
    with pytest.raises(LoginRefused, match="invalid_token"):
        client.evaluate(b"")


@given(st.binary(min_size=1, max_size=80))
def test_whatever_a_server_says_of_a_token_ends_in_a_refused_login(data: bytes) -> None:
    client = BearerClient("token")
    assert client.evaluate(data) == b"\x01"
    with pytest.raises(LoginRefused) as refused:
        client.evaluate(b"")
    assert str(refused.value).isprintable()


def test_a_token_that_would_add_members_to_the_message_is_not_sent() -> None:
    with pytest.raises(LoginRefused) as refused:
        BearerClient("secret\x01auth=Bearer other")
    assert "secret" not in str(refused.value)


def test_credentials_do_not_show_their_password() -> None:
    assert "pass word" not in repr(SaslCredentials(PLAIN, USER, PASSWORD))
