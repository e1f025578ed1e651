"""What administrators have paused of forwardings, which their owners cannot resume.

A pause names a user, a server or one forwarding of a user, and covers each forwarding that fits all
that it names, also those that are made later. It is a record of topic `forwarding` of its own, key
= user LF `pause` LF id, where the user is empty if the pause names none. A user who changes or
makes a forwarding anew cannot write over it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec

from waylog.config import is_address
from waylog.forwarding.definition import ID, Forwarding, Milliseconds, Name

#: KnownPauses that there may be at once.
PAUSES_MAX: Final = 500

_KIND: Final = "pause"
_HOST: Final = re.compile(r"[0-9a-z_]([0-9a-z_.-]{0,252}[0-9a-z_])?")

#: Shown to the owners of forwardings that are covered.
Reason = Annotated[str, msgspec.Meta(min_length=1, max_length=500)]


class Pause(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The value of a record."""

    reason: Reason
    #: The administrator, whom only administrators are shown.
    by: Name
    time: Milliseconds
    user: Name | None = None
    #: A server's name or address, as `host_of` returns it.
    host: str | None = None
    #: The id of a forwarding of the user.
    forwarding: str | None = None

    @property
    def scope(self) -> tuple[str | None, str | None, str | None]:
        """Return what it names: user, host and forwarding."""
        return self.user, self.host, self.forwarding

    def covers(self, user: str, forwarding_id: str, forwarding: Forwarding) -> bool:
        """Tell whether it holds up a forwarding."""
        return (
            self.user in (None, user)
            and self.forwarding in (None, forwarding_id)
            and (self.host is None or self.host == host_of(forwarding.url))
        )

    def __str__(self) -> str:
        """Return what is paused, as a line of a log has it."""
        what = "all forwardings" if self.forwarding is None else f"forwarding {self.forwarding}"
        of_whom = "" if self.user is None else f" of {self.user}"
        return what + of_whom + ("" if self.host is None else f" to {self.host}")


class KnownPauses:
    """All pauses, by what they name; used by one thread."""

    def __init__(self) -> None:
        self._all: Final[dict[str, Pause]] = {}
        self._by_user: Final[dict[str | None, dict[str, Pause]]] = {}

    def put(self, pause_id: str, pause: Pause | None) -> Pause | None:
        """Take a new pause, or None if it has ended; return the one that there was before."""
        before = self._all.pop(pause_id, None)
        if before is not None:
            others = self._by_user[before.user]
            del others[pause_id]
            if not others:
                del self._by_user[before.user]
        if pause is not None:
            self._all[pause_id] = pause
            self._by_user.setdefault(pause.user, {})[pause_id] = pause
        return before

    def items(self) -> Iterator[tuple[str, Pause]]:
        """Yield all of them with their ids."""
        yield from self._all.items()

    def of(self, user: str, forwarding_id: str, forwarding: Forwarding) -> Pause | None:
        """Return the first pause that covers a forwarding."""
        found = [
            each
            for named in (user, None)
            for each in self._by_user.get(named, {}).values()
            if each.covers(user, forwarding_id, forwarding)
        ]
        return min(found, key=lambda each: each.time, default=None)


def new_pause(
    reason: str,
    by: str,
    now_ms: int,
    *,
    user: str | None = None,
    host: str | None = None,
    forwarding: str | None = None,
) -> Pause:
    """Return a pause of what is named; raises MALFORMED with what is wrong."""
    if user is None and host is None:
        raise ValueError("a pause names a user, a host, or both")
    if forwarding is not None and (user is None or not ID.fullmatch(forwarding)):
        raise ValueError("a forwarding is named by its user and its id of 16 hexadecimal digits")
    if user is not None and (not user or "/" in user or not user.isprintable()):
        raise ValueError(f"{user!r} is no name of a user")
    if not reason.strip() or not reason.isprintable():
        raise ValueError("a reason is needed, of one line: owners of forwardings are shown it")
    pause = Pause(
        reason=reason.strip(),
        by=by,
        time=now_ms,
        user=user,
        host=None if host is None else _named_host(host),
        forwarding=forwarding,
    )
    return msgspec.convert(msgspec.to_builtins(pause), Pause)


def _named_host(text: str) -> str:
    found = usual_host(text)
    if is_address(found) or _HOST.fullmatch(found):
        return found
    raise ValueError(
        f"host {text!r}: a name or an address is expected, without scheme and port; names with "
        "other characters than those of ASCII in their form with xn--"
    )


def host_of(url: str) -> str:
    """Return the server that a URL names, in the form in which pauses name it."""
    return usual_host(urlsplit(url).hostname or "")


def usual_host(host: str) -> str:
    """Return a name or address of a server in the form in which pauses name it."""
    name = host.removeprefix("[").removesuffix("]").lower().rstrip(".")
    return str(ipaddress.ip_address(name)) if is_address(name) else name


def pause_key(pause_id: str, user: str | None) -> bytes:
    """Return the key of a pause's record."""
    return f"{user or ''}\n{_KIND}\n{pause_id}".encode()


def parse_pause_key(key: bytes) -> str | None:
    """Return the id in the key of a pause's record; None if it is the key of something else."""
    try:
        _, kind, pause_id = key.decode().split("\n")
    except ValueError:
        return None
    return pause_id if kind == _KIND and ID.fullmatch(pause_id) else None


def shown_pause(pause_id: str, pause: Pause) -> dict[str, Any]:
    """Return the members of a pause as administrators are shown them."""
    return {
        "id": pause_id,
        "user": pause.user,
        "host": pause.host,
        "forwarding": pause.forwarding,
        "reason": pause.reason,
        "by": pause.by,
        "time": pause.time,
    }


_decode: Final = msgspec.json.Decoder(Pause).decode


def decode_pause(value: bytes) -> Pause:
    """Return the pause of a value; raises MALFORMED."""
    return _decode(value)
