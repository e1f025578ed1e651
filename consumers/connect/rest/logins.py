"""Decides who may ask, if users have passwords (Kafka's BasicAuthSecurityRestExtension)."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from typing import Final

from aiohttp import BasicAuth, hdrs, web

from consumers.connect.rest.bodies import Handler, refusal

#: What other workers ask, whose requests are signed (KIP-507).
_OF_WORKERS: Final = {"POST": re.compile(r"/connectors/[^/]+/tasks/?"),
                      "PUT": re.compile(r"/connectors/[^/]+/fence/?")}  # fmt: skip


class Logins:
    """The rule of one worker."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords: Final = {
            user.encode(): password.encode() for user, password in passwords.items()
        }

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse requests without a known user and password."""
        of_workers = _OF_WORKERS.get(request.method)
        if of_workers is not None and of_workers.fullmatch(request.rel_url.raw_path):
            return await handler(request)
        if self._knows(request.headers.get(hdrs.AUTHORIZATION, "")):
            return await handler(request)
        response = refusal(401, "User cannot access the resource.")
        response.headers[hdrs.WWW_AUTHENTICATE] = "Basic"
        return response

    def _knows(self, header: str) -> bool:
        try:
            given = BasicAuth.decode(header, encoding="utf-8")
        except ValueError:
            return False
        wanted = self._passwords.get(given.login.encode("utf-8", "replace"))
        password = given.password.encode("utf-8", "replace")
        # As long for a user who does not exist.
        return hmac.compare_digest(password, wanted or b"") and wanted is not None
