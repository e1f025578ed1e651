"""Accounts of this machine that may connect to a broker over loopback, as a setting names them."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Final

from waylog.config import ConfigError

#: The account of the process alone; root may always.
SELF: Final = "self"
#: Every account: nobody is asked for.
ALL: Final = "all"

_ROOT: Final = 0
#: The kernel's word for "none", (uid_t) -1.
_NO_UID: Final = 2**32 - 1
_UID_MAP: Final = Path("/proc/self/uid_map")
_OVERFLOW_UID: Final = Path("/proc/sys/kernel/overflowuid")


def parse_local_accounts(text: str) -> frozenset[int] | None:
    """The uids that may connect, root's and this process's among them; None is everybody.

    `text` has names and uids with commas between, or `self`, or `all`; nothing is everybody, too.
    Raises ConfigError for an account that this machine does not have.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or words == [ALL]:
        return None
    if ALL in words:
        raise ConfigError(f"{text}: `{ALL}` is every account, and stands alone")
    allowed = {os.geteuid()} | {_uid(word) for word in words if word != SELF}
    alike = {uid for uid in allowed if not is_distinct(uid)}
    if alike:
        raise ConfigError(
            f"{text}: account {min(alike)} cannot be told from others in this user namespace "
            "(PrivateUsers= of systemd, a container), which does not map it"
        )
    return frozenset({_ROOT} | allowed)


def is_distinct(uid: int) -> bool:
    """Tell whether a uid is one account's alone in this process's user namespace.

    All accounts that are not mapped there have one uid together, the kernel's overflow uid
    (user_namespaces(7)).
    """
    try:
        lines = _UID_MAP.read_text(encoding="ascii").splitlines()
        overflow = int(_OVERFLOW_UID.read_text(encoding="ascii"))
    except OSError:
        return True  # no namespaces, no such uid
    ranges = [(int(first), int(count)) for first, _, count in map(str.split, lines)]
    if sum(count for _, count in ranges) >= _NO_UID:
        return True
    return uid != overflow and any(first <= uid < first + count for first, count in ranges)


def _uid(word: str) -> int:
    if word.isascii() and word.isdigit():
        uid = int(word)
        if uid >= _NO_UID:
            raise ConfigError(f"{word} is not a uid")
        return uid
    try:
        return pwd.getpwnam(word).pw_uid
    except KeyError:
        raise ConfigError(
            f"this machine has no account {word}; names or uids with commas between, `{SELF}` or "
            f"`{ALL}` are expected"
        ) from None
