"""Limits on wrong credentials, per address, and per address and user name.

Only passwords can be guessed. An address may try a few for one name, and then one every so often
(NIST SP 800-63B, section 5.2.2); the right one resets the count. The same holds for loopback, where
a proxy that sends no client address makes all clients one address. Nobody is locked out for good: a
refusal costs nothing more, and credentials that were verified before are not checked again
(gateway.users.auth). Tokens, sessions and links of `waylog link` cannot be guessed, so a right one
is always accepted. Wrong ones of those still count for their address, except for loopback.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.limits.addresses import is_loopback
from gateway.limits.bounds import HttpLimits
from gateway.limits.token_buckets import TokenBuckets
from waylog.network.peer_parties import party_of

if TYPE_CHECKING:
    from gateway.users.database import UserStore

#: Codes of one user that may be tried: of a million codes three are good at a time.
_CODES_AT_ONCE: Final = 10
_CODES_PER_MINUTE: Final = 0.5

_SECRET: Final = "guesses"  # noqa: S105 the secret's name


class TooManyFailedLogins(Exception):
    """The credentials were not checked; they may be tried again after `retry_after_s`."""

    def __init__(
        self, retry_after_s: float, reason: str = "too many wrong credentials from your address"
    ) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s

    @property
    def retry_after(self) -> str:
        """Return the value of the Retry-After header, in whole seconds."""
        return str(max(1, math.ceil(self.retry_after_s)))


class FailedLogins:
    """Counts of wrong credentials, of one gateway, or of all workers if `buckets` has a file."""

    def __init__(
        self, limits: HttpLimits | None = None, buckets: TokenBuckets | None = None
    ) -> None:
        limits = HttpLimits() if limits is None else limits
        self._buckets = TokenBuckets() if buckets is None else buckets
        self._of_address = limits.failures_per_minute_per_address
        self._of_name = limits.guesses_per_minute_per_name
        self._of_name_at_once = limits.guesses_at_once_per_name

    def close(self) -> None:
        """Close the file of counts."""
        self._buckets.close()

    def begin(self, address: str, user: str) -> None:
        """Count a password before it is verified.

        Raises TooManyFailedLogins, and then counts none.
        """
        wait_s = self._take(address)
        if not wait_s:
            wait_s = self._take_of_name(address, user, 1)
            if wait_s:
                self._take(address, -1)
        if wait_s:
            raise TooManyFailedLogins(wait_s)

    def right(self, address: str, user: str) -> None:
        """Take back the counts of this name and address: the password was right."""
        self._take(address, -1)
        self._take_of_name(address, user, -self._of_name_at_once)

    def unverified(self, address: str, user: str) -> None:
        """Take back the count of a password that could not be verified."""
        self._take(address, -1)
        self._take_of_name(address, user, -1)

    def begin_second_factor(self, user: str) -> None:
        """Count a code of a second factor before it is verified, whatever its address.

        Only whoever has the password can make a user wait. Raises TooManyFailedLogins.
        """
        wait_s = self._take_of_second_factor(user, 1)
        if wait_s:
            raise TooManyFailedLogins(wait_s, "too many wrong codes")

    def right_second_factor(self, user: str) -> None:
        """Take back the counts of a user: the code was right."""
        self._take_of_second_factor(user, -_CODES_AT_ONCE)

    def wrong(self, address: str) -> None:
        """Count a wrong token, session or link. Raises TooManyFailedLogins beyond the limit."""
        wait_s = self._take(address)
        if wait_s:
            raise TooManyFailedLogins(wait_s)

    def require_room(self, address: str) -> None:
        """Raise TooManyFailedLogins if the address has sent too many wrong credentials."""
        self.wrong(address)
        self._take(address, -1)

    def _take(self, address: str, count: int = 1) -> float:
        if not address or is_loopback(address):
            return 0.0
        return self._buckets.take(party_of(address), self._of_address, count)

    def _take_of_second_factor(self, user: str, count: int) -> float:
        # No address begins with NUL.
        return self._buckets.take(
            f"\0second factor\0{user}", _CODES_PER_MINUTE, count, _CODES_AT_ONCE
        )

    def _take_of_name(self, address: str, user: str, count: int) -> float:
        name = f"{party_of(address)}\0{user}"
        return self._buckets.take(name, self._of_name, count, self._of_name_at_once)


def open_failed_logins(users: Path, store: UserStore, limits: HttpLimits) -> FailedLogins:
    """Open the counts in a file beside the user database. Raises OSError, sqlite3.Error."""
    # The secret hides which names share a set of slots, so nobody can evict a chosen name's count.
    path = users.with_name(f"{users.name}.guesses")
    return FailedLogins(limits, TokenBuckets(path, secret=store.rights.secret(_SECRET)))
