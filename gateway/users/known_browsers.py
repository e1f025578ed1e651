"""Browsers in which a user has signed in before: wrong guesses of others do not lock them out.

Each gets a device cookie (OWASP, "Slow Down Online Guessing Attacks with Device Cookies"): a keyed
hash of the user and of the user's current password hash, so that a new password invalidates all
cookies. Passwords that come with the cookie are counted and queued separately from all others. All
browsers of a user count as one party, so a stolen cookie allows no faster guessing than an address
does.
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
#: The longest time that browsers keep a cookie (RFC 6265bis, section 5.5).
LIFETIME_S: Final = 400 * 86_400


class KnownBrowsers:
    """Makes and checks device cookies; `prefix` begins their names, one for each user."""

    def __init__(self, store: UserStore, prefix: str) -> None:
        """Raises sqlite3.Error."""
        self._store = store
        self._prefix = prefix
        self._key = store.rights.secret(_SECRET)

    def cookie_name(self, user: str) -> str:
        """Return the name of a user's cookie: a browser may be known to several users."""
        return f"{self._prefix}-{self._digest('name', user)[:16]}"

    def cookie_value(self, user: str) -> str | None:
        """Return the value of the cookie; None if there is no password or it cannot be read."""
        try:
            credential = self._store.password_of_user(user)
        except sqlite3.Error as error:
            logger.error("the user database cannot be read: %s", error)
            return None
        return None if credential is None else self._digest("value", user, credential.hash)

    def party(self, user: str, cookies: Mapping[str, str]) -> str | None:
        """Return the party that passwords count for instead of the address, or None."""
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
