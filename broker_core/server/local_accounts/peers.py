"""Finds out which account of this machine a connection comes from, by what the kernel offers."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import closing

from broker_core.server.local_accounts.connection_ends import ConnectionEnds
from broker_core.server.local_accounts.netlink import (
    MalformedAnswerError,
    Routes,
    SocketDiagnosis,
    SocketOwner,
)
from broker_core.server.local_accounts.tables import SocketTables
from waylog.config import ConfigError

logger = logging.getLogger(__name__)


class LocalPeers:
    """What the listeners of a broker ask. `open` makes it, `close` ends it."""

    def __init__(
        self, diagnosis: SocketDiagnosis | None, tables: SocketTables | None, routes: Routes | None
    ) -> None:
        """One of `diagnosis`, `tables` is there."""
        self._diagnosis = diagnosis
        self._tables = tables
        self._routes = routes

    @classmethod
    def open(cls) -> LocalPeers:
        """Find out what this system answers; raises ConfigError where it tells nobody's account."""
        try:
            routes = Routes()
        except OSError:
            routes = None
        diagnosis = _working_diagnosis()
        if diagnosis is not None:
            return cls(diagnosis, None, routes)
        try:
            tables = SocketTables()
        except OSError as error:
            if routes is not None:
                routes.close()
            raise ConfigError(
                "local.accounts: this system does not tell whose a connection is (neither "
                f"sock_diag nor /proc/net/tcp: {error.strerror or error}); local.accounts=all "
                "lets every account of the machine in (`waylog up --local-accounts all`)"
            ) from error
        logger.info("local.accounts: no sock_diag here, connections are looked up in /proc/net/tcp")
        return cls(None, tables, routes)

    def is_local(self, ends: ConnectionEnds) -> bool:
        """Tell whether the peer may be on this machine; where that cannot be told, it is."""
        if ends.is_of_this_machine or self._routes is None:
            return True
        try:
            return self._routes.is_own(ends.peer)
        except (OSError, MalformedAnswerError) as error:
            logger.warning("local.accounts: whether a peer is local cannot be told: %s", error)
            return True

    def peer_of(
        self, ends: ConnectionEnds
    ) -> SocketOwner | asyncio.Future[SocketOwner | None] | None:
        """The socket at the other end, at once or soon; None if there is none.

        Raises OSError, MalformedAnswerError.
        """
        if self._diagnosis is not None:
            return self._diagnosis.peer_of(ends)
        assert self._tables is not None
        return self._tables.peer_of(ends)

    async def close(self) -> None:
        """Answer nothing more."""
        if self._diagnosis is not None:
            self._diagnosis.close()
        if self._tables is not None:
            await self._tables.close()
        if self._routes is not None:
            self._routes.close()


def _working_diagnosis() -> SocketDiagnosis | None:
    """Sock_diag, if it knows a connection that there is: without its module it knows none."""
    try:
        diagnosis = SocketDiagnosis()
    except OSError:
        return None
    try:
        with (
            closing(socket.create_server(("127.0.0.1", 0))) as server,
            closing(socket.create_connection(server.getsockname())) as client,
        ):
            ends = ConnectionEnds.of_names(client.getsockname(), server.getsockname())
            if diagnosis.peer_of(ends) is not None:
                return diagnosis
    except (OSError, MalformedAnswerError) as error:
        logger.info("local.accounts: sock_diag: %s", error)
    diagnosis.close()
    return None
