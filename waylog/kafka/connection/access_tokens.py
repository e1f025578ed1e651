"""Access tokens from an authorization server, by the client credentials grant (RFC 6749, 4.4)."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Final

from waylog.kafka.connection.sasl import LoginRefused, readable

_TIMEOUT_S: Final = 10.0
_ANSWER_BYTES_MAX: Final = 256 * 1024
#: A token is used for this share of its life, so that it is valid when the broker looks at it.
_USED_SHARE: Final = 0.8


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """Where tokens come from, and the credentials of this client there."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    tls: ssl.SSLContext | None = field(default=None, repr=False)


class TokenSource:
    """Gets a token when the last one is used up; for one event loop."""

    def __init__(self, endpoint: TokenEndpoint) -> None:
        self._endpoint = endpoint
        self._asking = asyncio.Lock()
        self._token = ""
        self._until = 0.0

    async def token(self) -> str:
        """Return a token that is still valid for a while; raises LoginRefused, OSError."""
        async with self._asking:
            if not self._token or time.monotonic() >= self._until:
                loop = asyncio.get_running_loop()
                began = time.monotonic()
                # A thread, since a name may have to be resolved and urllib waits for its sockets.
                self._token, lifetime_s = await loop.run_in_executor(None, fetch, self._endpoint)
                self._until = began + _USED_SHARE * lifetime_s
            return self._token


def fetch(endpoint: TokenEndpoint) -> tuple[str, float]:
    """Ask for a token; return it and its seconds of life. Raises LoginRefused, OSError."""
    form = {"grant_type": "client_credentials"} | (
        {"scope": endpoint.scope} if endpoint.scope else {}
    )
    login = base64.b64encode(f"{endpoint.client_id}:{endpoint.client_secret}".encode()).decode()
    request = urllib.request.Request(  # noqa: S310  the scheme was checked with the properties
        endpoint.url,
        urllib.parse.urlencode(form).encode(),
        {
            "Authorization": f"Basic {login}",
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        },
    )
    host = urllib.parse.urlsplit(endpoint.url).netloc.rpartition("@")[2]
    try:
        with urllib.request.urlopen(  # noqa: S310  as above
            request, timeout=_TIMEOUT_S, context=endpoint.tls
        ) as answer:
            body = answer.read(_ANSWER_BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        # The body of a refusal may repeat the request, with its secret.
        with error:
            raise LoginRefused(f"{host} gives no access token: HTTP {error.code}") from None
    except urllib.error.URLError as error:
        raise ConnectionError(f"{host} gives no access token: {error.reason}") from None
    except HTTPException as error:
        why = f"no HTTP ({type(error).__name__})"
        raise ConnectionError(f"{host} gives no access token: {why}") from None
    return _parsed(body, host)


def _parsed(body: bytes, host: str) -> tuple[str, float]:
    try:
        answer = json.loads(body[:_ANSWER_BYTES_MAX])
        token, lifetime_s = answer["access_token"], answer.get("expires_in", 0)
        if not isinstance(token, str) or not isinstance(lifetime_s, int | float):
            raise TypeError
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise LoginRefused(f"{readable(host)} gives no access token that can be read") from None
    return token, float(lifetime_s)
