"""What a call of the client can end with."""

from __future__ import annotations


class ApiError(Exception):
    """The gateway has refused a request.

    `status` is that of HTTP: 400 for a malformed request, 401 for wrong credentials, 403 for what
    the user may not do, 404 for what is not there, 429 beyond a quota, 503 if it cannot be answered
    now.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{reason} (status {status})")
        self.status = status
        self.reason = reason


class Unreachable(Exception):
    """The gateway has not answered. What was sent may be stored nevertheless; its ids are kept by
    the positions, so that sending them again stores nothing twice.
    """
