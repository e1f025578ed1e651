"""The recent ids of a partition, which reveal a fix that was sent twice."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

_FILTER_BITS: Final = 20


class RecentIds:
    """A window of the hashes of the newest `limit` ids of one partition, oldest first.

    The window follows the history: it holds the rows kept in files, in the order of their offsets.
    It can therefore be rebuilt from the files with the same content.
    """

    def __init__(self, limit: int, hashes: NDArray[np.uint64]) -> None:
        self._limit = limit
        self._hashes = hashes[-limit:].copy() if limit else hashes[:0]

    def __len__(self) -> int:
        return len(self._hashes)

    def repeated(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return a mask of the hashes that are in the window or occur earlier in the same array."""
        repeated = np.ones(len(hashes), np.bool_)
        repeated[np.unique(hashes, return_index=True)[1]] = False
        if len(self._hashes):
            # One lookup in a small table rules out nearly all of a window of a million.
            mask = np.uint64((1 << _FILTER_BITS) - 1)
            wanted = np.zeros(1 << _FILTER_BITS, np.bool_)
            wanted[hashes & mask] = True
            candidates = self._hashes[wanted[self._hashes & mask]]
            if len(candidates):
                repeated |= np.isin(hashes, candidates)
        return repeated

    def extend(self, hashes: NDArray[np.uint64]) -> None:
        """Add the hashes of kept rows; the oldest are dropped."""
        if self._limit:
            self._hashes = np.concatenate([self._hashes, hashes])[-self._limit :].copy()
