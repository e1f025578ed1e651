"""The MQTT server on asyncio: feeds sockets to the state machines and carries out their effects.

No connection has a task, timer or buffer of its own: one timer wheel holds all deadlines, and what
a turn of the event loop sends to one client leaves in one write at its end.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence, Set
from functools import partial
from typing import Final

from gateway.bodies.parsing import Parsing
from gateway.friends.friend_events import FriendEventFilter
from gateway.limits.addresses import Addresses, TrustedProxies, is_loopback
from gateway.limits.bounds import HttpLimits
from gateway.limits.failed_logins import FailedLogins
from gateway.limits.refusal_sampler import RefusalSampler
from gateway.mqtt.interfaces import (
    AddressView,
    Authenticator,
    LocationView,
    Mechanism,
    Pusher,
    Submitter,
)
from gateway.mqtt.journal.journal import Journal
from gateway.mqtt.journal.stored import SessionKey
from gateway.mqtt.listening.authentication import Authentication
from gateway.mqtt.listening.connection_preamble import ConnectionPreamble
from gateway.mqtt.listening.large import LargeMessages
from gateway.mqtt.listening.wills import Wills
from gateway.mqtt.packets.decoder import Publish
from gateway.mqtt.packets.packets import Auth, Connect, ReasonCode
from gateway.mqtt.publishing.ingest import Ingest
from gateway.mqtt.publishing.mapping import TopicRule
from gateway.mqtt.publishing.topic_route import TopicRoute
from gateway.mqtt.rights.acl import AccessRules
from gateway.mqtt.rights.delivery_rights import DeliveryRights
from gateway.mqtt.sessions.connection import LINGER_S, Connection
from gateway.mqtt.sessions.push import MqttAddressChannel
from gateway.mqtt.sessions.router import Router
from gateway.mqtt.sessions.shell import MqttProtocol, Shell
from gateway.mqtt.sessions.timers import TimerWheel
from gateway.mqtt.settings import Settings
from gateway.users.admission import Admission
from gateway.users.permissions import Permissions
from waylog.config import Endpoint
from waylog.network.acceptor import Acceptor
from waylog.network.connection_pool import ConnectionPool
from waylog.network.peer_parties import party_of
from waylog.network.tls.handshakes import HandshakeScheduler
from waylog.network.token_bucket import TokenBucket
from waylog.observability.telemetry import now_ms
from waylog.supervision.reserved_ports import is_held

logger = logging.getLogger(__name__)

_LOG_LINES_PER_S: Final = 20.0
#: Seconds of one turn of the event loop that timers which are due may take.
_TURN_S: Final = 0.0005
#: Timers that are handled between two looks at the clock.
_DUE_A_STEP: Final = 4
#: Seconds for the last bytes to leave when the server stops.
_GOODBYE_S: Final = 0.5


class MqttServer(Shell):
    """A listening MQTT server, made by `start_mqtt`.

    `counters` only grow; `gauges()` returns current values.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        submitter: Submitter,
        authenticator: Authenticator,
        address_view: AddressView,
        location_view: LocationView,
        settings: Settings,
        rules: AccessRules,
        journal: Journal | None = None,
        mapping: Sequence[TopicRule] = (),
        mechanisms: Sequence[Mechanism] = (),
        admission: Admission | None = None,
        addresses: Addresses | None = None,
        connections: ConnectionPool | None = None,
        failed_logins: FailedLogins | None = None,
        refusals: RefusalSampler | None = None,
        proxies: TrustedProxies | None = None,
        permissions: Permissions | None = None,
        telling: FriendEventFilter | None = None,
        parsing: Parsing | None = None,
    ) -> None:
        rights = DeliveryRights(rules, permissions, telling)
        router = Router(settings, rules, loop.time(), rights)
        self.counters: Counter[str] = router.counters
        ingest = Ingest(submitter, rules, now_ms, self.counters, mapping, admission)
        super().__init__(router, ingest, loop)
        self._large = None if parsing is None else LargeMessages(self, ingest, parsing)
        self._wills = Wills(self, router, ingest, self._large)
        self._loop = loop
        self.settings = settings
        self.endpoint = Endpoint("", 0)
        self.tls_endpoint = Endpoint("", 0)
        self.channel = MqttAddressChannel(
            self.router, address_view, location_view, loop.time, self.wake
        )
        self.router.sources.append(self.channel)
        #: Authenticates clients, from CONNECT to a session.
        self.authentication = Authentication(
            self,
            authenticator,
            mechanisms,
            failed_logins if failed_logins is not None else FailedLogins(),
            refusals if refusals is not None else RefusalSampler(),
        )
        #: Limits per address, shared with the HTTP listener of the process.
        self.addresses = addresses if addresses is not None else Addresses(HttpLimits())
        # Only a CONNECT tells whether a client understands the name of another server.
        heard = 0 if settings.other_server is None else settings.connections_redirected_max
        room = settings.connections_max + heard
        #: The pool of TCP connections; those over WebSocket belong to the HTTP listener.
        self.pool = (connections or ConnectionPool(room)).part(room, "MQTT")
        #: The TLS handshakes that are under way.
        self.handshakes = HandshakeScheduler(settings.connect_timeout_s)
        #: The proxies whose connections may begin with a PROXY header.
        self.proxies = proxies if proxies is not None else TrustedProxies()
        self._protocols: set[MqttProtocol] = set()
        #: Fetches the session of a client from the worker that has it. The second argument tells
        #: whether the client wants a new session (Clean Start). Raises SessionBusy.
        self.claim: Callable[[SessionKey, bool], Awaitable[None]] | None = None
        #: Limits the log lines that clients cause.
        self.log_lines = TokenBucket(_LOG_LINES_PER_S, self.time, burst=_LOG_LINES_PER_S)
        self._acceptors: list[Acceptor] = []
        self._pusher: Pusher | None = None
        self._tick_handle: asyncio.TimerHandle | None = None
        self._journal = journal
        if journal is not None:
            router.keep(journal, loop.time())

    # --- life -----------------------------------------------------------------------------------

    async def start(self, endpoint: Endpoint, pusher: Pusher, *, reuse_port: bool) -> None:
        """Listen; raises OSError if the endpoint cannot be bound."""
        self.endpoint = self._listen(endpoint, reuse_port, None)
        self._tick()
        self._pusher = pusher
        pusher.register(self.channel)

    async def start_tls(
        self, endpoint: Endpoint, context: ssl.SSLContext, *, reuse_port: bool = False
    ) -> None:
        """Listen with TLS as well; raises OSError if the endpoint cannot be bound."""
        self.tls_endpoint = self._listen(endpoint, reuse_port, context)

    def _listen(
        self, endpoint: Endpoint, reuse_port: bool, context: ssl.SSLContext | None
    ) -> Endpoint:
        acceptor = Acceptor(partial(self._accept, context))
        acceptor.bind(endpoint, reuse_port=reuse_port or is_held(endpoint))
        acceptor.listen()
        self._acceptors.append(acceptor)
        return acceptor.address

    def _accept(self, context: ssl.SSLContext | None) -> asyncio.BaseProtocol:
        return ConnectionPreamble(self, context)

    async def close(self, timeout_s: float = 5.0) -> None:
        """Stop listening, wait until the log confirms what is in flight, and disconnect clients."""
        while self._acceptors:
            await self._acceptors.pop().close()
        if self._pusher is not None:
            self._pusher.unregister(self.channel)
        self.publishes.drain()
        deadline = self.time() + timeout_s
        while self.publishes.count and self.time() < deadline:
            await asyncio.sleep(0.01)
        self.authentication.close()
        if self._large is not None:
            await self._large.close()
        goodbye = ReasonCode.SERVER_SHUTTING_DOWN
        if self.settings.other_server is not None:
            goodbye = ReasonCode.USE_ANOTHER_SERVER
        for protocol in list(self._protocols):
            protocol.connection.close(goodbye, "the server stops", self.settings.other_server)
        self.flush()
        deadline = self.time() + _GOODBYE_S
        while (
            self._protocols or self.router.wills or self._wills.pending
        ) and self.time() < deadline:
            await asyncio.sleep(0.01)
        for protocol in list(self._protocols):
            if protocol.transport is not None:
                protocol.transport.abort()
        if self._tick_handle is not None:
            self._tick_handle.cancel()
        await asyncio.sleep(0)
        if self._journal is not None:
            await self._journal.stop(self.router.sessions.values())

    def _tick(self) -> None:
        self._tick_handle = self._loop.call_later(TimerWheel.TICK_S, self._tick)
        self._advance()

    def _advance(self) -> None:
        now = self.time()
        while self.router.advance(now, _DUE_A_STEP):
            if self.time() - now > _TURN_S:
                self._loop.call_soon(self._advance)
                break
        self.wake()

    # --- connections ----------------------------------------------------------------------------

    def opened(self, protocol: MqttProtocol) -> None:
        """Count a new connection, and refuse it if there are too many."""
        self._protocols.add(protocol)
        self.counters["connections"] += 1
        if len(self._protocols) > self.pool.total:
            self._turn_away(protocol, "too many connections")
        elif not protocol.counted:
            protocol.counted = self.may_connect(protocol.address)
            if not protocol.counted:
                self._turn_away(protocol, "too many connections from one address")

    def _turn_away(self, protocol: MqttProtocol, text: str) -> None:
        self.counters["connections_refused"] += 1
        protocol.connection.abort = True
        protocol.connection.refuse(ReasonCode.QUOTA_EXCEEDED, text)
        self.wake()

    def beyond_share(self, protocol: MqttProtocol, what: str, text: str) -> None:
        """Disconnect a client whose user or address exceeds its share of a common resource."""
        self.counters[f"{what}_beyond_share"] += 1
        connection = protocol.connection
        connection.abort = what == "unread"
        connection.reject(ReasonCode.QUOTA_EXCEEDED, text)
        self.wake()

    def party_of_unknown(self, transport: asyncio.BaseTransport | None, address: str) -> str:
        """Return the party that is charged for a client which has not signed in.

        It is the client's address. For loopback connections it is the local account, unless that
        is the server's own.
        """
        account = ""
        if transport is not None and is_loopback(address):
            account = self.pool.party_of(transport)
        return account or f"address {party_of(address)}"

    def may_connect(self, address: str) -> bool:
        """Count a connection of an address; return False, uncounted, if it has too many."""
        return self.addresses.may_ask(address) and self.addresses.connect(address)

    def disconnected(self, address: str) -> None:
        """Discount a connection that was counted for an address."""
        self.addresses.disconnect(address)

    def closed(self, protocol: MqttProtocol) -> None:
        """Discard what the server holds for a protocol whose socket is closed."""
        self._protocols.discard(protocol)
        if protocol.pool_party is not None:
            self.pool.leave(protocol.pool_party)
        if protocol.counted:
            self.disconnected(protocol.address)
        self.publishes.forget(protocol.connection)
        self.authentication.forget(protocol.connection)
        self.wake()

    def log_end(self, protocol: MqttProtocol, reason_code: int, text: str) -> None:
        """Log why a connection ends, unless the client itself has disconnected."""
        if reason_code == ReasonCode.SUCCESS:
            return
        self.counters["connections_ended"] += 1
        if not self.log_lines.take():
            return
        session = protocol.connection.session
        logger.info(
            "connection of %s from %s ended: %s (reason code 0x%02X)%s",
            "an unknown client"
            if session is None
            else f"{session.client_id!r} (user {session.identity.user!r})",
            protocol.peer(),
            text,
            reason_code,
            f"; {self.log_lines.refused} more were not logged" if self.log_lines.refused else "",
        )
        self.log_lines.refused = 0

    def end(self, protocol: MqttProtocol, now: float) -> None:
        """Close the socket of a connection that the state machine has ended."""
        connection, transport, router = protocol.connection, protocol.transport, self.router
        assert transport is not None
        ended_by_client = False
        if connection.closing is not None:
            ended_by_client = connection.closing[0] == ReasonCode.SUCCESS
            self.log_end(protocol, *connection.closing)
            connection.closing = None
            router.connection_lost(connection, now)
        router.timers.cancel(connection)
        if connection.abort:
            transport.abort()
        elif not transport.is_closing():
            # A peer that does not take its last bytes must not keep the socket.
            router.timers.schedule(connection, now + LINGER_S)
            if ended_by_client or not transport.can_write_eof():
                transport.close()
                return
            # Closing a socket that has unread data resets it, and the peer may never read why it
            # is refused: shut down only our side, and discard what the peer still sends.
            try:
                transport.write_eof()
                if connection.unread:
                    connection.unread = False
                    transport.resume_reading()
            except OSError:  # the peer has disconnected already
                transport.abort()

    #: Metrics with current values, and their descriptions.
    GAUGES: Final = {
        "connections": "Connections.",
        "sessions": "Sessions, of clients that are connected or away.",
        "offline_sessions": "Sessions of clients that are away.",
        "retained_messages": "Retained messages.",
        "retained_bytes": "Memory of retained messages.",
        "retained_evicted": "Retained messages that had to go for others.",
        "held_bytes": "Memory of messages that wait for clients.",
        "publishes_in_flight": "Messages that wait for the log.",
    }

    def gauges(self) -> dict[str, int]:
        """Return the current values of GAUGES."""
        return {
            "connections": len(self._protocols),
            "sessions": len(self.router.sessions),
            "offline_sessions": self.router.offline_sessions(),
            "retained_messages": len(self.router.retained),
            "retained_bytes": self.router.retained.size_bytes,
            "retained_evicted": self.router.retained.evicted,
            "held_bytes": self.router.accounts.held_bytes,
            "publishes_in_flight": self.publishes.count,
        }

    def gauge(self, name: str) -> int:
        """Return the current value of one of GAUGES."""
        return self.gauges()[name]

    # --- CONNECT --------------------------------------------------------------------------------

    def authenticate(self, connection: Connection, packet: Connect | Auth) -> None:
        """Authenticate a client; its connection is not read until the result is known."""
        if isinstance(packet, Auth):
            self.authentication.go_on(connection, packet)
            return
        settings = self.settings
        if settings.moved_to is not None:
            self.counters["connections_redirected"] += 1
            connection.refuse(ReasonCode.SERVER_MOVED, "the server has moved", settings.moved_to)
            return
        if settings.other_server is not None and len(self._protocols) > settings.connections_max:
            self.counters["connections_redirected"] += 1
            connection.refuse(
                ReasonCode.USE_ANOTHER_SERVER, "too many connections", settings.other_server
            )
            return
        self.authentication.begin(connection, packet)

    def rights_changed(self, users: Set[str]) -> None:
        """Apply the current rights to the clients of some users; called by Permissions."""
        self.router.right_changes.apply(users, self.time())
        self.wake()

    def homes_changed(self) -> None:
        """Send what was held back until users' homes were known; called by Places."""
        self.router.right_changes.send_untold(self.time())
        self.wake()

    # --- for the shell --------------------------------------------------------------------------

    def publish_wills(self, until: float) -> None:
        """Publish the wills that are due, until time `until` (s)."""
        self._wills.publish(until)

    def read_elsewhere(self, connection: Connection, packet: Publish, route: TopicRoute) -> bool:
        """Have a large PUBLISH parsed outside the event loop; False if it is to be parsed here."""
        if self._large is None or not self._large.is_large(route, packet.payload):
            return False
        self._large.take(connection, packet, route)
        return True


