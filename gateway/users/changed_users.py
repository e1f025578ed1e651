"""Brings up to date what depends on users' rights, in one process of a machine."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from confluent_kafka import KafkaException

from waylog.kafka.clients import AppendError, LogUnreachable
from waylog.kafka.errors import error_text
from waylog.process.machine_lock import MachineLock

logger = logging.getLogger(__name__)

#: Seconds between two attempts to get the lock, and to do what has failed.
_LOCK_S: Final = 1.0
_AGAIN_S: Final = 5.0


class ChangedUsers:
    """Looks at all users once, and then at those whose rights have changed. On one event loop."""

    def __init__(
        self, once: MachineLock, update: Callable[[set[str] | None], Awaitable[None]], behind: str
    ) -> None:
        """`update` gets the users to look at, None for all of them; if it raises an error of the
        log or of the database, it gets them again. `behind` says in the log what that means.
        """
        self._once: Final = once
        self._update: Final = update
        self._behind: Final = behind
        # Users to look at; None: everybody.
        self._changed: set[str] | None = None
        self._wake: Final = asyncio.Event()
        self._wake.set()
        self._failed: str | None = None

    def rights_changed(self, users: Iterable[str]) -> None:
        """Look at these users; the callback of Permissions.subscribe."""
        if self._changed is not None:
            self._changed.update(users)
        self._wake.set()

    async def run(self) -> None:
        """Update until cancelled, whenever this process holds the lock."""
        while not self._once.held():
            await asyncio.sleep(_LOCK_S)
        while True:
            await self._wake.wait()
            self._wake.clear()
            changed, self._changed = self._changed, set()
            try:
                await self._update(changed)
                self._failed = None
            except (KafkaException, LogUnreachable, AppendError, sqlite3.Error) as error:
                self._say(error)
                self._changed = None if changed is None else changed | self._changed
                self._wake.set()
                await asyncio.sleep(_AGAIN_S)

    def _say(self, error: Exception) -> None:
        why = error_text(error) if isinstance(error, KafkaException) else str(error)
        if why != self._failed:
            logger.warning("%s: %s", self._behind, why)
        self._failed = why
