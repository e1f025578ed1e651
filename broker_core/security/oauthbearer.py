"""OAUTHBEARER (RFC 7628, KIP-255): a client logs in with an access token."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from broker_core.security.access_tokens import AccessToken
from broker_core.security.scram import AuthenticationFailed

OAUTHBEARER: Final = "OAUTHBEARER"

# gs2-header, then key=value pairs that end with ^A, then one more ^A (section 3.1).
_INITIAL: Final = re.compile(
    rb"(?:n|y|p=[^,]*),(?:a=([^,]*))?,\x01((?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)*)\x01"
)
_BEARER: Final = re.compile(rb"[Bb]earer +([\x21-\x7e]+)")
#: The client's message after it has received the reason of a refusal (section 3.2.3).
_ACKNOWLEDGES: Final = b"\x01"
_REFUSAL: Final = b'{"status":"invalid_token"}'


class OAuthBearerServer:
    """One OAUTHBEARER exchange; see ScramServer."""

    def __init__(self, validate: Callable[[str], AccessToken]) -> None:
        self._validate = validate
        self._refused: str | None = None
        self.user: str | None = None
        #: Remaining validity of the client's token in ms.
        self.lifetime_ms = 0

    def evaluate(self, data: bytes) -> bytes:
        """Return the response to the client's next message; raises AuthenticationFailed."""
        if self._refused is not None:
            raise AuthenticationFailed(self._refused)
        if data == _ACKNOWLEDGES:
            raise AuthenticationFailed("Invalid OAUTHBEARER client first message")
        authorization, token = _parse(data)
        try:
            shown = self._validate(token)
        except AuthenticationFailed as error:
            # The mechanism first sends the error to the client, which has to acknowledge it.
            # The error itself would keep this exchange with its frame.
            self._refused = str(error)
            return _REFUSAL
        if authorization not in {"", shown.subject}:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from the token's principal name"
            )
        self.user, self.lifetime_ms = shown.subject, shown.lifetime_ms
        return b""


def _parse(data: bytes) -> tuple[str, str]:
    """Parse authorization id and token of a first message; raises AuthenticationFailed."""
    match = _INITIAL.fullmatch(data)
    if match is None:
        raise AuthenticationFailed("Invalid OAUTHBEARER client first message")
    pairs = dict(pair.split(b"=", 1) for pair in match[2].split(b"\x01") if pair)
    bearer = _BEARER.fullmatch(pairs.get(b"auth", b"").strip())
    if bearer is None:
        raise AuthenticationFailed("Invalid OAUTHBEARER client first message: 'auth' not specified")
    try:
        # RFC 5801: commas and equals signs in a name are escaped.
        name = (match[1] or b"").decode().replace("=2C", ",").replace("=3D", "=")
    except UnicodeDecodeError:
        raise AuthenticationFailed("Invalid OAUTHBEARER client first message") from None
    return name, bearer[1].decode()
