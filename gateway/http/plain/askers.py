"""Finds out who asks, before a request is parsed: by the credentials in its head."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

from gateway.http.plain.request_head import HEAD_BYTES_MAX
from gateway.http.requests.authentication import Credentials, credentials_of, known_user_of
from gateway.http.requests.responses import Refused
from gateway.users.auth import Authenticator

#: The beginning of a request, whoever serves it, and the credentials in its head.
_REQUEST: Final = re.compile(rb"[A-Z]+ [^ \r\n]+ HTTP/1\.[01]\r\n")
_CREDENTIALS: Final = re.compile(rb"\r\nauthorization:[ \t]*([^\r\n]+)", re.IGNORECASE)


def begins_request(data: bytes) -> bool:
    """Tell whether a request begins with this data."""
    return _REQUEST.match(data) is not None


class Askers:
    """Finds who asks on one connection, where most requests have the credentials of the last."""

    __slots__ = ("_authenticator", "_credentials", "_shown", "_stranger")

    def __init__(self, authenticator: Authenticator, stranger: str) -> None:
        """`stranger` is the party of whoever is not known."""
        self._authenticator = authenticator
        self._stranger = stranger
        self._shown = b""
        self._credentials: Credentials | None = None

    def of(self, data: bytes) -> str:
        """Return the user whose request begins with this data.

        It is the stranger if no request begins here, or if its credentials have not been verified
        recently.
        """
        found = _CREDENTIALS.search(data, 0, HEAD_BYTES_MAX) if begins_request(data) else None
        if found is None:
            return self._stranger
        if found[1] != self._shown:
            self._shown, self._credentials = found[1], None
            with suppress(Refused):
                self._credentials = credentials_of(
                    {"Authorization": found[1].decode("latin-1")}, {}
                )
        if self._credentials is None:
            return self._stranger
        return known_user_of(self._credentials, self._authenticator) or self._stranger
