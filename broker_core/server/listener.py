"""Connections: bytes in, responses out in the order of the requests."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

from broker_core.protocol.framing import FrameReader
from broker_core.protocol.messages import decode_request
from broker_core.protocol.primitives import RemoteProtocolError
from broker_core.server.request import Request
from waylog.config import Endpoint

logger = logging.getLogger(__name__)

#: One receive buffer for all connections of the event loop.
_SHARED_BYTES: Final = 256 * 1024

#: Responses that the client does not take: above this much we stop reading its requests.
_UNSENT_BYTES_MAX: Final = 4 * 1024 * 1024

_BACKLOG: Final = 1024

Handle = Callable[[Request], None]


class Connection(asyncio.BufferedProtocol):
    """One client."""

    __slots__ = (
        "_listener",
        "_pending",
        "_reader",
        "_reading",
        "_transport",
        "_writable",
        "last_active",
        "peer",
    )

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._reader = FrameReader(listener.shared_buffer, frame_bytes_max=listener.frame_bytes_max)
        self._pending: deque[Request] = deque()
        self._transport: asyncio.Transport | None = None
        # Whether we take further requests, and whether the client takes our responses.
        self._reading = True
        self._writable = True
        self.last_active = 0.0
        self.peer: tuple[Any, ...] = ("?", 0)

    @property
    def peer_host(self) -> str:
        """The client's address."""
        return str(self.peer[0])

    # ---------------------------------------------------------------------------------- transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.BaseProtocol."""
        self._transport = cast(asyncio.Transport, transport)
        self.peer = transport.get_extra_info("peername") or self.peer
        self._transport.set_write_buffer_limits(high=_UNSENT_BYTES_MAX)
        self._listener.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        self._transport = None
        self._listener.closed(self)
        pending, self._pending = self._pending, deque()
        for request in pending:
            if request.parts is None and request.on_close is not None:
                request.on_close()

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol."""
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        self.last_active = self._listener.now()
        self._reader.received(nbytes)
        self._take_frames()

    def pause_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        self._writable = False
        self._stop_reading()

    def resume_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        self._writable = True
        self._go_on_reading()

    # ----------------------------------------------------------------------------------- requests

    def _take_frames(self) -> None:
        reader = self._reader
        try:
            while self._reading and self._transport is not None:
                frame = reader.next_frame()
                if frame is None:
                    break
                self._take(frame)
        except RemoteProtocolError as error:
            # Like Kafka: no frame could say what is wrong to somebody who speaks something else.
            logger.warning("%s:%s is disconnected: %s", *self.peer[:2], error)
            self.abort()
        reader.settle()

    def _take(self, frame: memoryview) -> None:
        header, body = decode_request(frame)
        request = Request(self, header, {} if body is None else body)
        self._pending.append(request)
        if len(self._pending) >= self._listener.pending_max:
            self._stop_reading()
        try:
            self._listener.handle(request)
        except Exception:
            logger.exception(
                "%s version %d from %s:%s failed",
                header.api.name,
                header.version,
                *self.peer[:2],
            )
            self.abort()

    def answered(self, request: Request) -> None:
        """A response is ready: send it and what waited behind it."""
        pending = self._pending
        transport = self._transport
        if transport is None or not pending or pending[0].parts is None:
            return
        while pending and (parts := pending[0].parts) is not None:
            pending.popleft()
            # uvloop collects the writes of one loop turn into one system call.
            if len(parts) == 1:
                transport.write(parts[0])
            elif parts:
                transport.writelines(parts)
        if not self._reading:
            self._go_on_reading()

    def _stop_reading(self) -> None:
        if self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    def _go_on_reading(self) -> None:
        if (
            not self._reading
            and self._writable
            and self._transport is not None
            and len(self._pending) < self._listener.pending_max
        ):
            self._reading = True
            self._transport.resume_reading()
            if self._reader.buffered:
                # Not from here: a handler that is just answering should not be entered again.
                self._listener.loop.call_soon(self._take_frames)

    # ------------------------------------------------------------------------------------ closing

    @property
    def waiting(self) -> bool:
        """Whether a request has no answer yet."""
        return bool(self._pending)

    def close(self) -> None:
        """Close after what is written has been sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()


class Listener:
    """Accepts connections and keeps their limits."""

    def __init__(
        self,
        handle: Handle,
        *,
        frame_bytes_max: int,
        connections_max: int,
        idle_ms_max: int,
        pending_max: int,
    ) -> None:
        self.handle = handle
        self.frame_bytes_max = frame_bytes_max
        self.pending_max = pending_max
        self.shared_buffer = memoryview(bytearray(_SHARED_BYTES))
        self.loop = asyncio.get_running_loop()
        self.now = self.loop.time
        self._connections_max = connections_max
        self._idle_s_max = idle_ms_max / 1000
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._connections)

    async def start(self, endpoint: Endpoint) -> Endpoint:
        """Listen; returns the address with the real port. Raises OSError."""
        self._server = await self.loop.create_server(
            lambda: Connection(self), endpoint.host, endpoint.port, backlog=_BACKLOG
        )
        self._sweep()
        host, port = self._server.sockets[0].getsockname()[:2]
        return Endpoint(endpoint.host or host, port)

    async def close(self) -> None:
        """Stop accepting, and close what is open."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.close()
        # One turn for what has been written, then whoever does not read is cut off.
        await asyncio.sleep(0)
        while self._connections:
            for connection in list(self._connections):
                connection.abort()
            await asyncio.sleep(0)

    def opened(self, connection: Connection) -> None:
        """A connection came in."""
        connection.last_active = self.now()
        self._connections.add(connection)
        if len(self._connections) > self._connections_max:
            logger.warning(
                "%s:%s is refused: max.connections=%d",
                *connection.peer[:2],
                self._connections_max,
            )
            connection.abort()

    def closed(self, connection: Connection) -> None:
        """A connection is gone."""
        self._connections.discard(connection)

    def _sweep(self) -> None:
        oldest = self.now() - self._idle_s_max
        for connection in list(self._connections):
            if connection.last_active < oldest and not connection.waiting:
                logger.info("%s:%s is idle: closed", *connection.peer[:2])
                connection.close()
        # One timer for all of them; precise to a tenth of the limit.
        self._sweep_timer = self.loop.call_later(max(self._idle_s_max / 10, 0.05), self._sweep)
