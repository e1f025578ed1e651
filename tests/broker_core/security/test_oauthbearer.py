"""Logins with access tokens: valid tokens, refused tokens, and the client's error message."""

from __future__ import annotations

import base64
import gc
import json
import time
import weakref
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.security.access_tokens import AccessToken, TokenValidator, token_settings
from broker_core.security.oauthbearer import OAuthBearerServer
from broker_core.security.sasl import SaslAuthentication, SaslSettings
from broker_core.security.scram import AuthenticationFailed, CredentialLookup
from tests.broker_core.security.tokens import TokenMint, first_message
from waylog.config import ConfigError

URL = "sasl.oauthbearer.jwks.endpoint.url"


@pytest.fixture(scope="module")
def mint() -> TokenMint:
    return TokenMint()


def validator(mint: TokenMint, **properties: str) -> TokenValidator:
    given = {URL: "file:///keys"} | {
        f"sasl.oauthbearer.{name.replace('_', '.')}": value for name, value in properties.items()
    }
    made = TokenValidator(token_settings(given), time.time)
    made.load_keys(mint.key_set())
    return made


@pytest.mark.parametrize("kind", ["RS256", "PS512", "ES256"])
def test_a_signed_token_says_who_it_is(kind: str) -> None:
    own = TokenMint(kind)
    shown = validator(own).validate(own.token("anna"))
    assert shown.subject == "anna"
    assert 55_000 < shown.lifetime_ms <= 60_000


@pytest.mark.parametrize(
    ("claims", "problem"),
    [
        ({"exp": None}, "exp"),
        ({"iat": None}, "iat"),
        ({"sub": None}, "sub"),
        ({"sub": "  "}, "is no name"),
        ({"sub": 7}, "sub"),
        ({"aud": "others"}, "audience"),
        ({"scope": 7}, "scope"),
    ],
)
def test_a_token_that_does_not_hold_is_refused(
    mint: TokenMint, claims: dict[str, Any], problem: str
) -> None:
    with pytest.raises(AuthenticationFailed, match=problem):
        validator(mint).validate(mint.token(**claims))


@pytest.mark.parametrize(
    ("claim", "from_now_s", "problem"),
    [("exp", -100, "expired"), ("iat", 100, "future"), ("nbf", 100, "not yet valid")],
)
def test_a_token_of_another_time_is_refused(
    mint: TokenMint, claim: str, from_now_s: int, problem: str
) -> None:
    claims: dict[str, Any] = {claim: int(time.time()) + from_now_s}
    with pytest.raises(AuthenticationFailed, match=problem):
        validator(mint).validate(mint.token(**claims))


def test_issuer_audience_and_claims_are_what_the_settings_say(mint: TokenMint) -> None:
    strict = validator(
        mint,
        expected_issuer="https://id",
        expected_audience="kafka, waylog",
        sub_claim_name="name",
        scope_claim_name="scp",
    )
    right: dict[str, Any] = {
        "iss": "https://id",
        "aud": ["waylog", "x"],
        "name": "bert",
        "scp": ["a"],
    }
    assert strict.validate(mint.token(**right)).subject == "bert"
    for wrong in ({"iss": "https://evil"}, {"aud": "x"}, {"name": None}, {"scp": 1}):
        with pytest.raises(AuthenticationFailed):
            strict.validate(mint.token(**right | wrong))


def test_who_only_has_the_public_key_makes_no_token(mint: TokenMint) -> None:
    """Neither without a signature nor with the public key used as a shared secret."""
    checked = validator(mint)
    public = json.loads(mint.key_set())["keys"][0]
    body = mint.token().split(".")[1]
    for header in ({"alg": "none"}, {"alg": "HS256", "kid": public["kid"]}):
        head = base64.urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=").decode()
        with pytest.raises(AuthenticationFailed, match="invalid token"):
            checked.validate(f"{head}.{body}.")
    with pytest.raises(AuthenticationFailed):
        checked.validate(TokenMint().token())


