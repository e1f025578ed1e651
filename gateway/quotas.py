"""How much a user may send: fixes a minute, and different devices."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from gateway.auth import Identity
from gateway.limits import TokenBucket
from waylog.messages import Fix

_USERS_MAX: Final = 10_000
_SECONDS_A_MINUTE: Final = 60


class KnownDevices(Protocol):
    """The part of a LocationView that says whom a user sends for."""

    def devices(self, user: str | None = None) -> list[str]: ...
    def __contains__(self, device: str) -> bool: ...


class QuotaExceeded(Exception):
    """Not now: the same may be sent again after `retry_after_s`."""

    def __init__(self, reason: str, retry_after_s: int) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class Quotas:
    """Of one gateway process; users without a quota cost nothing."""

    def __init__(self, known: KnownDevices, clock: Callable[[], float] = time.monotonic) -> None:
        self._known = known
        self._clock = clock
        self._buckets: OrderedDict[tuple[str, int], TokenBucket] = OrderedDict()

    def take(self, identity: Identity, fixes: Sequence[Fix]) -> None:
        """Count fixes that a user sends. Raises QuotaExceeded, and then counts none."""
        per_minute = identity.rights.fixes_per_minute
        if per_minute is None or not fixes:
            return
        key = (identity.user, per_minute)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(
                per_minute / _SECONDS_A_MINUTE, self._clock, burst=per_minute
            )
            if len(self._buckets) > _USERS_MAX:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(key)
        # More than a minute's worth in one request would never fit: it empties the bucket.
        if not bucket.take(min(len(fixes), per_minute)):
            raise QuotaExceeded(
                f"{identity.user} may send {per_minute} fixes a minute",
                max(1, _SECONDS_A_MINUTE * min(len(fixes), per_minute) // per_minute),
            )

    def beyond(self, identity: Identity, fixes: Sequence[Fix]) -> list[int]:
        """Which of some fixes are of devices beyond the number that a user may have."""
        devices_max = identity.rights.devices_max
        if devices_max is None or all(fix.device in self._known for fix in fixes):
            return []
        known = set(self._known.devices(identity.user))
        beyond: list[int] = []
        for index, fix in enumerate(fixes):
            if fix.device not in known:
                if len(known) >= devices_max:
                    beyond.append(index)
                else:
                    known.add(fix.device)
        return beyond
