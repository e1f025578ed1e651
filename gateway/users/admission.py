"""Admission control: everything an identity sends is checked here, whatever protocol it uses.

HTTP in every format, WebSocket, MQTT and the Kafka REST interface check three things before
anything is appended: whether the user may send at all, whether the quota of fixes per minute has
room, and whether the device is one that the user may send for. Everything that a message puts into
the log counts as a fix: events, and items that can never be accepted, too, since these are kept in
topic `error`. Users without a quota may have REFUSALS_PER_MINUTE of such items. Messages that
operators map to topics of their own count by their size. Quotas and devices are counted over all
protocols together, and over all gateway workers of the machine. Everything that is admitted is
stored: a quota never refuses afterwards. The bytes in topic `error` have bounds of their own
(gateway.limits.error_bytes).
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from gateway.formats import Parsed
from gateway.limits.error_bytes import ERROR_BYTES_PER_MINUTE, ErrorBytes
from gateway.limits.token_buckets import TokenBuckets
from gateway.users.rights import USUAL_RIGHTS, Rights
from gateway.users.sender_devices import SenderDevices
from waylog.messages import Fix, Rejected, encode

if TYPE_CHECKING:
    from gateway.users.database import UserStore

#: Different devices of a user without a limit of its own.
DEVICES_PER_USER: Final = 1_000
#: Devices of one user that may register themselves per minute, with links that the user makes.
REGISTRATIONS_PER_MINUTE: Final = 10
#: Users whom one user may ask, show something to or block per minute.
NAMED_USERS_PER_MINUTE: Final = 10
#: Messages and items per minute that are refused for good and kept, of a user without a quota.
#: A fleet that sends a thousand fixes a second may have a few in a hundred.
REFUSALS_PER_MINUTE: Final = 3_000

#: Bytes of a message of any content that cost as much as a fix.
BYTES_A_FIX: Final = 4096

_DEVICES_A_STEP: Final = 50
_FIXES_A_STEP: Final = 200

_SECRET: Final = "devices of senders"  # noqa: S105 the secret's name


class Sender(Protocol):
    """The part of an identity that admission control needs."""

    @property
    def user(self) -> str: ...
    @property
    def admin(self) -> bool: ...


class NotAdmitted(Exception):
    """Nothing of the request is accepted; the text tells the sender why."""


class SendingNotAllowed(NotAdmitted):
    """The user may read but not send."""

    def __init__(self) -> None:
        super().__init__("this user may look, but not send")


class QuotaExceeded(NotAdmitted):
    """The quota is used up; the request may be repeated after `retry_after_s`."""

    def __init__(self, reason: str, retry_after_s: float) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s

    @property
    def retry_after(self) -> str:
        """Return the value of the Retry-After header, in whole seconds."""
        return str(max(1, math.ceil(self.retry_after_s)))


class Admission:
    """Admission control of one process. `buckets` and `devices` are shared with other workers.

    `devices_per_user` limits the devices of users without a limit of their own; None is unlimited,
    as for administrators. `error_bytes_per_minute` bounds what is kept of one user in topic
    `error`.
    """

    def __init__(
        self,
        buckets: TokenBuckets,
        devices: SenderDevices,
        devices_per_user: int | None = DEVICES_PER_USER,
        error_bytes_per_minute: int = ERROR_BYTES_PER_MINUTE,
    ) -> None:
        #: The bounds of topic `error`, for the submitter.
        self.error_bytes = ErrorBytes(buckets, error_bytes_per_minute)
        self._buckets = buckets
        self._devices = devices
        self._devices_per_user = devices_per_user

    @classmethod
    def in_memory(
        cls, devices_per_user: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> Admission:
        """Return an instance whose counts are those of this process alone; `clock` is in s."""
        buckets = TokenBuckets(clock=clock)
        return cls(buckets, SenderDevices(None, b"waylog"), devices_per_user)

    def close(self) -> None:
        """Close the files of counts."""
        self._buckets.close()
        self._devices.close()

    def forget(self, device: str) -> None:
        """Forget a device that has been erased."""
        self._devices.forget(device)

    def is_metered(self, sender: Sender) -> bool:
        """Tell whether the user's fixes are counted, or refused altogether.

        Then `admit` has to be called for every message. For all other users only devices are
        checked.
        """
        rights = _rights_of(sender)
        return rights.fixes_per_minute is not None or not rights.may_send

    def devices_max(self, sender: Sender) -> int | None:
        """Return the number of different devices a user may send for; None is unlimited."""
        own = _rights_of(sender).devices_max
        return own if own is not None or sender.admin else self._devices_per_user

    def knows_device(self, sender: Sender, device: str) -> bool:
        """Tell whether a user has sent for a device today, or may for any; this counts nothing.

        Messages for all other devices have to be read in full and pass `admit`: a device takes a
        place with its first accepted fix.
        """
        return self.devices_max(sender) is None or self._devices.knows(sender.user, device)

    def admits_device(self, sender: Sender, device: str) -> bool:
        """Tell whether a user may send for a device, and count it as one of the user's devices."""
        devices_max = self.devices_max(sender)
        return devices_max is None or self._devices.admits(sender.user, device, devices_max)

    def take(self, sender: Sender, fixes: int) -> None:
        """Count fixes, or what costs as much.

        Raises SendingNotAllowed, and QuotaExceeded, which counts none.
        """
        rights = _rights_of(sender)
        if not rights.may_send:
            raise SendingNotAllowed
        per_minute = rights.fixes_per_minute
        if per_minute is None or not fixes:
            return
        wait_s = self._buckets.take(sender.user, per_minute, fixes)
        if wait_s:
            raise QuotaExceeded(f"{sender.user} may send {per_minute} fixes a minute", wait_s)

    def take_message(self, sender: Sender, size: int) -> None:
        """Count a message of any content: a fix for every BYTES_A_FIX that it has begun.

        Raises as `take` does.
        """
        self.take(sender, max(1, math.ceil(size / BYTES_A_FIX)))

    def take_refused(self, sender: Sender) -> None:
        """Count a message that is refused for good and kept in topic `error`.

        It costs a fix, or, of a user without a quota or without the right to send, one of
        REFUSALS_PER_MINUTE. Raises QuotaExceeded.
        """
        rights = _rights_of(sender)
        if rights.may_send and rights.fixes_per_minute is not None:
            self.take(sender, 1)
            return
        self._take_refusals(sender, 1)

    def _take_refusals(self, sender: Sender, count: int) -> None:
        # No user name begins with NUL.
        wait_s = self._buckets.take(f"\0refused\0{sender.user}", REFUSALS_PER_MINUTE, count)
        if wait_s:
            reason = f"{REFUSALS_PER_MINUTE} messages of {sender.user} a minute may be refused"
            raise QuotaExceeded(reason, wait_s)

    def take_registration(self, sender: Sender) -> None:
        """Count a device that registers itself, or a link of a user. Raises QuotaExceeded.

        A registration changes the user database, which makes all workers read it again.
        """
        may = f"register devices or make links {REGISTRATIONS_PER_MINUTE} times a minute"
        self._take_change(sender, "registrations", REGISTRATIONS_PER_MINUTE, may)

    def take_named_user(self, sender: Sender) -> None:
        """Count another user who is asked, shown something or blocked. Raises QuotaExceeded.

        It is also the bound on finding out which users there are.
        """
        may = f"ask, show something to or block {NAMED_USERS_PER_MINUTE} users a minute"
        self._take_change(sender, "named users", NAMED_USERS_PER_MINUTE, may)

    def _take_change(self, sender: Sender, kind: str, per_minute: int, may: str) -> None:
        # No user name begins with NUL.
        wait_s = self._buckets.take(f"\0{kind}\0{sender.user}", per_minute, 1)
        if wait_s:
            raise QuotaExceeded(f"{sender.user} may {may}", wait_s)

    def admit(self, sender: Sender, parsed: Parsed) -> int:
        """Admit the content of a message, and return the number of fixes that were rejected.

        Fixes of devices beyond the user's limit can never be accepted. They become rejected items,
        so that the app continues with the rest. Raises as `take` does.
        """
        before = len(parsed.fixes)
        for _ in self.admit_in_steps(sender, parsed):
            pass
        return before - len(parsed.fixes)

    def admit_in_steps(self, sender: Sender, parsed: Parsed) -> Iterator[None]:
        """Admit the content of a message that may be large, in steps none of which takes long."""
        # Before devices are counted: what is refused now takes no place.
        self.take(sender, parsed.count)
        beyond: set[str] = set()
        if self.devices_max(sender) is not None:
            # In order: the first of several new devices gets the last free place.
            devices = dict.fromkeys(fix.device for fix in parsed.fixes)
            for number, device in enumerate(devices, 1):
                if not self.admits_device(sender, device):
                    beyond.add(device)
                if not number % _DEVICES_A_STEP:
                    yield
        if beyond:
            reason = f"this user may have {self.devices_max(sender)} devices"
            yield from _reject(parsed, beyond, reason)
        # Those of a user with a quota have been paid for. An administrator's messages, as those of
        # another cluster, are of many users.
        unpaid = _rights_of(sender).fixes_per_minute is None and not sender.admin
        if parsed.rejected and unpaid:
            # One large message uses up a minute, and no more.
            self._take_refusals(sender, min(len(parsed.rejected), REFUSALS_PER_MINUTE))


