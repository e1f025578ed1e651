"""A listening socket with its connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from broker_core.environment import ConnectionAcceptor, MakeAcceptor
from broker_core.ordered_set import OrderedSet
from broker_core.protocol.definitions import APIS
from broker_core.protocol.schema import AnyApi
from broker_core.server.network.connection import Connection
from broker_core.server.network.connection_context import ConnectionContext, Handle
from broker_core.server.network.incomplete_requests import IncompleteRequests
from broker_core.server.network.limits import ConnectionLimits, ConnectionRefused
from broker_core.server.network.local_accounts_guard import LocalAccountsGuard
from broker_core.server.network.request_turns import RequestTurns
from broker_core.server.network.session import ListenerSecurity
from waylog.config import Endpoint
from waylog.network.tls.handshakes import HandshakeScheduler, TlsHandshake
from waylog.network.token_bucket import TokenBucket
from waylog.process.log_throttle import LogThrottle
from waylog.supervision.reserved_ports import is_held

if TYPE_CHECKING:
    import ssl

    from broker_core.server.network.request_metrics import RequestMetrics

logger = logging.getLogger(__name__)

#: Bytes of the receive buffer that all connections of a listener share.
_SHARED_BYTES: Final = 256 * 1024

_ENDINGS_SAID_PER_S: Final = 20.0
#: Reasons for failed handshakes that are told apart.
_REASONS_MAX: Final = 20


class Listener:
    """Accepts connections, and closes those that exceed a limit or a timeout."""

    def __init__(
        self,
        handle: Handle,
        security: ListenerSecurity,
        limits: ConnectionLimits,
        *,
        turns: RequestTurns,
        acceptor: MakeAcceptor,
        frame_bytes_max: int,
        login_bytes_max: int,
        idle_ms_max: int,
        setup_ms_max: int,
        pending_max: int,
        tls: tuple[ssl.SSLContext, HandshakeScheduler] | None = None,
        metrics: RequestMetrics | None = None,
        apis: Mapping[int, AnyApi] = APIS,
        guard: LocalAccountsGuard | None = None,
    ) -> None:
        """`guard` says which accounts of this machine may connect; without it all may."""
        self.security = security
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.now = self.loop.time
        self._context = ConnectionContext(
            handle,
            security,
            apis,
            metrics,
            pending_max=pending_max,
            frame_bytes_max=frame_bytes_max,
            login_bytes_max=min(login_bytes_max, frame_bytes_max),
            shared_buffer=memoryview(bytearray(_SHARED_BYTES)),
            loop=self.loop,
            turns=turns,
            now=self.now,
        )
        self._tls = tls
        self._guard = guard
        self._idle_s_max = idle_ms_max / 1000
        self._setup_s_max = setup_ms_max / 1000
        self._connections: OrderedSet[Connection] = OrderedSet()
        self._refusals = LogThrottle()
        self._failed_handshakes: dict[str, LogThrottle] = {}
        self._endings = TokenBucket(_ENDINGS_SAID_PER_S, self.now, burst=_ENDINGS_SAID_PER_S)
        self._make_acceptor = acceptor
        self._acceptor: ConnectionAcceptor | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._connections)

    def bind(self, endpoint: Endpoint) -> Endpoint:
        """Bind without accepting; return the address with the actual port. Raises OSError."""
        self._acceptor = self._make_acceptor(partial(Connection, self, self._context))
        self._acceptor.bind(endpoint, reuse_port=is_held(endpoint))
        return endpoint.bound_to(self._acceptor.address)

    def serve(self) -> None:
        """Accept connections. Raises OSError."""
        if self._acceptor is not None:
            self._acceptor.listen()
            self._sweep()

    async def stop_accepting(self) -> None:
        """Accept no new connections."""
        if self._acceptor is not None:
            acceptor, self._acceptor = self._acceptor, None
            await acceptor.close()

    async def close(self) -> None:
        """Stop accepting, and close open connections."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        await self.stop_accepting()
        for connection in list(self._connections):
            connection.close()
        # One iteration to send what has been written; peers that do not receive are cut off then.
        await asyncio.sleep(0)
        while self._connections:
            for connection in list(self._connections):
                connection.abort()
            await asyncio.sleep(0)

    def begin_tls(self, plain: asyncio.Transport, connection: Connection) -> TlsHandshake | None:
        """Begin a TLS handshake; return None if this listener does not use TLS."""
        if self._tls is None:
            return None
        context, handshakes = self._tls
        return handshakes.begin(
            plain, context, lambda: self.party_of(connection, plain), connection
        )

    def party_of(self, connection: Connection, transport: asyncio.BaseTransport) -> str:
        """Return whose connection this is: an account of this machine, or else an address."""
        return self.limits.party_of(connection.peer_host, transport)

    @property
    def incomplete(self) -> IncompleteRequests:
        """What requests occupy that have not arrived completely, of all listeners."""
        return self.limits.incomplete

    def opened(self, connection: Connection, transport: asyncio.BaseTransport) -> None:
        """Admit or refuse a new connection; a TLS handshake has not been answered yet."""
        admitted = self._guard is None or self._guard.admits(transport)
        if admitted is False:
            self.limits.refused += 1
            connection.abort()
            return
        connection.last_active = connection.opened_at = self.now()
        try:
            connection.pool_party = self.limits.enter(connection.peer_host, transport)
        except ConnectionRefused as refused:
            self._refuse(connection, str(refused))
            return
        self._connections.add(connection)
        pause_s = self.limits.creation_pause_s(connection.peer_host, connection.opened_at)
        if pause_s > 0:
            connection.mute(int(pause_s * 1000) + 1)
        if isinstance(admitted, asyncio.Future):
            connection.hold()
            admitted.add_done_callback(lambda decided: self._decided(connection, decided.result()))

    def _refuse(self, connection: Connection, reason: str) -> None:
        unsaid = self._refusals.count(connection.opened_at) if reason else None
        if unsaid is not None:
            before = f" ({unsaid} more were refused before)" if unsaid else ""
            logger.warning("%s:%s is refused: %s%s", *connection.peer[:2], reason, before)
        connection.abort()

    def say_ending(self, connection: Connection, level: int, reason: str) -> None:
        """Log why a connection ends, but at most `_ENDINGS_SAID_PER_S` times a second.

        Any client that may connect can cause such lines as often as it likes.
        """
        endings = self._endings
        if not endings.take():
            return
        before = f" ({endings.refused} more were not logged)" if endings.refused else ""
        endings.refused = 0
        logger.log(level, "%s:%s is %s%s", *connection.peer[:2], reason, before)

    def say_failed_handshake(self, connection: Connection, reason: str) -> None:
        """Log why a TLS handshake failed, each reason once in a while.

        A client whose library does not accept our certificate comes again several times a second.
        """
        throttles = self._failed_handshakes
        # Reasons are texts of OpenSSL, of which a client could cause many.
        known = reason if reason in throttles or len(throttles) < _REASONS_MAX else ""
        unsaid = throttles.setdefault(known, LogThrottle()).count(self.now())
        if unsaid is not None:
            before = f" ({unsaid} more were before)" if unsaid else ""
            logger.info("%s:%s is disconnected: %s%s", *connection.peer[:2], reason, before)

    def _decided(self, connection: Connection, admitted: bool) -> None:
        if admitted:
            connection.release()
        else:
            self.limits.refused += 1
            connection.abort()

    def closed(self, connection: Connection) -> None:
        """Forget a connection that is gone."""
        if connection in self._connections:
            self._connections.remove(connection)
            self.limits.leave(connection.peer_host, connection.pool_party)

    def _sweep(self) -> None:
        now = self.now()
        for connection in list(self._connections):
            reason = connection.overdue(now, idle_s=self._idle_s_max, setup_s=self._setup_s_max)
            if reason is not None:
                self.say_ending(connection, logging.INFO, f"closed: {reason}")
                connection.close() if reason == "idle" else connection.reset()
        # One timer for all connections; timeouts are precise to a tenth of the shorter one.
        interval_s = min(self._idle_s_max, self._setup_s_max) / 10
        self._sweep_timer = self.loop.call_later(min(max(interval_s, 0.05), 5.0), self._sweep)
