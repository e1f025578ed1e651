"""Who sends a request, and what may they see?

Credentials come as Basic (user and token or password), as Bearer token, and, for apps that can do
neither, as token in the URL: in the path, or as `token`, `api_key` or `access_token`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Final, NamedTuple

from aiohttp import web

from gateway.addresses import is_loopback
from gateway.answers import Refused, unauthorized, unavailable
from gateway.auth import ANONYMOUS, AuthenticationUnavailable, Identity
from gateway.formats.values import SECRET_PARAMETERS, parameters
from gateway.permissions import may_see
from gateway.services import SERVICES
from gateway.users import DEVICE_NAME, TOKEN_PREFIX

#: Headers that are worth keeping with a message that could not be accepted.
_KEPT_HEADERS: Final = ("Content-Type", "User-Agent", "X-Limit-U", "X-Limit-D")
_HEADER_CHARACTERS_MAX: Final = 200


class Credentials(NamedTuple):
    """What somebody shows; user None for a token that stands alone."""

    user: str | None
    secret: str


def credentials_of(
    headers: Mapping[str, str], query: Mapping[str, str], path_token: str | None = None
) -> Credentials | None:
    """The credentials of a request; None if it has none. Raises Refused if they are malformed."""
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
    # Traccar's oldest apps can set nothing but the device's id.
    device = query.get("id", "")
    return Credentials(None, device) if device.startswith(TOKEN_PREFIX) else None


def _basic(value: str) -> Credentials:
    if value.startswith(TOKEN_PREFIX):
        # Overland's OwnTracks mode forgets to encode it.
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


async def verify(request: web.Request, credentials: Credentials) -> Identity:
    """The identity behind credentials. Raises Refused: 401 for wrong ones, 503 for no verdict."""
    services = request.app[SERVICES]
    authenticator, address = services.authenticator, remote_of(request)
    if not services.addresses.may_fail(address) and (
        authenticator.recall(authenticator.key_of(credentials.user, credentials.secret)) is None
    ):
        # Who is known goes on being served, whoever else guesses from the same address.
        raise Refused(429, "too many wrong credentials from your address", {"Retry-After": "60"})
    try:
        if credentials.user is None:
            identity = await services.authenticator.authenticate_token(credentials.secret)
        else:
            identity = await services.authenticator.authenticate(
                credentials.user, credentials.secret, address
            )
    except AuthenticationUnavailable as error:
        raise unavailable(str(error)) from error
    if identity is None:
        services.metrics.unauthorized += 1
        services.addresses.failed(address)
        raise unauthorized("unknown user, or wrong password or token")
    return identity


async def sender(request: web.Request, path_token: str | None = None) -> Identity:
    """Who sends; raises Refused. In open mode nobody needs to show anything."""
    services = request.app[SERVICES]
    credentials = credentials_of(request.headers, request.query, path_token)
    if credentials is not None:
        return await verify(request, credentials)
    if services.authenticator.open_mode:
        named = request.query.get("u") or request.headers.get("X-Limit-U") or ANONYMOUS
        return Identity(named if DEVICE_NAME.fullmatch(named) else ANONYMOUS)
    services.metrics.unauthorized += 1
    raise unauthorized("credentials are needed: Basic user:token, or Bearer token")


async def reader(request: web.Request) -> Identity:
    """Who reads; raises Refused. A program on this machine may do so without credentials."""
    services = request.app[SERVICES]
    credentials = credentials_of(request.headers, request.query)
    if credentials is not None:
        return await verify(request, credentials)
    if services.authenticator.open_mode or (services.local_viewer and is_local(request)):
        return Identity(ANONYMOUS, admin=True)
    services.metrics.unauthorized += 1
    raise unauthorized("credentials are needed: Basic user:token, or Bearer token")


def is_local(request: web.Request) -> bool:
    """Whether a request comes from this machine, and not through a proxy or a foreign page.

    A page of another site can make a browser's request come from here; after DNS rebinding its
    Host is that site's name.
    """
    if not is_loopback(remote_of(request)):
        return False
    if "X-Forwarded-For" in request.headers or "Forwarded" in request.headers:
        return False
    return is_loopback(_host_of(request.headers.get("Host", "")))


def remote_of(request: web.Request) -> str:
    """The address of the client, through the proxies that are trusted."""
    services = request.app[SERVICES]
    peer = services.remotes.get(request.transport) or request.remote or ""
    return services.proxies.client(peer, request.headers.get("X-Forwarded-For"))


def same_origin(request: web.Request) -> bool:
    """Whether a browser's page, if it is one that asks, came from here (RFC 6454)."""
    origin = request.headers.get("Origin")
    if origin is None:
        return True
    _, separator, authority = origin.partition("://")
    return bool(separator) and authority.lower() == request.headers.get("Host", "").lower()


def _host_of(authority: str) -> str:
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0].lower()


def require_device(identity: Identity, device: str) -> None:
    """Raises Refused unless the reader may see this device."""
    user, separator, name = device.partition("/")
    if not separator or not user or not name:
        raise Refused(404, f"{device[:200]!r} is not a device: USER%2FDEVICE is expected")
    if not may_see(identity, device):
        if user == identity.user:
            raise Refused(403, "this token is good for another device")
        raise Refused(403, "this device belongs to another user")


def parameters_without_secrets(request: web.Request) -> dict[str, str]:
    """The parameters of the URL; the values of repeated ones are joined by ";"."""
    return without_secrets(parameters(request.query.items())) if request.query_string else {}


def without_secrets(query: Mapping[str, str]) -> dict[str, str]:
    """Parameters that are no credentials."""
    return {
        name: value
        for name, value in query.items()
        if name not in SECRET_PARAMETERS and not value.startswith(TOKEN_PREFIX)
    }


def kept_headers(request: web.Request) -> dict[str, str]:
    """Headers that help to understand a message later; no credentials."""
    return kept_of(request.headers)


def kept_of(headers: Mapping[str, str]) -> dict[str, str]:
    """The same of any headers."""
    return {
        name: headers[name][:_HEADER_CHARACTERS_MAX].encode("ascii", "replace").decode()
        for name in _KEPT_HEADERS
        if name in headers
    }
