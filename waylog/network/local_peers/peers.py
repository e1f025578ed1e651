"""Finds the local account a connection comes from, with what the kernel offers for it."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import closing

from waylog.config import ConfigError
from waylog.network.local_peers.connection_ends import ConnectionEnds
from waylog.network.local_peers.netlink import (
    MalformedAnswerError,
    Routes,
    SocketDiagnosis,
    SocketOwner,
)
from waylog.network.local_peers.tables import SocketTables

logger = logging.getLogger(__name__)


class LocalAddresses:
    """Tells which peers are on this machine. Create it with `open`."""

    def __init__(self, routes: Routes | None) -> None:
        """Without `routes` any peer counts as possibly local."""
        self._routes = routes

    @classmethod
    def open(cls) -> LocalAddresses:
        """Create it, with the kernel's routes if this system lets them be asked."""
        try:
            return cls(Routes())
        except OSError:
            return cls(None)

    def may_have(self, ends: ConnectionEnds) -> bool:
        """Return whether the peer may be on this machine; True if that cannot be determined."""
        if ends.is_of_this_machine or self._routes is None:
            return True
        try:
            return self._routes.is_own(ends.peer)
        except (OSError, MalformedAnswerError) as error:
            logger.warning("it cannot be told whether a peer is on this machine: %s", error)
            return True

    def close(self) -> None:
        """Close the netlink socket."""
        if self._routes is not None:
            self._routes.close()


class LocalPeers:
    """Looks up the peers of a broker's listeners. Create it with `open`."""

    def __init__(
        self,
        diagnosis: SocketDiagnosis | None,
        tables: SocketTables | None,
        addresses: LocalAddresses,
    ) -> None:
        """Either `diagnosis` or `tables` is given."""
        self._diagnosis = diagnosis
        self._tables = tables
        self._addresses = addresses

    @classmethod
    def open(cls) -> LocalPeers:
        """Use what this system offers; raises ConfigError if it does not tell accounts."""
        diagnosis = working_diagnosis()
        if diagnosis is not None:
            return cls(diagnosis, None, LocalAddresses.open())
        try:
            tables = SocketTables()
        except OSError as error:
            raise ConfigError(
                "local.accounts: this system does not tell whose a connection is (neither "
                f"sock_diag nor /proc/net/tcp: {error.strerror or error}); local.accounts=all "
                "lets every account of the machine in (`waylog up --local-accounts all`)"
            ) from error
        logger.info("local.accounts: no sock_diag here, connections are looked up in /proc/net/tcp")
        return cls(None, tables, LocalAddresses.open())

    def is_local(self, ends: ConnectionEnds) -> bool:
        """Return whether the peer may be on this machine; True if that cannot be determined."""
        return self._addresses.may_have(ends)

    def peer_of(
        self, ends: ConnectionEnds
    ) -> SocketOwner | asyncio.Future[SocketOwner | None] | None:
        """Return the socket at the other end or a future of it; None if there is none.

        Raises OSError, MalformedAnswerError.
        """
        if self._diagnosis is not None:
            return self._diagnosis.peer_of(ends)
        assert self._tables is not None
        return self._tables.peer_of(ends)

    async def close(self) -> None:
        """Close sockets; cancel look-ups under way."""
        if self._diagnosis is not None:
            self._diagnosis.close()
        if self._tables is not None:
            await self._tables.close()
        self._addresses.close()


def working_diagnosis() -> SocketDiagnosis | None:
    """Return sock_diag if it knows an existing connection: without its module it knows none."""
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
        logger.info("sock_diag does not tell whose a connection is: %s", error)
    diagnosis.close()
    return None
