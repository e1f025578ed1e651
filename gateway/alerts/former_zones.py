"""Ends the zones and channels of users who were revoked: a name may be given to somebody else."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from gateway.alerts.alert_store import AlertStore
from gateway.alerts.log_table import LogTable
from gateway.users.changed_users import ChangedUsers
from gateway.users.database import UserStore
from waylog.geofences.definition import Geofence
from waylog.process.machine_lock import MachineLock

logger = logging.getLogger(__name__)


class FormerZones:
    """Looks at all users once, and then at those whose rights have changed."""

    def __init__(
        self,
        zones: LogTable[Geofence],
        store: AlertStore,
        users: UserStore,
        once: MachineLock,
    ) -> None:
        self._zones: Final = zones
        self._store: Final = store
        self._users: Final = users
        self._changed: Final = ChangedUsers(
            once, self._update, "zones of former users may still be there"
        )
        self.rights_changed: Final = self._changed.rights_changed
        self.run: Final = self._changed.run

    async def _update(self, changed: set[str] | None) -> None:
        if changed is None:
            stored = await asyncio.to_thread(self._store.users)
            changed = {*stored, *await self._zones.owners()}
        for user in sorted(changed):
            since = await asyncio.to_thread(self._users.user_since, user)
            await asyncio.to_thread(self._store.forget, user, since)
            for key, zone in (await self._zones.of(user)).items():
                # What an operator has defined on the command line is the operator's.
                if zone.created is not None and (since is None or zone.created < since):
                    await self._zones.put(key, None)
                    logger.info("a zone of %s has ended, who was revoked", user)
