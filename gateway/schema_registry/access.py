"""Rights of the registry: users read, administrators write; with --open everybody does both."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from gateway.http.requests.authentication import credentials_of
from gateway.http.requests.responses import Refused
from gateway.limits.failed_logins import TooManyFailedLogins
from gateway.schema_registry.errors import RegistryError
from gateway.users.auth import AuthenticationUnavailable, Authenticator, Identity
from waylog.network.served_hosts import ServedHosts
from waylog.observability.metrics_token import is_metrics_token, shown_secret

_NEEDED: Final = "User cannot be authenticated: Basic user:token, or Bearer token, is needed"


class Access:
    """Checks the credentials of each request."""

    def __init__(
        self, authenticator: Authenticator, hosts: ServedHosts, metrics_token: str | None = None
    ) -> None:
        """`hosts` are the names by which the listener may be asked.

        `metrics_token` reads the counts, and nothing else.
        """
        self._authenticator: Final = authenticator
        self._hosts: Final = hosts
        self._metrics_token: Final = metrics_token

    async def check_metrics(self, request: web.Request) -> None:
        """Raise RegistryError unless the counts may be read: by administrators, or the token."""
        secret = shown_secret(request.headers.get("Authorization", ""))
        if not is_metrics_token(secret, self._metrics_token):
            await self.check(request, changes=True)
        else:
            self._check_names(request)

    async def check(self, request: web.Request, *, changes: bool) -> str:
        """Return who asks: the user, or the address of somebody who needs no login.

        `changes` tells whether the request writes. Raises RegistryError unless it is allowed.
        """
        self._check_names(request)
        if self._authenticator.open_mode:
            return f"address {request.remote}"
        identity = await self._identity(request)
        if identity is None:
            raise RegistryError(40101, _NEEDED)
        if identity.device is not None:
            raise RegistryError(40301, "a device's token is good for fixes alone")
        if changes and not identity.admin:
            raise RegistryError(
                40301, "User is denied operation: administrators write (waylog user add --admin)"
            )
        return f"user {identity.user}"

    def _check_names(self, request: web.Request) -> None:
        if not self._hosts.serves(request.headers.get("Host", "")):
            # A page of another site that has its name point here (DNS rebinding).
            raise RegistryError(421, "this registry is not known by that name (--host)")
        if "Origin" in request.headers:
            raise RegistryError(403, "requests of web pages are not served")

    async def _identity(self, request: web.Request) -> Identity | None:
        try:
            credentials = credentials_of(request.headers, {})
        except Refused as error:
            raise RegistryError(40101, str(error)) from error
        if credentials is None:
            return None
        address = request.remote or ""
        try:
            if credentials.user is None:
                return await self._authenticator.authenticate_token(credentials.secret, address)
            return await self._authenticator.authenticate(
                credentials.user, credentials.secret, address
            )
        except AuthenticationUnavailable as error:
            raise RegistryError(50303, str(error)) from error
        except TooManyFailedLogins as error:
            raise RegistryError(429, str(error)) from error
