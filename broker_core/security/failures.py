"""Delays of the responses to wrong passwords, which grow with the number of failures."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

#: Seconds without a wrong password after which the count for an address begins anew.
_FORGOTTEN_AFTER_S: Final = 60.0
#: Wrong passwords that are allowed before the delay grows.
_FREE: Final = 3
#: Clients wait for an answer for some seconds only: one that gives up before would never hear that
#: its password is wrong, and try again and again.
_DOUBLINGS_MAX: Final = 5
_ADDRESSES_MAX: Final = 10_000


class LoginFailures:
    """Counts wrong passwords by address; `base_ms` is the delay after the first."""

    def __init__(self, base_ms: int) -> None:
        self._base_ms = base_ms
        #: Number of all wrong passwords.
        self.total = 0
        # (count, time of the last failure) by address; the newest is last.
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def delay_ms(self, address: str, now_s: float) -> int:
        """Count a wrong password; return the delay of its response, `base_ms` to 32 times that."""
        self.total += 1
        count, last_s = self._failures.pop(address, (0, now_s))
        if now_s - last_s > _FORGOTTEN_AFTER_S:
            count = 0
        if len(self._failures) >= _ADDRESSES_MAX:
            self._failures.popitem(last=False)
        self._failures[address] = count + 1, now_s
        return int(self._base_ms * 2 ** min(max(count + 1 - _FREE, 0), _DOUBLINGS_MAX))
