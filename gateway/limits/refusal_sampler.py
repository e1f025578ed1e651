"""Limits on the refusals that are kept in topic `error`; all of them are counted."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from gateway.limits.bounds import HttpLimits
from waylog.network.peer_parties import party_of
from waylog.network.token_bucket import TokenBucket

_ADDRESSES_MAX: Final = 10_000


class RefusalSampler:
    """Rate limits for a whole process, and within it for each address.

    So a flood from one address does not hide the refusals of others.
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
        """Tell whether a refusal of a request from this address is kept."""
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
