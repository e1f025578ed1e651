"""Ends the connections of those who have been revoked while they were connected."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Final

from gateway.users import UserStore, account

if TYPE_CHECKING:
    from gateway.mqtt.listener import MqttServer

logger = logging.getLogger(__name__)

RECHECK_S: Final = 1.0


class Revocations:
    """Looks once a second whether the database of users has changed.

    Only then all credentials are read, in a thread, and everybody who holds connections is told
    which of them are good.
    """

    def __init__(self, store: UserStore) -> None:
        self._store = store
        self._version = store.data_version()
        self._subscribers: list[Callable[[Container[str]], object]] = []

    def subscribe(self, end_revoked: Callable[[Container[str]], object]) -> None:
        """Call `end_revoked` with the valid credentials (UserStore.valid_credentials) after
        each change."""
        self._subscribers.append(end_revoked)

    async def watch(self, recheck_s: float = RECHECK_S) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(recheck_s)
            try:
                await self._look()
            except sqlite3.Error as error:
                logger.error("the user database cannot be read: %s", error)

    async def _look(self) -> None:
        version = self._store.data_version()
        if version == self._version:
            return
        valid = await asyncio.to_thread(self._store.valid_credentials)
        self._version = version
        for end_revoked in self._subscribers:
            try:
                end_revoked(valid)
            except Exception:
                logger.exception("connections of the revoked could not be ended")


def end_mqtt_connections(server: MqttServer, valid: Container[str]) -> None:
    """Say goodbye to MQTT clients whose credentials are not valid any more."""
    from gateway.mqtt.packets import ReasonCode

    for session in list(server.router.sessions.values()):
        identity = session.identity
        credential = getattr(identity, "credential", None) or account(identity.user)
        if credential in valid:
            continue
        connection = session.connection
        session.expiry_interval_s = 0  # nothing waits here for somebody who may not come back
        if connection is None:
            session.will = None
            server.router.end(session)
        else:
            connection.will = None
            connection.close(ReasonCode.NOT_AUTHORIZED, "the credentials were revoked")
    server.wake()
