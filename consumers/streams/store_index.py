"""What is computed from the values of a store, and not stored itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from consumers.streams.store import Store

IndexT = TypeVar("IndexT")


class StoreIndexes(Generic[IndexT]):
    """An index for each store of a processor, as long as there is the store.

    It is made when it is asked for first, from what the store was restored to; from then on its
    owner keeps it up to date. Used in one thread.
    """

    def __init__(self, make: Callable[[Store[Any]], IndexT]) -> None:
        self._make = make
        self._indexes: WeakKeyDictionary[Store[Any], IndexT] = WeakKeyDictionary()

    def of(self, store: Store[Any]) -> IndexT:
        """Return the index of a store."""
        index = self._indexes.get(store)
        if index is None:
            index = self._indexes[store] = self._make(store)
        return index
