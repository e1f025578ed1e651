"""Access tokens of SASL OAUTHBEARER: signed JSON web tokens (KIP-768, `sasl.oauthbearer.*`).

Tokens without a signature (KIP-255's default) are never accepted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from broker_core.security.scram import AuthenticationFailed
from waylog.config import ConfigError

_PREFIX: Final = "sasl.oauthbearer."
_SCHEMES: Final = frozenset({"http", "https", "file"})
#: Only signatures with a key pair: whoever can verify a token cannot create one.
_ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
    "Ed25519",
)  # fmt: skip


class TokenSettings(NamedTuple):
    """A listener's requirements for tokens."""

    keys_url: str
    refresh_ms: int = 3_600_000
    retry_ms: int = 100
    retry_ms_max: int = 10_000
    audiences: tuple[str, ...] = ()
    issuer: str | None = None
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    clock_skew_s: int = 30


def token_settings(properties: Mapping[str, str]) -> TokenSettings:
    """Read the properties of a listener; raises ConfigError."""

    def text(name: str, default: str = "") -> str:
        return properties.get(_PREFIX + name, default).strip()

    def number(name: str, default: int) -> int:
        given = text(name, str(default))
        if not given.isdigit():
            raise ConfigError(f"{_PREFIX}{name}={given}: a number is expected")
        return int(given)

    url = text("jwks.endpoint.url")
    if urlsplit(url).scheme not in _SCHEMES:
        raise ConfigError(
            f"{_PREFIX}jwks.endpoint.url={url}: where the keys are that tokens are signed with is "
            "needed, https://... or file:///... of a JSON web key set"
        )
    audiences = text("expected.audience").split(",")
    defaults = TokenSettings(url)
    return TokenSettings(
        url,
        number("jwks.endpoint.refresh.ms", defaults.refresh_ms),
        number("jwks.endpoint.retry.backoff.ms", defaults.retry_ms),
        number("jwks.endpoint.retry.backoff.max.ms", defaults.retry_ms_max),
        tuple(word.strip() for word in audiences if word.strip()),
        text("expected.issuer") or None,
        text("sub.claim.name") or defaults.subject_claim,
        text("scope.claim.name") or defaults.scope_claim,
        number("clock.skew.seconds", defaults.clock_skew_s),
    )


class AccessToken(NamedTuple):
    """The subject of a valid token, and how much longer the token is valid."""

    subject: str
    lifetime_ms: int


class TokenValidator:
    """Validates tokens with the keys that `load_keys` was given last."""

    def __init__(self, settings: TokenSettings, now_s: Callable[[], float]) -> None:
        self.settings = settings
        self._now_s = now_s
        self._keys: Any = None
        self._key_ids: frozenset[str] = frozenset()
        #: Called when a token names an unknown key, since it may be a new one.
        self.on_unknown_key: Callable[[], None] = lambda: None

    def load_keys(self, document: bytes) -> int:
        """Replace the keys with those of a JSON web key set; return their number.

        Raises ValueError.
        """
        # Imported here: a broker without such listeners does not load the library.
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        try:
            keys = KeySet.import_key_set(json.loads(document))
        except (JoseError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a JSON web key set: {error}") from None
        self._keys = keys
        self._key_ids = frozenset(each.kid for each in keys.keys if each.kid is not None)
        return len(keys.keys)

    def validate(self, text: str) -> AccessToken:
        """Validate a token and return its content; raises AuthenticationFailed."""
        if self._keys is None:
            self.on_unknown_key()
            raise AuthenticationFailed("the keys that tokens are signed with are not there yet")
        from joserfc import jwt
        from joserfc.errors import JoseError

        try:
            token = jwt.decode(text, self._find_keys, algorithms=_ALGORITHMS)
            self._claims_registry().validate(token.claims)
            return self._read(token.claims)
        except AuthenticationFailed:
            raise
        except (JoseError, ValueError, TypeError, KeyError) as error:
            # The message names the problem, never the token.
            problem = getattr(error, "description", "") or type(error).__name__
            raise AuthenticationFailed(f"invalid token: {problem}") from None

    def _find_keys(self, header: Any) -> Any:
        kid = header.headers().get("kid")
        if kid is not None and kid not in self._key_ids:
            self.on_unknown_key()
            raise AuthenticationFailed("invalid token: its key is unknown")
        return self._keys

    def _claims_registry(self) -> Any:
        from joserfc.jwt import JWTClaimsRegistry

        settings = self.settings
        options: dict[str, Any] = {"exp": {"essential": True}, "iat": {"essential": True}}
        options[settings.subject_claim] = {"essential": True}
        if settings.issuer is not None:
            options["iss"] = {"essential": True, "value": settings.issuer}
        if settings.audiences:
            options["aud"] = {"essential": True, "values": list(settings.audiences)}
        return JWTClaimsRegistry(now=int(self._now_s()), leeway=settings.clock_skew_s, **options)

    def _read(self, claims: Mapping[str, Any]) -> AccessToken:
        subject = claims[self.settings.subject_claim]
        if not isinstance(subject, str) or not subject.strip():
            raise AuthenticationFailed(
                f"invalid token: its claim {self.settings.subject_claim} is no name"
            )
        if not self.settings.audiences and "aud" in claims:
            # The token is for an audience that this listener is not configured as.
            raise AuthenticationFailed("invalid token: it has an audience, and none is expected")
        scope = claims.get(self.settings.scope_claim, "")
        if not isinstance(scope, str | list):
            raise AuthenticationFailed(
                f"invalid token: its claim {self.settings.scope_claim} is neither text nor a list"
            )
        return AccessToken(subject, max(int((claims["exp"] - self._now_s()) * 1000), 0))