def test_a_new_key_is_asked_for_once_it_is_seen(mint: TokenMint) -> None:
    own = TokenMint()
    checked = validator(own)
    asked: list[bool] = []
    checked.on_unknown_key = lambda: asked.append(True)
    own.new_key()
    with pytest.raises(AuthenticationFailed, match="its key is unknown"):
        checked.validate(own.token())
    assert asked == [True]
    checked.load_keys(own.key_set())
    assert checked.validate(own.token()).subject == "anna"


@pytest.mark.parametrize("document", [b"", b"{}", b"[]", b'{"keys": [{"kty": "odd"}]}', b"\xff"])
def test_what_is_no_key_set_leaves_the_keys_as_they_are(mint: TokenMint, document: bytes) -> None:
    checked = validator(mint)
    with pytest.raises(ValueError, match="not a JSON web key set"):
        checked.load_keys(document)
    assert checked.validate(mint.token()).subject == "anna"


def test_a_refused_client_is_told_in_the_way_of_the_mechanism(mint: TokenMint) -> None:
    exchange = OAuthBearerServer(validator(mint).validate)
    told = exchange.evaluate(first_message("nonsense"))
    assert json.loads(told) == {"status": "invalid_token"}
    assert exchange.user is None
    with pytest.raises(AuthenticationFailed, match="invalid token"):
        exchange.evaluate(b"\x01")


def test_a_refused_exchange_is_given_back_at_once(mint: TokenMint) -> None:
    exchange = OAuthBearerServer(validator(mint).validate)
    exchange.evaluate(first_message("nonsense"))
    with suppress(AuthenticationFailed):
        exchange.evaluate(b"\x01")
    left = weakref.ref(exchange)
    gc.disable()
    try:
        del exchange
        assert left() is None
    finally:
        gc.enable()


def test_a_name_to_act_as_must_be_the_tokens_own(mint: TokenMint) -> None:
    check = validator(mint).validate
    exchange = OAuthBearerServer(check)
    assert exchange.evaluate(first_message(mint.token("anna"), "anna", traceId="1")) == b""
    assert exchange.user == "anna"
    with pytest.raises(AuthenticationFailed, match="authorization id"):
        OAuthBearerServer(check).evaluate(first_message(mint.token("anna"), "bert"))


@pytest.mark.parametrize(
    "message",
    [b"", b"\x01", b"n,,\x01\x01", b"n,,\x01auth=Basic x\x01\x01", b"n,,\x01auth=Bearer x\x01",
     b"auth=Bearer x", b"n,a=\xff,\x01auth=Bearer x\x01\x01"],
)  # fmt: skip
def test_a_first_message_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed, match="OAUTHBEARER client first message"):
        OAuthBearerServer(lambda token: AccessToken(token, 1)).evaluate(message)


@given(st.binary(max_size=200))
def test_no_message_does_anything_else_than_fail(message: bytes) -> None:
    exchange = OAuthBearerServer(lambda token: AccessToken(token, 1))
    try:
        exchange.evaluate(message)
    except AuthenticationFailed:
        assert exchange.user is None


def test_a_session_ends_with_its_token(mint: TokenMint) -> None:
    def log_in(session_ms_max: int) -> SaslAuthentication:
        settings = SaslSettings(
            ["OAUTHBEARER"], {}, CredentialLookup(lambda mechanism, user: None), session_ms_max,
            validator(mint).validate,
        )  # fmt: skip
        sasl = SaslAuthentication(settings)
        sasl.handshake("OAUTHBEARER")
        sasl.authenticate(first_message(mint.token(lifetime_s=60)), 1_000)
        return sasl

    assert log_in(0).expires_ms is None  # as in Kafka: only if sessions are limited at all
    assert log_in(10_000).expires_ms == 11_000
    limited = log_in(3_600_000)
    assert 50_000 < limited.session_lifetime_ms <= 60_000
    assert limited.expires_ms == 1_000 + limited.session_lifetime_ms


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {URL: "keys.json"},
        {URL: "ftp://x"},
        {URL: "file:///k", "sasl.oauthbearer.clock.skew.seconds": "x"},
    ],
)
def test_a_listener_without_a_way_to_check_tokens_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer"):
        token_settings(properties)
