"""Admits connections from this machine only if they come from certain accounts."""

from __future__ import annotations

import asyncio
import logging
import pwd
import socket
from typing import Final

from waylog.network.connection_ends import tcp_state
from waylog.network.local_accounts import is_distinct
from waylog.network.local_peers.connection_ends import CLOSE_WAIT, ESTABLISHED, ConnectionEnds
from waylog.network.local_peers.netlink import MalformedAnswerError, SocketOwner
from waylog.network.local_peers.peers import LocalPeers
from waylog.process.log_throttle import LogThrottle

logger = logging.getLogger(__name__)

#: Of our end: in CLOSE_WAIT the peer has closed its side, and may wait for answers.
_OPEN_STATES: Final = frozenset((ESTABLISHED, CLOSE_WAIT))


class LocalAccountsGuard:
    """Decides about each new connection of one listener.

    A socket belongs to the account that created it. The kernel names that account while a process
    has the socket open; afterwards, and in TIME_WAIT, it may name root. So the peer's socket counts
    only if it is open and has an inode. In addition, our own end has to be open after the kernel's
    answer: until then no other socket can have been connected from the peer's address and port to
    ours. After the connection has ended, the next socket may have them.

    A peer that has sent its requests and shut down its side waits for the answers: it is as good as
    any other.
    """

    def __init__(self, name: str, setting: str, allowed: frozenset[int], peers: LocalPeers) -> None:
        """`setting` is the property's value as given for the listener called `name`."""
        self._name = name
        self._setting = setting
        self._allowed = allowed
        self._peers = peers
        self._loop = asyncio.get_running_loop()
        self._refusals = LogThrottle()

    def admits(self, transport: asyncio.BaseTransport) -> bool | asyncio.Future[bool]:
        """Tell whether a connection may be served: at once, or by a future if that takes time."""
        own_end: socket.socket = transport.get_extra_info("socket")
        try:
            ends = ConnectionEnds.of_names(
                transport.get_extra_info("peername"), transport.get_extra_info("sockname")
            )
            if not self._peers.is_local(ends):
                return True
            owner = self._peers.peer_of(ends)
        except (OSError, MalformedAnswerError, TypeError) as error:
            # TypeError: a connection that is already closed has no addresses.
            return self._decide(own_end, transport, None, error)
        if not isinstance(owner, asyncio.Future):
            return self._decide(own_end, transport, owner)
        decided: asyncio.Future[bool] = self._loop.create_future()

        def found(answer: asyncio.Future[SocketOwner | None]) -> None:
            if answer.cancelled() or transport.is_closing():
                decided.set_result(False)
            elif (error := answer.exception()) is not None:
                decided.set_result(self._decide(own_end, transport, None, error))
            else:
                decided.set_result(self._decide(own_end, transport, answer.result()))

        owner.add_done_callback(found)
        return decided

    def _decide(
        self,
        own_end: socket.socket,
        transport: asyncio.BaseTransport,
        owner: SocketOwner | None,
        error: BaseException | None = None,
    ) -> bool:
        state = _state_of(own_end)
        if state not in _OPEN_STATES:
            return False  # the peer is gone: no refusal to log
        peer = transport.get_extra_info("peername") or ("?", 0)
        if owner is None or not owner.is_told:
            if state == CLOSE_WAIT:
                return False  # nobody waits for an answer
            why = error or "the kernel knows no such socket in this network namespace"
            self._refused(peer, None, str(why))
            return False
        if owner.uid not in self._allowed:
            self._refused(peer, owner.uid, "")
            return False
        return True

    def _refused(self, peer: tuple[str, int], uid: int | None, why: str) -> None:
        unsaid = self._refusals.count(self._loop.time())
        if unsaid is None:
            return
        # A lookup of account names may ask another machine, which can take a while.
        self._loop.run_in_executor(None, self._say, peer, uid, why, unsaid)

    def _say(self, peer: tuple[str, int], uid: int | None, why: str, unsaid: int) -> None:
        """Log a refusal; never raises."""
        before = f" ({unsaid} more were refused before)" if unsaid else ""
        account = f"its account cannot be told: {why}"
        if uid is not None:
            account = f"account {_name_of(uid)} is not among local.accounts={self._setting}"
        logger.warning(
            "%s:%s is refused by listener %s: %s; listener.name.%s.local.accounts, or "
            "local.accounts (`waylog up --local-accounts`), says who may connect%s",
            *peer[:2],
            self._name,
            account,
            self._name.lower(),
            before,
        )


def _state_of(own_end: socket.socket) -> int | None:
    try:
        return tcp_state(own_end)
    except OSError:
        return None


def _name_of(uid: int) -> str:
    if not is_distinct(uid):
        return f"uid {uid} (as which this user namespace has all accounts that it does not map)"
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except (KeyError, OSError):
        return f"uid {uid}"
