"""Names and pictures of devices, cached until the user database changes."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from typing import Final

from gateway.users.database import UserStore

logger = logging.getLogger(__name__)

_RECHECK_S: Final = 1.0
#: Cached cards; one with a picture takes some ten KB.
_CARDS_MAX: Final = 500


class CardBook:
    """A cache of device cards; used on one event loop."""

    def __init__(self, store: UserStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._checked = float("-inf")
        self._data_version = -1
        self._cards: dict[str, dict[str, str] | None] = {}

    def of(self, device: str) -> dict[str, str] | None:
        """Return the name and picture of a device that have been set, or None."""
        try:
            now = self._clock()
            if now - self._checked >= _RECHECK_S:
                self._checked = now
                version = self._store.data_version()
                if version != self._data_version:
                    self._data_version = version
                    self._cards.clear()
            if device not in self._cards:
                if len(self._cards) >= _CARDS_MAX:
                    self._cards.clear()
                self._cards[device] = self._store.rights.card(device)
            return self._cards[device]
        except sqlite3.Error as error:
            logger.error("the card of a device cannot be read: %s", error)
            return None
