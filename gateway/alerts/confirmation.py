"""Proof that a user reads the mailbox that is to be told of events: a code is sent there; sans-IO.

Nobody can have somebody else sent more than one short message by this platform.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Final

import msgspec

_DIGITS: Final = 8
#: How long a code is good, and how often somebody may guess.
VALID_MS: Final = 3_600_000
ATTEMPTS_MAX: Final = 5


class CodeRefused(ValueError):
    """A code is wrong, or good no longer; the message says which."""


class Pending(msgspec.Struct, frozen=True):
    """A channel waits for its code."""

    code: str
    until_ms: int
    attempts: int = 0
    #: The code before this one, as long as it is not certain that this one has been sent.
    former: Pending | None = None

    def __repr__(self) -> str:
        """Return a text without the code."""
        return "Pending()"

    def is_over(self, now_ms: int) -> bool:
        """Return whether no code is taken any more."""
        return now_ms >= self.until_ms or self.attempts >= ATTEMPTS_MAX


def new_code(now_ms: int) -> Pending:
    """Return what waits for a new code."""
    return Pending(f"{secrets.randbelow(10**_DIGITS):0{_DIGITS}}", now_ms + VALID_MS)


def another_code(pending: Pending, now_ms: int) -> Pending:
    """Return what waits for another code, and for the one before until the other is sent."""
    former = pending if pending.former is None else pending.former
    return msgspec.structs.replace(
        new_code(now_ms), former=None if former.is_over(now_ms) else former
    )


def sent(pending: Pending) -> Pending:
    """Return what waits for the newest code alone."""
    return msgspec.structs.replace(pending, former=None)


def attempt(pending: Pending, code: str, now_ms: int) -> Pending | None:
    """Return None for the right code, and else what is waited for from now on.

    Raises CodeRefused if no code is taken any more.
    """
    if pending.is_over(now_ms):
        raise CodeRefused("the code is no longer good: ask for another one")
    former = pending.former
    if former is not None and former.is_over(now_ms):
        former = None
    if former is not None and (former := attempt(former, code, now_ms)) is None:
        return None
    if hmac.compare_digest(pending.code.encode(), code.encode()):
        return None
    return msgspec.structs.replace(pending, attempts=pending.attempts + 1, former=former)
