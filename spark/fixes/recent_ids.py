"""The ids that a partition had lately, to recognise a fix that was sent twice."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

_FILTER_BITS: Final = 20


class RecentIds:
    """Hashes of the newest `limit` ids of one partition, oldest first.

    The window holds what the history holds: the kept rows in the order of their offsets. It can
    therefore be built again from the files, and is then the same.
    """

    def __init__(self, limit: int, hashes: NDArray[np.uint64]) -> None:
        self._limit = limit
        self._hashes = hashes[-limit:].copy() if limit else hashes[:0]

    def __len__(self) -> int:
        return len(self._hashes)

    def repeated(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which of these are in the window, or came before in the same array."""
        repeated = np.ones(len(hashes), np.bool_)
        repeated[np.unique(hashes, return_index=True)[1]] = False
        if len(self._hashes):
            # One look into a small table rules out nearly all of a window of a million.
            mask = np.uint64((1 << _FILTER_BITS) - 1)
            wanted = np.zeros(1 << _FILTER_BITS, np.bool_)
            wanted[hashes & mask] = True
            candidates = self._hashes[wanted[self._hashes & mask]]
            if len(candidates):
                repeated |= np.isin(hashes, candidates)
        return repeated

    def extend(self, hashes: NDArray[np.uint64]) -> None:
        """Add kept rows; the oldest fall out."""
        if self._limit:
            self._hashes = np.concatenate([self._hashes, hashes])[-self._limit :].copy()
