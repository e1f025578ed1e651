"""The asyncio shell: sockets in, effects of the state machines out.

No task, timer or buffer per connection: one wheel has all deadlines, and all that a turn of the
event loop has to say to one client leaves in one write at its end.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, cast

from gateway.mqtt.acl import AccessRules
from gateway.mqtt.allowance import Allowance
from gateway.mqtt.application import (
    AddressView,
    Authenticator,
    Completion,
    Identity,
    LocationView,
    Pusher,
    Submitter,
)
from gateway.mqtt.codec import Publish
from gateway.mqtt.connection import LINGER_S, Connection
from gateway.mqtt.ingest import Ingest
from gateway.mqtt.outgoing import AUTHENTICATING, CLOSED, message_of
from gateway.mqtt.packets import Connect, PropertyId, ReasonCode
from gateway.mqtt.push import MqttAddressChannel
from gateway.mqtt.router import Router, WillDue
from gateway.mqtt.settings import Settings
from gateway.mqtt.timers import TimerWheel
from waylog.config import Endpoint
from waylog.telemetry import now_ms

logger = logging.getLogger(__name__)

BACKLOG: Final = 4096
_WRITE_BUFFER_BYTES: Final = 64 * 1024
_LOG_LINES_PER_S: Final = 20.0
_GOODBYE_S: Final = 0.5  # for the last bytes to leave when the server stops


class MqttProtocol(asyncio.Protocol):
    """Moves bytes between one socket and its Connection."""

    __slots__ = ("connection", "server", "transport")

    def __init__(self, server: MqttServer) -> None:
        self.server = server
        self.transport: asyncio.Transport | None = None
        self.connection = Connection(server.router, self, server.time())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        self.transport.set_write_buffer_limits(_WRITE_BUFFER_BYTES)
        self.server.opened(self)

    def data_received(self, data: bytes) -> None:
        now = self.server.time()
        self.connection.receive_data(data, now)
        self.process(now)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self.connection.lost(self.server.time())
        self.connection.owner = None  # no cycle that only the garbage collector could end
        self.server.closed(self)

    def pause_writing(self) -> None:
        self.connection.pause_writing(self.server.time())
        self._adapt_reading()

    def resume_writing(self) -> None:
        now = self.server.time()
        self.connection.resume_writing(now)
        self.process(now)

    def process(self, now: float) -> None:
        """Look at what has arrived, as far as there is room for it."""
        server, connection = self.server, self.connection
        while not server.saturated and (event := connection.next_event(now)) is not None:
            if type(event) is Publish:
                server.publish(connection, event, now)
            else:
                assert isinstance(event, Connect)
                server.authenticate(connection, event)
        self._adapt_reading()
        server.wake()

    def flush(self, now: float) -> None:
        """Carry out what the connection wants since the last turn of the loop."""
        connection, transport = self.connection, self.transport
        data = connection.take_outgoing(now)
        if transport is None:
            return
        if data:
            transport.write(data)
        if connection.closing is not None or connection.abort:
            self._end(transport, now)
        elif connection.unread:
            self.process(now)

    def _end(self, transport: asyncio.Transport, now: float) -> None:
        connection, router = self.connection, self.server.router
        ended_by_client = False
        if connection.closing is not None:
            ended_by_client = connection.closing[0] == ReasonCode.SUCCESS
            self.server.log_end(self, *connection.closing)
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
            # To close a socket that has unread data resets it, and the peer may never read why it
            # is refused: say that no more comes, and throw away what the peer still sends.
            try:
                transport.write_eof()
                if connection.unread:
                    connection.unread = False
                    transport.resume_reading()
            except OSError:  # the peer is gone already
                transport.abort()

    def _adapt_reading(self) -> None:
        connection, saturated = self.connection, self.server.saturated
        pause = (
            saturated
            or connection.blocked
            or connection.paused_since is not None
            or connection.state == AUTHENTICATING
        )
        if pause == connection.unread and not saturated:
            return
        transport = self.transport
        if transport is None or transport.is_closing() or connection.state == CLOSED:
            return
        if saturated:
            self.server.stalled[self] = None
        if pause == connection.unread:
            return
        connection.unread = pause
        if pause:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def peer(self) -> str:
        """Where the client is, for log lines."""
        name = self.transport.get_extra_info("peername") if self.transport is not None else None
        return f"{name[0]}:{name[1]}" if name else "?"


class MqttServer:
    """A listening MQTT server; made by `start_mqtt`.

    `counters` only grow; `gauges()` are of the moment.
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
    ) -> None:
        self._loop = loop
        self.time = loop.time
        self.settings = settings
        self.router = Router(settings, rules, loop.time())
        self.counters: Counter[str] = self.router.counters
        self.endpoint = Endpoint("", 0)
        self.channel = MqttAddressChannel(
            self.router, address_view, location_view, loop.time, self.wake
        )
        self.router.sources.append(self.channel)
        self._ingest = Ingest(submitter, rules, now_ms, self.counters)
        self._authenticator = authenticator
        self._authentications: set[asyncio.Task[None]] = set()
        self._protocols: set[MqttProtocol] = set()
        #: Too much waits for the log: no connection is read.
        self.saturated = False
        self.stalled: dict[MqttProtocol, None] = {}  # not read because of that
        self._in_flight = 0
        self._in_flight_bytes = 0
        self._draining = False
        self._flush_scheduled = False
        self._log_lines = Allowance(_LOG_LINES_PER_S)
        self._refusals = Allowance(settings.refusals_recorded_per_s)
        self._server: asyncio.Server | None = None
        self._pusher: Pusher | None = None
        self._tick_handle: asyncio.TimerHandle | None = None

    # --- life -----------------------------------------------------------------------------------

    async def start(self, endpoint: Endpoint, pusher: Pusher, *, reuse_port: bool) -> None:
        """Listen; raises OSError if that can't be."""
        self._server = await self._loop.create_server(
            lambda: MqttProtocol(self),
            endpoint.host,
            endpoint.port,
            backlog=BACKLOG,
            reuse_port=reuse_port or None,
        )
        host, port = self._server.sockets[0].getsockname()[:2]
        self.endpoint = Endpoint(host, port)
        self._tick()
        self._pusher = pusher
        pusher.register(self.channel)

    async def close(self, timeout_s: float = 5.0) -> None:
        """Stop listening, acknowledge what the log still confirms, and say goodbye."""
        if self._server is not None:
            self._server.close()
        if self._pusher is not None:
            self._pusher.unregister(self.channel)
        self._draining = self.saturated = True
        deadline = self.time() + timeout_s
        while self._in_flight and self.time() < deadline:
            await asyncio.sleep(0.01)
        for task in list(self._authentications):
            task.cancel()
        for protocol in list(self._protocols):
            protocol.connection.close(ReasonCode.SERVER_SHUTTING_DOWN, "the server stops")
        self._flush()
        deadline = self.time() + _GOODBYE_S
        while self._protocols and self.time() < deadline:
            await asyncio.sleep(0.01)
        for protocol in list(self._protocols):
            if protocol.transport is not None:
                protocol.transport.abort()
        if self._tick_handle is not None:
            self._tick_handle.cancel()
        await asyncio.sleep(0)

    def _tick(self) -> None:
        self._tick_handle = self._loop.call_later(TimerWheel.TICK_S, self._tick)
        self.router.advance(self.time())
        self.wake()

    # --- connections ----------------------------------------------------------------------------

    def opened(self, protocol: MqttProtocol) -> None:
        """A client has connected its socket."""
        self._protocols.add(protocol)
        self.counters["connections"] += 1
        if len(self._protocols) > self.settings.connections_max:
            self.counters["connections_refused"] += 1
            protocol.connection.abort = True
            protocol.connection.refuse(ReasonCode.QUOTA_EXCEEDED, "too many connections")
            self.wake()

    def closed(self, protocol: MqttProtocol) -> None:
        """A socket is closed."""
        self._protocols.discard(protocol)
        self.stalled.pop(protocol, None)
        self.wake()

    def log_end(self, protocol: MqttProtocol, reason_code: int, text: str) -> None:
        """Say why a connection ends, unless the client itself has said goodbye."""
        if reason_code == ReasonCode.SUCCESS:
            return
        self.counters["connections_ended"] += 1
        if not self._log_lines.take(self.time()):
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
            f"; {self._log_lines.refused} more were not logged" if self._log_lines.refused else "",
        )
        self._log_lines.refused = 0

    def gauges(self) -> dict[str, int]:
        """Figures of the moment."""
        return {
            "connections": len(self._protocols),
            "sessions": len(self.router.sessions),
            "offline_sessions": self.router.offline_sessions(),
            "retained_messages": len(self.router.retained),
            "retained_bytes": self.router.retained.size_bytes,
            "publishes_in_flight": self._in_flight,
        }

    # --- CONNECT --------------------------------------------------------------------------------

    def authenticate(self, connection: Connection, packet: Connect) -> None:
        """Ask who somebody is; the connection reads nothing more until that is known."""
        if packet.properties and PropertyId.AUTHENTICATION_METHOD in packet.properties:
            connection.refuse(
                ReasonCode.BAD_AUTHENTICATION_METHOD, "only user name and password are supported"
            )
            return
        task = self._loop.create_task(self._authenticate(connection, packet))
        self._authentications.add(task)
        task.add_done_callback(self._authentications.discard)

    async def _authenticate(self, connection: Connection, packet: Connect) -> None:
        assigned = packet.client_id or f"auto-{secrets.token_hex(8)}"
        user = assigned if packet.username is None else packet.username
        identity: Identity | None = None
        try:
            password = (packet.password or b"").decode()
            identity = await self._authenticator.authenticate(user, password)
        except UnicodeDecodeError:
            pass
        except Exception as error:
            if self._log_lines.take(self.time()):
                logger.warning("nobody can be authenticated: %r", error)
            connection.refuse(ReasonCode.SERVER_UNAVAILABLE, "authentication is not possible now")
            self.wake()
            return
        now = self.time()
        if identity is None:
            self._refuse(connection, packet, now)
        else:
            connection.accept(packet, identity, now, assigned_client_id=assigned)
        if connection.owner is not None:
            connection.owner.process(now)

    def _refuse(self, connection: Connection, packet: Connect, now: float) -> None:
        self.counters["connects_refused"] += 1
        reason = "unknown user or wrong password" if packet.username else "no user name was given"
        if self._refusals.take(now):
            self._ingest.refused_connect(packet.username, packet.client_id, f"CONNECT: {reason}")
        connection.refuse(
            ReasonCode.BAD_USER_NAME_OR_PASSWORD if packet.username else ReasonCode.NOT_AUTHORIZED,
            reason,
        )

    # --- PUBLISH --------------------------------------------------------------------------------

    def publish(self, connection: Connection, packet: Publish, now: float) -> None:
        """Store a message; it is acknowledged when the log has it."""
        session = connection.session
        assert session is not None
        route = connection.route
        if route is None or route.topic != packet.topic:
            route = connection.route = self._ingest.route(session.identity, packet.topic)
        self.counters["publishes"] += 1
        code, completions = self._ingest.submit(session.identity, route, packet.payload)
        if not completions:
            connection.acknowledge(packet, code, now)
            return
        self._in_flight += 1
        self._in_flight_bytes += len(packet.payload)
        _when_all_are_done(completions, partial(self._stored, connection, packet, code))
        if (
            self._in_flight >= self.settings.all_publishes_in_flight_max
            or self._in_flight_bytes >= self.settings.all_publish_bytes_in_flight_max
        ):
            self.saturated = True

    def _stored(
        self,
        connection: Connection,
        packet: Publish,
        code: int,
        completion: Completion,
    ) -> None:
        self._in_flight -= 1
        self._in_flight_bytes -= len(packet.payload)
        if self.saturated:
            self._relieve()
        if completion.cancelled() or completion.exception() is not None:
            self.counters["appends_failed"] += 1
            # Without an acknowledgement the client sends it again on its next connection.
            connection.close(ReasonCode.SERVER_BUSY, "the log does not accept messages now")
        else:
            connection.acknowledge(packet, code, self.time())
        self.wake()

    def _relieve(self) -> None:
        if (
            self._draining
            or self._in_flight > self.settings.all_publishes_in_flight_max // 2
            or self._in_flight_bytes > self.settings.all_publish_bytes_in_flight_max // 2
        ):
            return
        self.saturated = False
        stalled, self.stalled = self.stalled, {}
        now = self.time()
        for protocol in stalled:
            protocol.process(now)

    def _publish_will(self, due: WillDue) -> None:
        """Store the will of a client that went without a word, and pass it on."""
        will = due.will
        self.counters["wills"] += 1
        route = self._ingest.route(due.identity, will.topic)
        code, completions = self._ingest.submit(due.identity, route, will.payload)
        if completions:
            _when_all_are_done(completions, partial(self._will_stored, due, code))
        elif code == ReasonCode.SUCCESS:
            self._forward_will(due)

    def _will_stored(self, due: WillDue, code: int, completion: Completion) -> None:
        if completion.cancelled() or completion.exception() is not None:
            self.counters["appends_failed"] += 1
        elif code == ReasonCode.SUCCESS:
            self._forward_will(due)
            self.wake()

    def _forward_will(self, due: WillDue) -> None:
        will, now = due.will, self.time()
        message = message_of(will.topic, will.payload, will.qos, will.retain, will.properties, now)
        self.router.publish(message, None, now)

    # --- effects --------------------------------------------------------------------------------

    def wake(self) -> None:
        """Have the effects of this turn of the loop carried out at its end."""
        if not self._flush_scheduled and (self.router.changed or self.router.wills):
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        router = self.router
        changed, router.changed = router.changed, []
        now = self.time()
        for connection in changed:
            if connection.owner is not None:
                connection.owner.flush(now)
        if router.wills:
            wills, router.wills = router.wills, []
            for due in wills:
                self._publish_will(due)
        self.wake()


def _when_all_are_done(
    completions: Sequence[Completion], callback: Callable[[Completion], object]
) -> None:
    """Call `callback` once, with the first that failed or with the last."""
    if len(completions) == 1:
        completions[0].add_done_callback(callback)
        return
    missing = len(completions)

    def done(completion: Completion) -> None:
        nonlocal missing
        if missing <= 0:
            return
        missing -= 1
        if completion.cancelled() or completion.exception() is not None:
            missing = 0
        if not missing:
            callback(completion)

    for each in completions:
        each.add_done_callback(done)


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
    reuse_port: bool = False,
) -> MqttServer:
    """Listen for MQTT on `endpoint` (port 0: the system chooses, see `MqttServer.endpoint`)."""
    server = MqttServer(
        asyncio.get_running_loop(),
        submitter=submitter,
        authenticator=authenticator,
        address_view=address_view,
        location_view=location_view,
        settings=settings or Settings(),
        rules=rules or AccessRules(),
    )
    await server.start(endpoint, pusher, reuse_port=reuse_port)
    return server
