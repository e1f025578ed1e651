"""Authentication of requests: without credentials a request has no identity, even from localhost.

Credentials come as Basic (user and token or password), as Bearer token, and, for apps that can do
neither, as a token in the URL: in the path, or as `token`, `api_key` or `access_token`. A browser
may have a session instead (gateway.users.browser_sessions), which can read but cannot send fixes.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Final, NamedTuple

from aiohttp import web

from gateway.formats.values import SECRET_PARAMETERS, parameters
from gateway.http.requests.browsers import is_of_other_site, session_of
from gateway.http.requests.responses import Refused, unauthorized, unavailable
from gateway.http.requests.services import SERVICES
from gateway.limits.addresses import TrustedProxies, is_loopback
from gateway.limits.failed_logins import TooManyFailedLogins
from gateway.limits.turn_clock import STRANGER, Asker
from gateway.users.auth import (
    ANONYMOUS,
    AuthenticationUnavailable,
    Authenticator,
    Identity,
    is_utf8,
)
from gateway.users.database import DEVICE_NAME, TOKEN_PREFIX
from gateway.users.permissions import may_see
from waylog.network.peer_parties import party_of

#: Headers that are stored with a message that could not be accepted.
_KEPT_HEADERS: Final = ("Content-Type", "User-Agent", "X-Limit-U", "X-Limit-D")
_HEADER_CHARACTERS_MAX: Final = 200

#: The header with the token of a share.
SHARE_HEADER: Final = "Waylog-Share"

#: Whose work the handler of a request does.
ASKER: Final = web.RequestKey("asker", Asker)

_CREDENTIALS_NEEDED: Final = "credentials are needed: Basic user:token, or Bearer token"


class Credentials(NamedTuple):
    """The secret in a request; `user` is None for a token without a user name."""

    user: str | None
    secret: str


def credentials_of(
    headers: Mapping[str, str], query: Mapping[str, str], path_token: str | None = None
) -> Credentials | None:
    """Return the credentials of a request, or None. Raises Refused if they are malformed."""
    authorization = headers.get("Authorization")
    if authorization:
        scheme, _, value = authorization.partition(" ")
        value = value.strip()
        if scheme.lower() == "bearer" and value:
            return Credentials(None, value)
        if scheme.lower() == "basic" and value:
            return _basic(value)
        raise unauthorized("Authorization must be Basic or Bearer")
    if path_token:
        return Credentials(None, path_token)
    for name in ("token", "api_key", "access_token"):
        token = query.get(name)
        if token:
            return Credentials(None, token)
    # Traccar's oldest apps can be configured with nothing but the device's id.
    device = query.get("id", "")
    return Credentials(None, device) if device.startswith(TOKEN_PREFIX) else None


def _basic(value: str) -> Credentials:
    if value.startswith(TOKEN_PREFIX):
        # Overland's OwnTracks mode does not encode it.
        return Credentials(None, value.partition(":")[0])
    try:
        decoded = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise unauthorized("Basic credentials are not base64 of user:token") from error
    user, separator, secret = decoded.partition(":")
    if not separator:
        raise unauthorized("Basic credentials are not base64 of user:token")
    if not secret and user.startswith(TOKEN_PREFIX):
        return Credentials(None, user)
    return Credentials(user or None, secret)


def shown_credentials(request: web.Request, path_token: str | None = None) -> Credentials | None:
    """Return the credentials of a request, or None. Raises Refused."""
    credentials = credentials_of(request.headers, request.query, path_token)
    if "Authorization" in request.headers and is_of_other_site(request):
        # No foreign page can set this header: the browser sent it from an earlier Basic prompt.
        raise Refused(403, "a page of another site may not do that for you")
    return credentials


async def verify(
    request: web.Request,
    credentials: Credentials,
    party: str | None = None,
    *,
    first_factor: bool = False,
) -> Identity:
    """Return the identity that credentials belong to.

    Raises Refused: 401 for wrong credentials, 429 for too many wrong ones, 503 if they cannot be
    checked. Wrong ones count for `party`, or for the address of the client if that is None. With
    `first_factor` the caller asks for a second one, where the user has one.
    """
    services = request.app[SERVICES]
    address = remote_of(request) if party is None else party
    try:
        if credentials.user is None:
            identity = await services.authenticator.authenticate_token(credentials.secret, address)
        else:
            identity = await services.authenticator.authenticate(
                *(credentials.user, credentials.secret, address), first_factor=first_factor
            )
    except AuthenticationUnavailable as error:
        raise unavailable(str(error)) from error
    except TooManyFailedLogins as error:
        raise Refused(429, str(error), {"Retry-After": error.retry_after}) from error
    if identity is None:
        services.metrics.unauthorized += 1
        raise unauthorized("unknown user, or wrong password or token")
    _charge(request, identity)
    return identity


def _charge(request: web.Request, identity: Identity) -> None:
    """Charge the rest of the work of a request to its user, and no longer to a stranger."""
    asker = request.get(ASKER)
    if asker is not None:
        asker.party = identity.user


async def sender(request: web.Request, path_token: str | None = None) -> Identity:
    """Return the identity of a sender. Raises Refused. Open mode needs no credentials."""
    services = request.app[SERVICES]
    credentials = shown_credentials(request, path_token)
    if credentials is not None:
        return await verify(request, credentials)
    if services.authenticator.open_mode:
        named = request.query.get("u") or header_text(request.headers, "X-Limit-U") or ANONYMOUS
        return Identity(named if DEVICE_NAME.fullmatch(named) else ANONYMOUS)
    raise _nobody(request, _CREDENTIALS_NEEDED)


async def reader(request: web.Request) -> Identity:
    """Return the identity of a reader, from credentials or a browser's session. Raises Refused."""
    services = request.app[SERVICES]
    credentials = shown_credentials(request)
    if credentials is not None:
        return await verify(request, credentials)
    if services.authenticator.open_mode:
        return Identity(ANONYMOUS, admin=True)
    identity = session_of(request)
    if identity is None:
        raise _nobody(request, _CREDENTIALS_NEEDED)
    _charge(request, identity)
    return identity


