"""The login of one connection, step by step."""

from __future__ import annotations

import pytest

from broker_core.errors import IllegalSaslState, UnsupportedSaslMechanism
from broker_core.security.principal import Principal
from broker_core.security.sasl import SaslAuthentication, SaslSettings
from broker_core.security.scram import AuthenticationFailed, CredentialLookup


def login(session_ms_max: int = 0) -> SaslAuthentication:
    lookup = CredentialLookup(lambda _, __: None)
    settings = SaslSettings(["PLAIN"], {"anna": "pw", "bert": "pw2"}, lookup, session_ms_max)
    return SaslAuthentication(settings)


def test_plain_lets_in_who_knows_the_password() -> None:
    sasl = login()
    sasl.handshake("PLAIN")
    assert sasl.authenticate(b"\0anna\0pw", 0) == b""
    assert sasl.principal == Principal("User", "anna")
    assert not sasl.is_expired(10**12)


@pytest.mark.parametrize(
    "token",
    [
        b"\0anna\0wrong",
        b"\0nobody\0pw",
        b"\0\0",
        b"anna\0pw",
        b"bert\0anna\0pw",
        b"\xff\0a\0b",
        b"",
    ],
)  # fmt: skip
def test_plain_refuses_everybody_else(token: bytes) -> None:
    sasl = login()
    sasl.handshake("PLAIN")
    with pytest.raises(AuthenticationFailed):
        sasl.authenticate(token, 0)
    assert sasl.principal is None


def test_a_mechanism_that_is_not_enabled_is_refused() -> None:
    with pytest.raises(UnsupportedSaslMechanism):
        login().handshake("SCRAM-SHA-256")


def test_a_token_needs_a_handshake() -> None:
    with pytest.raises(IllegalSaslState):
        login().authenticate(b"\0anna\0pw", 0)


def test_a_login_expires_and_is_renewed_by_the_same_user_only() -> None:
    sasl = login(session_ms_max=1000)
    sasl.handshake("PLAIN")
    sasl.authenticate(b"\0anna\0pw", 5000)
    assert sasl.session_lifetime_ms == 1000
    assert not sasl.is_expired(5999)
    assert sasl.is_expired(6000)
    sasl.handshake("PLAIN")
    sasl.authenticate(b"\0anna\0pw", 6500)
    assert not sasl.is_expired(7000)
    sasl.handshake("PLAIN")
    with pytest.raises(AuthenticationFailed):
        sasl.authenticate(b"\0bert\0pw2", 7000)