async def start_mqtt(
    endpoint: Endpoint,
    *,
    submitter: Submitter,
    authenticator: Authenticator,
    address_view: AddressView,
    location_view: LocationView,
    pusher: Pusher,
    settings: Settings | None = None,
    rules: AccessRules | None = None,
    journal: Journal | None = None,
    mapping: Sequence[TopicRule] = (),
    mechanisms: Sequence[Mechanism] = (),
    admission: Admission | None = None,
    addresses: Addresses | None = None,
    connections: ConnectionPool | None = None,
    failed_logins: FailedLogins | None = None,
    refusals: RefusalSampler | None = None,
    proxies: TrustedProxies | None = None,
    permissions: Permissions | None = None,
    telling: FriendEventFilter | None = None,
    parsing: Parsing | None = None,
    reuse_port: bool = False,
    before_listening: Callable[[MqttServer], Awaitable[None]] | None = None,
) -> MqttServer:
    """Listen for MQTT on `endpoint` (with port 0 the system chooses, see `MqttServer.endpoint`).

    Without `journal`, sessions and retained messages end with the server. Without `permissions`,
    rights never change. Without `telling`, friends receive nothing. Without `parsing`, large
    messages are parsed in the event loop, which delays other clients.

    The first client may come after `before_listening` has returned.
    """
    server = MqttServer(
        asyncio.get_running_loop(),
        submitter=submitter,
        authenticator=authenticator,
        address_view=address_view,
        location_view=location_view,
        settings=settings or Settings(),
        rules=rules or AccessRules(),
        journal=journal,
        mapping=mapping,
        mechanisms=mechanisms,
        admission=admission,
        addresses=addresses,
        connections=connections,
        failed_logins=failed_logins,
        refusals=refusals,
        proxies=proxies,
        permissions=permissions,
        telling=telling,
        parsing=parsing,
    )
    if before_listening is not None:
        await before_listening(server)
    await server.start(endpoint, pusher, reuse_port=reuse_port)
    return server