async def known_user(request: web.Request, reason: str, *, by_session: bool = False) -> Identity:
    """Return the identity of a user, which is required even in open mode. Raises Refused.

    A session is accepted only with `by_session`. `reason` is the text of a refusal for lack of
    credentials.
    """
    credentials = shown_credentials(request)
    if credentials is not None:
        return await verify(request, credentials)
    identity = session_of(request) if by_session else None
    if identity is None:
        raise _nobody(request, reason)
    _charge(request, identity)
    return identity


def share_viewer(request: web.Request) -> Identity:
    """Return the identity of somebody who has the link of a share. Raises Refused.

    Its token is in a header that no page of another site can send. What has ended is answered like
    what never was.
    """
    services = request.app[SERVICES]
    if is_of_other_site(request):
        raise Refused(403, "a page of another site may not do that for you")
    address = remote_of(request)
    try:
        # A right token is found whatever its address has guessed: it cannot be guessed.
        token = request.headers.get(SHARE_HEADER, "")
        identity = services.authenticator.authenticate_share(token) if token else None
        if identity is None:
            services.failed_logins.wrong(address)
    except AuthenticationUnavailable as error:
        raise unavailable(str(error)) from error
    except TooManyFailedLogins as error:
        raise Refused(429, str(error), {"Retry-After": error.retry_after}) from error
    if identity is None:
        services.metrics.unauthorized += 1
        raise Refused(404, "there is no such share, or it has ended")
    _charge(request, identity)
    return identity


async def reader_or_share_viewer(request: web.Request) -> Identity:
    """Return the identity of a reader, or of somebody who has the link of a share."""
    return share_viewer(request) if SHARE_HEADER in request.headers else await reader(request)


