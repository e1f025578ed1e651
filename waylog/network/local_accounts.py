"""Parses the setting for the local accounts that may connect to a broker over loopback."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Final

from waylog.config import ConfigError

#: Only the account of the process itself, and root.
SELF: Final = "self"
#: Every account: connections are not checked.
ALL: Final = "all"

_ROOT: Final = 0
#: The kernel's value for "none", (uid_t) -1.
_NO_UID: Final = 2**32 - 1
_UID_MAP: Final = Path("/proc/self/uid_map")
_OVERFLOW_UID: Final = Path("/proc/sys/kernel/overflowuid")


def parse_local_accounts(text: str) -> frozenset[int] | None:
    """Return the uids that may connect, with root's and this process's; None allows everybody.

    `text` has names and uids with commas between, or `self`, or `all`; if empty, it means `all`.
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
    """Return whether a uid stands for a single account in this process's user namespace.

    All accounts that are not mapped there share one uid, the kernel's overflow uid
    (user_namespaces(7)).
    """
    try:
        lines = _UID_MAP.read_text(encoding="ascii").splitlines()
        overflow = int(_OVERFLOW_UID.read_text(encoding="ascii"))
    except OSError:
        return True  # without user namespaces there is no overflow uid
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
