"""A client's connection: decodes requests, and sends responses in the order of the requests."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, cast

from broker_core.protocol.definitions import SASL_AUTHENTICATE
from broker_core.protocol.definitions.messages import RequestHeader, decode_request
from broker_core.protocol.errors import RemoteProtocolError
from broker_core.protocol.framing import FrameReader
from broker_core.protocol.parts import Buffer, Part
from broker_core.security.principal import ANONYMOUS
from broker_core.server.network.connection_context import ConnectionContext
from broker_core.server.network.file_sender import FileSender, PieceSender
from broker_core.server.network.incomplete_requests import IncompleteRequests
from broker_core.server.network.request import AnyRequest, Request
from broker_core.server.network.session import ClientSession
from waylog.network.connection_ends import reset
from waylog.network.tls.handshakes import TlsHandshake

logger = logging.getLogger(__name__)

#: Bytes of unsent responses above which a connection reads no further requests.
_UNSENT_BYTES_MAX: Final = 256 * 1024

#: Bytes of responses that are gathered, to leave together, before they are sent.
_ANSWERED_BYTES_MAX: Final = 64 * 1024

#: A request has to arrive at this rate at least, apart from an initial allowance.
_SLOWEST_BYTES_PER_S: Final = 4096
_BUFFERS: Final = (bytes, bytearray, memoryview)

_perf_counter = time.perf_counter


class ConnectionOwner(Protocol):
    """The listener of a connection, which admits it and may end it."""

    def begin_tls(self, plain: asyncio.Transport, connection: Connection) -> TlsHandshake | None:
        """Begin a TLS handshake; return None without TLS."""

    def opened(self, connection: Connection, transport: asyncio.BaseTransport) -> None:
        """Admit or refuse a new connection."""

    def closed(self, connection: Connection) -> None:
        """Forget a connection that is gone."""

    def party_of(self, connection: Connection, transport: asyncio.BaseTransport) -> str:
        """Return whose connection this is: an account of this machine, or else an address."""

    @property
    def incomplete(self) -> IncompleteRequests:
        """What requests occupy that have not arrived completely, of all listeners."""

    def say_ending(self, connection: Connection, level: int, reason: str) -> None:
        """Log why a connection ends."""

    def say_failed_handshake(self, connection: Connection, reason: str) -> None:
        """Log why a TLS handshake failed."""


class Connection(asyncio.BufferedProtocol):
    """One client's connection."""

    __slots__ = (
        "_answered_bytes",
        "_arrived",
        "_closing",
        "_context",
        "_holds",
        "_is_encrypted",
        "_listener",
        "_mute_timer",
        "_party",
        "_pending",
        "_reader",
        "_reading",
        "_reserved",
        "_reserved_for",
        "_sender",
        "_sending",
        "_taking",
        "_transport",
        "_waits",
        "_writable",
        "frame_since",
        "last_active",
        "lost",
        "opened_at",
        "peer",
        "pool_party",
        "served",
        "session",
    )

    session: ClientSession
    #: Responses may contain parts that are sent from files.
    sends_files = True

    def __init__(self, listener: ConnectionOwner, context: ConnectionContext) -> None:
        self._listener = listener
        self._context = context
        self._reader = FrameReader(context.shared_buffer, frame_bytes_max=context.frame_bytes_max)
        self._pending: deque[AnyRequest] = deque()
        self._transport: asyncio.Transport | None = None
        # Further requests are read; the client receives our responses.
        self._reading = True
        self._writable = True
        self._closing = False
        # Reasons for which no requests are read until they are released.
        self._holds = 0
        # True while it waits for its turn with what it has received.
        self._waits = False
        # Its account or address, when it has been looked up.
        self._party: str | None = None
        self._mute_timer: asyncio.TimerHandle | None = None
        # Time at which the bytes that are being decoded arrived, if there are metrics.
        self._arrived = 0.0
        # True while requests are taken, whose responses then leave together; true while a callback
        # that sends responses is scheduled; bytes of the responses to send.
        self._taking = False
        self._sending = False
        self._answered_bytes = 0
        # Sends the response that has been begun, if that contains parts of files.
        self._sender: FileSender | PieceSender | None = None
        self._is_encrypted = False
        # Bytes of buffer that an incomplete request occupies, and the party they count for.
        self._reserved = 0
        self._reserved_for = ""
        self.last_active = 0.0
        self.opened_at = 0.0
        #: Time since which a request is incomplete; None if there is none.
        self.frame_since: float | None = None
        #: True if there has been a request.
        self.served = False
        self.peer: tuple[Any, ...] = ("?", 0)
        #: Party of the connection pool that this connection counts for.
        self.pool_party = ""
        #: Called when the connection is lost.
        self.lost: Callable[[], None] | None = None

    @property
    def peer_host(self) -> str:
        """The client's address."""
        return str(self.peer[0])

    # ---------------------------------------------------------------------------------- transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.BaseProtocol."""
        plain = cast(asyncio.Transport, transport)
        self.peer = plain.get_extra_info("peername") or self.peer
        handshake = self._listener.begin_tls(plain, self)
        if handshake is None:
            self._start(plain)
        self._transport = handshake or plain
        self._listener.opened(self, plain)
        if not self._reading:
            # uvloop begins to read after this method, even if reading has been paused in it.
            self._context.loop.call_soon(self._run, self._keep_paused)

    def encrypted(self, transport: asyncio.Transport) -> Connection:
        """See waylog.network.tls.handshakes.PendingHandshake."""
        self._is_encrypted = True
        self._start(transport)
        self._transport = transport
        if not self._reading:
            transport.pause_reading()
        return self

    def failed(self, reason: str | None) -> None:
        """See waylog.network.tls.handshakes.PendingHandshake."""
        if reason is not None:
            self._listener.say_failed_handshake(self, reason)
        self.connection_lost(None)

    def _start(self, transport: asyncio.Transport) -> None:
        transport.set_write_buffer_limits(high=_UNSENT_BYTES_MAX)
        self.session = self._context.security.open_session(transport.get_extra_info("peercert"))
        if not self.session.is_authenticated:
            self._reader.frame_bytes_max = self._context.login_bytes_max

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        self._transport = None
        self._reserve(0)
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        self._listener.closed(self)
        pending, self._pending = self._pending, deque()
        for request in pending:
            if request.parts is None and request.on_close is not None:
                request.on_close()
        if self.lost is not None:
            self.lost()

    def when_lost(self, lost: Callable[[], None]) -> None:
        """Call `lost` when the connection is lost; it replaces an earlier callback."""
        self.lost = lost

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol."""
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        self.last_active = self._context.now()
        if self._context.metrics is not None:
            self._arrived = _perf_counter()
        self._reader.received(nbytes)
        turns = self._context.turns
        end = turns.end_of_turn()
        if turns.must_wait:
            self._wait_for_turn()
            self._take_frames(end)
        else:
            self._take_frames(end)
            turns.ended(end)

    def pause_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        self._writable = False
        self._stop_reading()

    def resume_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        self._writable = True
        self.last_active = self._context.now()
        if self._sender is not None:
            self._sender.go_on()
        self._go_on_reading()

    # ----------------------------------------------------------------------------------- requests

    def _take_frames(self, end: float) -> None:
        """Handle requests until the turn is over."""
        reader = self._reader
        turns = self._context.turns
        problem: str | None = None
        self._taking = True
        try:
            while self._reading and self._transport is not None:
                frame = reader.next_frame()
                if frame is None:
                    break
                self.frame_since = None
                self._take(frame)
                if reader.has_frame and turns.is_over(end):
                    self._wait_for_turn()
        except RemoteProtocolError as error:
            # Keep the text, not the error: its traceback refers to this frame, and a variable here
            # would close a cycle that keeps the request's buffer until a garbage collection.
            problem = str(error)
        self._taking = False
        if self._answered_bytes:
            self._send_answers()
        if problem is not None:
            # As in Kafka, no response: a peer that speaks another protocol could not read it.
            self.drop(problem)
            return
        reader.settle()
        if reader.buffered:
            if self.frame_since is None:
                self.frame_since = self.last_active
        else:
            self.frame_since = None
        if reader.reserved != self._reserved and self._transport is not None:
            self._reserve(reader.reserved)

    def _wait_for_turn(self) -> None:
        if not self._waits and self._transport is not None:
            self._waits = True
            self._stop_reading()
            self._context.turns.wait(
                self._turn_party(self._transport), partial(self._run, self._take_turn)
            )

    def _take_turn(self) -> None:
        self._waits = False
        if self._may_read:
            self._read_on()
            self._take_frames(self._context.turns.end_of_turn())

    def _turn_party(self, transport: asyncio.Transport) -> str:
        """Return whose requests these are: a user's, or else those of an account or address."""
        principal = self.session.principal
        if principal != ANONYMOUS:
            return str(principal)
        # Not `pool_party`, which is known only if the pool is half full.
        if self._party is None:
            self._party = self._listener.party_of(self, transport)
        return self._party

    def _reserve(self, size: int) -> None:
        former, self._reserved = self._reserved, size
        if size == former:
            return
        if not former and self._transport is not None:
            self._reserved_for = self._turn_party(self._transport)
        self._listener.incomplete.resize(self._reserved_for, self, former, size)

    def _take(self, frame: memoryview) -> None:
        session = self.session
        if session.raw_tokens:
            header = RequestHeader(SASL_AUTHENTICATE, 0, 0, None)
            body: Any = {"auth_bytes": bytes(frame)}
        else:
            header, body = decode_request(frame, self._context.apis)
            if session.sasl is not None:
                session.check_login(header.api, time.monotonic_ns() // 1_000_000)
        request: AnyRequest = Request(self, header, {} if body is None else body, len(frame))
        self.served = True
        self._pending.append(request)
        if len(self._pending) >= self._context.pending_max:
            self._stop_reading()
        context = self._context
        try:
            if context.metrics is None:
                context.handle(request)
            else:
                request.arrived = self._arrived
                request.begun = _perf_counter()
                context.handle(request)
                request.local_done = _perf_counter()
        except Exception:
            logger.exception(
                "%s version %d from %s:%s failed",
                header.api.name,
                header.version,
                *self.peer[:2],
            )
            self.abort()
        if session.sasl is not None and session.is_authenticated:
            self._reader.frame_bytes_max = self._context.frame_bytes_max

    def answered(self, request: AnyRequest) -> None:
        """Send a response that is ready, and those that waited behind it, now or in a callback."""
        if self._context.metrics is not None:
            request.replied = _perf_counter()
        assert request.parts is not None
        # At least 1: an empty response (acks=0) has to leave the queue too.
        self._answered_bytes += sum(map(len, request.parts)) or 1
        if self._answered_bytes > _ANSWERED_BYTES_MAX:
            self._send_answers()
        elif not self._taking and not self._sending:
            # One event often answers many requests, for example a flush or new records.
            self._sending = True
            self._context.loop.call_soon(self._run, self._send_answers)

    def _run(self, work: Callable[[], None]) -> None:
        """Run a callback of this connection: an exception ends it, and nobody waits for ever."""
        try:
            work()
        except Exception:
            logger.exception("the connection of %s:%s failed", *self.peer[:2])
            self.abort()

    def _send_answers(self) -> None:
        self._sending = False
        pending = self._pending
        transport = self._transport
        if transport is None or self._sender is not None:
            return
        self._answered_bytes = 0
        metrics = self._context.metrics
        now = 0.0 if metrics is None else _perf_counter()
        ready: list[Buffer] = []
        while pending and (parts := pending[0].parts) is not None:
            done = pending.popleft()
            if metrics is not None:
                metrics.observe(done, now)
            for part in parts:
                if not isinstance(part, _BUFFERS):
                    break
            else:
                ready += cast("list[Buffer]", parts)
                continue
            self._write(transport, ready)
            ready = []
            self._send_parts(transport, parts)
            if self._sender is not None or transport.is_closing():
                return
        self._write(transport, ready)
        if self._closing:
            if not pending:
                transport.close()
        elif not self._reading:
            self._go_on_reading()

    def _write(self, transport: asyncio.Transport, ready: list[Buffer]) -> None:
        if len(ready) == 1:
            transport.write(ready[0])
        elif ready:
            transport.writelines(ready)

    def _send_parts(self, transport: asyncio.Transport, parts: list[Part]) -> None:
        loop = self._context.loop
        if self._is_encrypted or transport.get_write_buffer_size():
            self._sender = PieceSender(
                transport, parts, loop, lambda: self._writable, self._has_sent, self._cannot_send
            )
        else:
            self._sender = FileSender(
                transport.get_extra_info("socket"),
                parts,
                loop,
                self._is_taken,
                self._has_sent,
                self._cannot_send,
            )
        if self._sender.send():
            self._sender = None

    def _is_taken(self) -> None:
        self.last_active = self._context.now()

    def _has_sent(self) -> None:
        self._sender = None
        self._send_answers()

    def _cannot_send(self, error: OSError) -> None:
        self._sender = None
        if not isinstance(error, ConnectionError):
            self._listener.say_ending(self, logging.ERROR, f"disconnected: {error}")
        if self._transport is not None:
            self._transport.abort()

    def mute(self, milliseconds: int) -> None:
        """Read no further requests for a while."""
        self._stop_reading()
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        self._mute_timer = self._context.loop.call_later(
            milliseconds / 1000, self._run, self._unmute
        )

    def _unmute(self) -> None:
        self._mute_timer = None
        # The broker made the pause: the client is neither slow nor idle because of it.
        self.last_active = self._context.now()
        if self.frame_since is not None:
            self.frame_since = self.last_active
        self._go_on_reading()

    def hold(self) -> None:
        """Read no requests before `release`, which is to be called as often as this."""
        self._holds += 1
        self._stop_reading()

    def release(self) -> None:
        """Read requests again, unless there is another reason not to."""
        self._holds -= 1
        self._go_on_reading()

    def _keep_paused(self) -> None:
        if not self._reading and self._transport is not None:
            self._transport.pause_reading()

    def _stop_reading(self) -> None:
        if self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    @property
    def _may_read(self) -> bool:
        return (
            self._writable
            and not self._closing
            and not self._holds
            and self._mute_timer is None
            and self._transport is not None
            and len(self._pending) < self._context.pending_max
        )

    def _go_on_reading(self) -> None:
        if self._reading or self._waits or not self._may_read:
            return
        if self._reader.buffered:
            # A handler may be running now, and must not be re-entered.
            self._wait_for_turn()
        else:
            self._read_on()

    def _read_on(self) -> None:
        if not self._reading and self._transport is not None:
            self._reading = True
            self._transport.resume_reading()

    # ------------------------------------------------------------------------------------ closing

    @property
    def waiting(self) -> bool:
        """Tell whether a request has no response yet, or one that is not completely sent."""
        return bool(self._pending) or self._sender is not None

    @property
    def _has_unread(self) -> bool:
        """Tell whether the client has not taken all that could be sent."""
        transport = self._transport
        return self._sender is not None or (
            transport is not None
            and not isinstance(transport, TlsHandshake)
            and transport.get_write_buffer_size() > 0
        )

    def overdue(self, now: float, *, idle_s: float, setup_s: float) -> str | None:
        """Return why the connection is to be closed, or None if it may stay."""
        if self._has_unread and now - self.last_active > idle_s:
            return "its answers are not read"
        if self._pending or self._mute_timer is not None:
            return None
        if not (self.served and self.session.is_authenticated) and now - self.opened_at > setup_s:
            return "no login or no request in time"
        if self.frame_since is not None and self._reading:
            allowed_s = setup_s + self._reader.buffered / _SLOWEST_BYTES_PER_S
            if now - self.frame_since > allowed_s:
                return "its request does not arrive"
        return "idle" if now - self.last_active > idle_s else None

    def close(self) -> None:
        """Close after everything written has been sent."""
        if self._transport is not None:
            self._transport.close()

    def close_when_answered(self) -> None:
        """Read no further requests, and close after the last response."""
        self._closing = True
        self._stop_reading()
        if not self.waiting:
            self.close()

    def drop(self, reason: str) -> None:
        """Close at once, release the memory of the incomplete request, and log the reason."""
        self._listener.say_ending(self, logging.WARNING, f"disconnected: {reason}")
        self._give_up()

    def _give_up(self) -> None:
        self.frame_since = None
        self._reader = FrameReader(self._context.shared_buffer, frame_bytes_max=0)
        self._reserve(0)
        self.abort()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            if self._taking:
                self._send_answers()
            self._transport.abort()

    def reset(self) -> None:
        """Close at once, and let the kernel keep nothing of what the client has not read."""
        if self._transport is not None:
            reset(self._transport)
