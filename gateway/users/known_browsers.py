"""Browsers in which a user has signed in before: nobody's guesses keep them out.

Each gets a device cookie (OWASP, "Slow Down Online Guessing Attacks with Device Cookies"): a keyed
hash of the user and of the user's present password hash, so that a new password ends them all.
Passwords that come with it are counted, and wait their turn, apart from those of everybody else.
All browsers of a user are one party, so that whoever takes such a cookie away guesses no faster
than any other address does.
"""

from __future__ import annotations

import hmac
import logging
import sqlite3
from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway.users.database import UserStore

logger = logging.getLogger(__name__)

_SECRET: Final = "known browsers"  # noqa: S105 the secret's name
#: The longest that browsers keep a cookie (RFC 6265bis, section 5.5).
LIFETIME_S: Final = 400 * 86_400


class KnownBrowsers:
    """See above; `prefix` begins the names of the cookies, one for each user."""

    def __init__(self, store: UserStore, prefix: str) -> None:
        """Raises sqlite3.Error."""
        self._store = store
        self._prefix = prefix
        self._key = store.rights.secret(_SECRET)

    def cookie_name(self, user: str) -> str:
        """The name of a user's cookie: a browser may be known to several users."""
        return f"{self._prefix}-{self._digest('name', user)[:16]}"

    def cookie_value(self, user: str) -> str | None:
        """The value of the cookie; None for who has no password, or where nobody can look."""
        try:
            credential = self._store.password_of_user(user)
        except sqlite3.Error as error:
            logger.error("the user database cannot be read: %s", error)
            return None
        return None if credential is None else self._digest("value", user, credential.hash)

    def party(self, user: str, cookies: Mapping[str, str]) -> str | None:
        """The party that counts a user's passwords in place of an address; None: not known."""
        shown = cookies.get(self.cookie_name(user))
        if not shown:
            return None
        value = self.cookie_value(user)
        if value is None or not hmac.compare_digest(_bytes(shown), _bytes(value)):
            return None
        return f"known browsers of {user}"

    def _digest(self, *parts: str) -> str:
        return blake2b(_bytes("\0".join(parts)), key=self._key, digest_size=32).hexdigest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
