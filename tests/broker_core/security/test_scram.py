"""The SCRAM server: the example of RFC 7677, and clients that cheat."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.security.scram import (
    BY_NAME,
    SCRAM_MECHANISMS,
    AuthenticationFailed,
    CredentialLookup,
    ScramCredential,
    ScramMechanism,
    ScramServer,
    credential_from_password,
    credential_from_salted,
)

SHA256 = BY_NAME["SCRAM-SHA-256"]
#: Example of RFC 7677, section 3.
RFC_CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
RFC_SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
RFC_CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
RFC_SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def rfc_server() -> ScramServer:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    credential = credential_from_salted(SHA256, salted, salt, 4096)
    users = {"user": credential}
    lookup = CredentialLookup(lambda _, user: users.get(user))
    return ScramServer(SHA256, lookup, lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")


def client_final(
    mechanism: ScramMechanism, password: str, first: bytes, server_first: bytes, nonce: str = ""
) -> bytes:
    """Return the last message of a client that knows the password."""
    fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
    salted = hashlib.pbkdf2_hmac(
        mechanism.digest, password.encode(), base64.b64decode(fields["s"]), int(fields["i"])
    )
    header, bare = first[: first.index(b"n=")], first[first.index(b"n=") :]
    without_proof = f"c={base64.b64encode(header).decode()},r={nonce or fields['r']}"
    message = b",".join([bare, server_first, without_proof.encode()])
    client_key = hmac.digest(salted, b"Client Key", mechanism.digest)
    stored_key = hashlib.new(mechanism.digest, client_key).digest()
    signature = hmac.digest(stored_key, message, mechanism.digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def server_of(users: dict[str, ScramCredential], mechanism: ScramMechanism = SHA256) -> ScramServer:
    return ScramServer(mechanism, CredentialLookup(lambda _, user: users.get(user)))


def test_the_exchange_of_the_rfc() -> None:
    server = rfc_server()
    assert server.evaluate(RFC_CLIENT_FIRST) == RFC_SERVER_FIRST
    assert server.evaluate(RFC_CLIENT_FINAL) == RFC_SERVER_FINAL
    assert server.user == "user"


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS, ids=lambda each: each.name)
@pytest.mark.parametrize("user", ["anna", "a,b=c", "äß→"])
def test_a_client_with_the_password_comes_in(mechanism: ScramMechanism, user: str) -> None:
    server = server_of({user: credential_from_password(mechanism, "pässword")}, mechanism)
    name = user.replace("=", "=3D").replace(",", "=2C")
    first = f"n,,n={name},r=abc".encode()
    answer = server.evaluate(first)
    assert server.evaluate(client_final(mechanism, "pässword", first, answer)).startswith(b"v=")
    assert server.user == user


def test_a_wrong_password_and_an_unknown_user_look_the_same() -> None:
    users = {"anna": credential_from_password(SHA256, "right")}
    said = []
    for user in ("anna", "nobody"):
        server = server_of(users)
        first = f"n,,n={user},r=abc".encode()
        answer = server.evaluate(first)
        fields = dict(part.split("=", 1) for part in answer.decode().split(","))
        assert fields["i"] == "4096"
        assert len(base64.b64decode(fields["s"])) == 24
        with pytest.raises(AuthenticationFailed) as raised:
            server.evaluate(client_final(SHA256, "wrong", first, answer))
        said.append(str(raised.value))
        assert server.user is None
    assert said[0] == said[1]


def test_an_unknown_user_has_the_same_salt_every_time() -> None:
    lookup = CredentialLookup(lambda _, __: None)
    assert lookup.find(SHA256, "x")[0] == lookup.find(SHA256, "x")[0]
    assert lookup.find(SHA256, "x")[0].salt != lookup.find(SHA256, "y")[0].salt


def test_the_nonce_of_the_last_message_is_compared() -> None:
    users = {"anna": credential_from_password(SHA256, "right")}
    server = server_of(users)
    first = b"n,,n=anna,r=abc"
    answer = server.evaluate(first)
    with pytest.raises(AuthenticationFailed):
        server.evaluate(client_final(SHA256, "right", first, answer, nonce="abcdef"))


@pytest.mark.parametrize(
    "first",
    [
        b"", b"n,,", b"n,,n=,r=x", b"p=tls-unique,,n=a,r=x", b"n,,n=a", b"n,a=other,n=anna,r=x",
        b"n,,n=a=b,r=x", b"\xff", b"n,,n=anna,r=x,tokenauth=true", b"n,,m=x,n=anna,r=x",
    ],
)  # fmt: skip
def test_a_first_message_that_is_wrong_is_refused(first: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        server_of({"anna": credential_from_password(SHA256, "x")}).evaluate(first)


def test_nothing_follows_the_end_of_an_exchange() -> None:
    server = rfc_server()
    server.evaluate(RFC_CLIENT_FIRST)
    server.evaluate(RFC_CLIENT_FINAL)
    with pytest.raises(AuthenticationFailed):
        server.evaluate(RFC_CLIENT_FINAL)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_bytes_never_let_anybody_in(first: bytes, second: bytes) -> None:
    server = rfc_server()
    for data in (first, second, RFC_CLIENT_FIRST, second):
        try:
            server.evaluate(data)
        except AuthenticationFailed:
            continue
    assert server.user is None
