"""Ends the forwardings of users who were revoked.

A name may be given to somebody else, or to the same person with new credentials, a moment later:
what was made before that is ended too. One process of a machine does it, the one that holds the
lock for notices.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Iterable
from typing import Final

from gateway.forwardings.store import ForwardingsOff, ForwardingStore
from gateway.users.database import UserStore
from waylog.kafka.clients import LogUnreachable
from waylog.process.machine_lock import MachineLock

logger = logging.getLogger(__name__)

#: Seconds between two attempts to get the lock, and to write what could not be written.
_LOCK_S: Final = 1.0
_AGAIN_S: Final = 5.0


class FormerUsers:
    """Looks at all forwardings once, and then at those of users whose rights have changed."""

    def __init__(self, store: ForwardingStore, users: UserStore, once: MachineLock) -> None:
        self._store: Final = store
        self._users: Final = users
        self._once: Final = once
        # Users to look at; None: everybody.
        self._changed: set[str] | None = None
        self._wake: Final = asyncio.Event()
        self._wake.set()
        self._failed: str | None = None

    def rights_changed(self, users: Iterable[str]) -> None:
        """Look at the forwardings of these users; the callback of Permissions.subscribe."""
        if self._changed is not None:
            self._changed.update(users)
        self._wake.set()

    async def run(self) -> None:
        """End forwardings until cancelled, whenever this process holds the lock."""
        while not self._once.held():
            await asyncio.sleep(_LOCK_S)
        while True:
            await self._wake.wait()
            self._wake.clear()
            changed, self._changed = self._changed, set()
            try:
                await asyncio.to_thread(self._end, changed)
                self._failed = None
            except ForwardingsOff:
                continue
            except (LogUnreachable, sqlite3.Error) as error:
                if str(error) != self._failed:
                    logger.warning("forwardings of former users may go on: %s", error)
                self._failed = str(error)
                self._changed = None if changed is None else changed | self._changed
                self._wake.set()
                await asyncio.sleep(_AGAIN_S)

    def _end(self, changed: set[str] | None) -> None:
        for user in sorted(self._store.users() if changed is None else changed):
            since = self._users.user_since(user)
            for forwarding_id, (forwarding, _) in self._store.of_user(user).items():
                if since is None or forwarding.created < since:
                    self._store.remove(user, forwarding_id)
                    logger.info("a forwarding of %s has ended, who was revoked", user)