def open_admission(
    users: Path,
    store: UserStore,
    devices_per_user: int | None = DEVICES_PER_USER,
    error_bytes_per_minute: int = ERROR_BYTES_PER_MINUTE,
) -> Admission:
    """Open the files beside the user database. Raises OSError, sqlite3.Error."""
    return Admission(
        TokenBuckets(users.with_name(f"{users.name}.quotas")),
        SenderDevices(users.with_name(f"{users.name}.devices"), store.rights.secret(_SECRET)),
        devices_per_user,
        error_bytes_per_minute,
    )


def _rights_of(sender: Sender) -> Rights:
    rights: Rights = getattr(sender, "rights", USUAL_RIGHTS)
    return rights


def _reject(parsed: Parsed, devices: set[str], reason: str) -> Iterator[None]:
    rejected_before = set(parsed.rejected_at)
    places = (each for each in itertools.count() if each not in rejected_before)
    names = parsed.client_ids or itertools.repeat(None)
    kept: list[tuple[Fix, str | None]] = []
    for fix, name, place in zip(parsed.fixes, names, places, strict=False):
        if fix.device not in devices:
            kept.append((fix, name))
            continue
        parsed.rejected.append(
            Rejected(
                reason=reason,
                source=fix.source or "",
                time=fix.received,
                raw=encode(fix),
                device=fix.device,
                user=fix.user,
            )
        )
        parsed.rejected_at.append(place)
        if not len(parsed.rejected) % _FIXES_A_STEP:
            yield
    parsed.fixes = [fix for fix, _ in kept]
    if parsed.client_ids:
        parsed.client_ids = [name for _, name in kept]
