"""Choice of the refusals for topic `error`: all are counted, and few are worth their place."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from gateway.limits.bounds import HttpLimits, TokenBucket
from waylog.network.peer_parties import party_of

_ADDRESSES_MAX: Final = 10_000


class RefusalRecords:
    """So many a second for all ways of a process, and of them so many for one address.

    A flood from one address then hides nobody else's refusals.
    """

    def __init__(
        self,
        per_s: float = HttpLimits.refusals_recorded_per_s,
        per_s_each: float = HttpLimits.refusals_recorded_per_s_per_address,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._all = TokenBucket(per_s, clock)
        self._per_s_each = per_s_each
        self._clock = clock
        self._addresses: OrderedDict[str, TokenBucket] = OrderedDict()

    def take(self, address: str) -> bool:
        """Tell whether a refusal of what came from an address is kept."""
        party = party_of(address)
        bucket = self._addresses.get(party)
        if bucket is None:
            bucket = self._addresses[party] = TokenBucket(self._per_s_each, self._clock)
            if len(self._addresses) > _ADDRESSES_MAX:
                self._addresses.popitem(last=False)
        else:
            self._addresses.move_to_end(party)
        if not bucket.take():
            return False
        if self._all.take():
            return True
        bucket.give_back()
        return False
