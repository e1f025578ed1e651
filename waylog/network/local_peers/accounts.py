"""Names the local account of a connection's peer."""

from __future__ import annotations

import socket

from waylog.network.local_peers.connection_ends import ConnectionEnds
from waylog.network.local_peers.netlink import MalformedAnswerError, SocketDiagnosis
from waylog.network.local_peers.peers import working_diagnosis


class LocalAccounts:
    """Asks the kernel for accounts, in about 15 us each. Create it with `open`."""

    def __init__(self, diagnosis: SocketDiagnosis | None) -> None:
        """Without `diagnosis` no account is known."""
        self._diagnosis = diagnosis

    @classmethod
    def open(cls) -> LocalAccounts:
        """Create it, with what this system offers to look up accounts."""
        return cls(working_diagnosis())

    def of_peer(self, ends: ConnectionEnds) -> int | None:
        """Return the account that has the peer's socket open; None if the kernel tells of none.

        It tells of none on another machine, and of none after the socket has been closed.
        """
        if self._diagnosis is None:
            return None
        try:
            owner = self._diagnosis.peer_of(ends)
        except (OSError, MalformedAnswerError):
            return None
        return owner.uid if owner is not None and owner.is_told else None

    def of_local_client(self, connection: socket.socket) -> int | None:
        """Return the account of a connection that comes from this machine, as `of_peer` does.

        Nobody is asked about an address that may be another machine's.
        """
        try:
            ends = ConnectionEnds.of_names(connection.getpeername(), connection.getsockname())
        except (OSError, ValueError):
            return None  # it has been reset
        return self.of_peer(ends) if ends.is_of_this_machine else None

    def close(self) -> None:
        """Close the netlink socket."""
        if self._diagnosis is not None:
            self._diagnosis.close()
