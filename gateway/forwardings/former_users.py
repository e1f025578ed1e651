"""Ends the forwardings of users who were revoked.

A name may be given to somebody else, or to the same person with new credentials, a moment later:
what was made before that is ended too. One process of a machine does it, the one that holds the
lock for notices.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final

from gateway.forwardings.store import ForwardingsOff, ForwardingStore
from gateway.users.changed_users import ChangedUsers
from gateway.users.database import UserStore
from waylog.process.machine_lock import MachineLock

logger = logging.getLogger(__name__)


class FormerUsers:
    """Looks at all forwardings once, and then at those of users whose rights have changed."""

    def __init__(self, store: ForwardingStore, users: UserStore, once: MachineLock) -> None:
        self._store: Final = store
        self._users: Final = users
        behind = "forwardings of former users may go on"
        self._changed: Final = ChangedUsers(once, self._update, behind)
        self.rights_changed: Final = self._changed.rights_changed
        self.run: Final = self._changed.run

    async def _update(self, changed: set[str] | None) -> None:
        with suppress(ForwardingsOff):
            await asyncio.to_thread(self._end, changed)

    def _end(self, changed: set[str] | None) -> None:
        for user in sorted(self._store.users() if changed is None else changed):
            since = self._users.user_since(user)
            for forwarding_id, kept in self._store.of_user(user).items():
                if since is None or kept.forwarding.created < since:
                    self._store.remove(user, forwarding_id)
                    logger.info("a forwarding of %s has ended, who was revoked", user)
        for pause_id, pause in self._store.pauses().items():
            if pause.user is None or (changed is not None and pause.user not in changed):
                continue
            since = self._users.user_since(pause.user)
            if since is None or pause.time < since:
                # Whoever gets the name has nothing to do with it.
                self._store.remove_pause(pause_id, pause)