async def require_metrics_access(request: web.Request) -> None:
    """Raise Refused unless the request may see the state of the whole platform."""
    access = request.app[SERVICES].metrics_access
    if access.audience == "public":
        return
    credentials = shown_credentials(request)
    if credentials is not None and access.is_token(credentials.secret):
        return
    identity = await reader(request)
    if access.audience == "admin" and not identity.admin:
        raise Refused(403, "this is for administrators (--metrics-access)")


def _nobody(request: web.Request, reason: str) -> Refused:
    request.app[SERVICES].metrics.unauthorized += 1
    return unauthorized(reason)


def remote_of(request: web.Request) -> str:
    """Return the address of the client, as seen through trusted proxies."""
    services = request.app[SERVICES]
    peer = services.remotes.get(request.transport) or request.remote or ""
    return services.proxies.client(peer, request.headers.get("X-Forwarded-For"))


def stranger_party(address: str, proxies: TrustedProxies, connection: object) -> str:
    """Return the party of somebody at an address who has not signed in.

    Behind a proxy anybody may be, so each connection of one is a party, as are those of this
    machine.
    """
    if is_loopback(address) or address in proxies:
        return f"{STRANGER}{address} {id(connection)}"
    return STRANGER + party_of(address)


def party_at_first(request: web.Request) -> str:
    """Return the user, if it is known without a question, else a stranger's party."""
    services = request.app[SERVICES]
    token = request.match_info.get("token")
    try:
        credentials = credentials_of(request.headers, request.query, token)
    except Refused:
        credentials = None
    user = None if credentials is None else known_user_of(credentials, services.authenticator)
    return user or stranger_of(request)


def stranger_of(request: web.Request) -> str:
    """Return the party of a request whose sender has not signed in."""
    transport = request.transport
    connection = request.protocol if transport is None else transport.get_protocol()
    return stranger_party(remote_of(request), request.app[SERVICES].proxies, connection)


def known_user_of(credentials: Credentials, authenticator: Authenticator) -> str | None:
    """Return whose credentials these are, if they have been verified recently."""
    if authenticator.open_mode:
        return credentials.user
    identity = authenticator.recall(authenticator.key_of(credentials.user, credentials.secret))
    return None if identity is None else identity.user


def require_device(identity: Identity, device: str) -> None:
    """Raise Refused unless the reader may see this device."""
    user, separator, name = device.partition("/")
    if not separator or not user or not name:
        raise Refused(404, f"{device[:200]!r} is not a device: USER%2FDEVICE is expected")
    if not may_see(identity, device):
        if user == identity.user:
            raise Refused(403, "this token is good for another device")
        raise Refused(403, "this device belongs to another user")


def parameters_without_secrets(request: web.Request) -> dict[str, str]:
    """Return the parameters of the URL without credentials; repeated values are joined by ";"."""
    return without_secrets(parameters(request.query.items())) if request.query_string else {}


def without_secrets(query: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters that are not credentials."""
    return {
        name: value
        for name, value in query.items()
        if name not in SECRET_PARAMETERS and not value.startswith(TOKEN_PREFIX)
    }


def header_text(headers: Mapping[str, str], name: str) -> str | None:
    """Return a header as text; bytes that are not UTF-8 are decoded as Latin-1, as in old HTTP."""
    value = headers.get(name)
    if value is None or is_utf8(value):
        return value
    return value.encode("utf-8", "surrogateescape").decode("latin-1")


def kept_headers(request: web.Request) -> dict[str, str]:
    """Return the headers that help to understand a message later, without credentials."""
    return kept_of(request.headers)


def kept_of(headers: Mapping[str, str]) -> dict[str, str]:
    """Return those of `headers` that are stored with a rejected message."""
    return {
        name: headers[name][:_HEADER_CHARACTERS_MAX].encode("ascii", "replace").decode()
        for name in _KEPT_HEADERS
        if name in headers
    }
