"""The front of the HTTP listener: plain requests are served here, all others by aiohttp.

Every connection begins here. As long as it carries plain requests
(gateway.http.plain.request_head), each is parsed, submitted and answered without a task or a
future, so that most of the cost of a request with one fix is the cost of the fix. The first request
of any other kind hands the whole connection, with all unprocessed bytes, to aiohttp's protocol,
where it stays.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol, cast

from gateway.http.plain.aiohttp_connection import AiohttpConnection
from gateway.http.plain.askers import Askers
from gateway.http.plain.kept_bytes import KeptBytes
from gateway.http.plain.last_head import LastHead
from gateway.http.plain.origin import Origin
from gateway.http.plain.pipeline import Pipeline
from gateway.http.plain.plain_request import response
from gateway.http.plain.request_head import HEAD_BYTES_MAX, is_request, may_be_plain
from gateway.http.plain.shared_state import SharedState
from gateway.http.plain.stepped_input import WAITING_BYTES_MAX
from waylog.network.proxy_protocol import ProxyHeader, ProxyHeaderReader

logger = logging.getLogger(__name__)

#: Requests with a larger body go to aiohttp, where a budget limits them.
BODY_BYTES_MAX: Final = 32 * 1024
#: Bytes that may wait for their user's turn without being charged: a request is shorter.
_UNCOUNTED_BYTES: Final = 4 * 1024


class Keeper(Protocol):
    """Looks after the connections of a listener."""

    def opened(self, connection: PlainConnection) -> None:
        """Look after a connection from now on."""

    def has_half_closed(self, connection: PlainConnection) -> None:
        """Close a connection soon after its last answer."""

    def lost(self, connection: PlainConnection) -> None:
        """Forget a connection that has ended."""


class PlainConnection(asyncio.Protocol):
    """One connection, until it is handed over to aiohttp."""

    __slots__ = (
        "_aiohttp",
        "_askers",
        "_authenticating",
        "_delayed",
        "_half_closed",
        "_keeper",
        "_kept",
        "_last",
        "_origin",
        "_pipeline",
        "_proxy",
        "_reading",
        "_shared",
        "_since",
        "_transport",
        "_turn_of",
        "_waits",
        "_writable",
    )

    def __init__(self, shared: SharedState, keeper: Keeper) -> None:
        self._shared = shared
        self._keeper = keeper
        self._transport: asyncio.Transport | None = None
        self._origin = Origin(shared)
        self._proxy: ProxyHeaderReader | None = None
        self._kept = KeptBytes(shared.partial, self._origin)
        self._last = LastHead(shared.services)
        self._pipeline = Pipeline(shared, self._origin, self._last)
        self._authenticating: asyncio.Task[None] | None = None
        self._reading = True
        self._writable = True
        # Whether requests wait for the turn of their user, which one, and those that are short:
        # they are not charged to anybody, which would take as long as to serve them.
        self._waits = False
        self._turn_of = ""
        self._delayed = b""
        self._askers: Askers | None = None
        # Whoever serves the connection since it was handed over.
        self._aiohttp: AiohttpConnection | None = None
        # The client sends no more.
        self._half_closed = False
        # Loop time since which the connection is idle or its request is incomplete.
        self._since = 0.0

    # --- the connection -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._since = self._shared.time()
        self._pipeline.begin(self._transport, self._has_answered)
        refusal = self._origin.enter(transport)
        if refusal is None:
            if self._origin.is_proxy:
                self._proxy = ProxyHeaderReader()
            else:
                refusal = self._origin.count()
        if refusal is not None:
            self._refuse_connection(refusal)
            return
        self._keeper.opened(self)

    def _refuse_connection(self, reason: str, status: int = 503) -> None:
        assert self._transport is not None
        headers = {"Connection": "close"}
        if status == 503:
            headers["Retry-After"] = "2"
        body = b'{"error":"%b"}' % reason.encode()
        self._transport.write(response(status, body, self._shared.date, headers))
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._keeper.lost(self)
        self._keep(b"")
        self._delayed = b""
        self._origin.leave()
        self._pipeline.end()
        if self._authenticating is not None:
            self._authenticating.cancel()
        if self._aiohttp is not None:
            self._aiohttp.connection_lost(exc)
        # Objects that refer to each other stay until the garbage collector comes, which is rare.
        self._aiohttp = None
        self._transport = None

    def eof_received(self) -> bool | None:
        self._half_closed = True
        self._keeper.has_half_closed(self)
        # A half-closed connection can still carry the answers.
        return self.busy if self._aiohttp is None else self._aiohttp.eof_received()

    def pause_writing(self) -> None:
        self._writable = False
        if self._aiohttp is not None:
            self._aiohttp.pause_writing()
        else:
            self._adapt_reading()

    def resume_writing(self) -> None:
        self._writable = True
        if self._aiohttp is not None:
            self._aiohttp.resume_writing()
        else:
            self._adapt_reading()

    @property
    def busy(self) -> bool:
        """Tell whether a request of this connection waits for its turn or its answer here."""
        return bool(not self._pipeline.is_empty or self._authenticating or self._waits)

    @property
    def _awaits_client(self) -> bool:
        """Tell whether nothing can happen before the client sends more."""
        return not self.busy if self._aiohttp is None else self._aiohttp.awaits_client

    def close_when_idle(self) -> None:
        """Close as soon as everything is answered, unless aiohttp has the connection."""
        if self._aiohttp is None and not self.busy and self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._aiohttp is None and self._transport is not None:
            self._transport.abort()

    def look_after(self, now: float) -> bool:
        """Enforce the timeouts; tell whether the connection is still open.

        It is called twice a second, less often while there are thousands of connections.
        """
        if self._transport is None:
            return False
        if self._half_closed and self._awaits_client:
            self._transport.close()
        if self._transport.is_closing():
            return False
        if self._aiohttp is not None:
            return True
        if not self._pipeline.is_empty:
            self._pipeline.look_after(now)
        elif now - self._since > self._shared.shortest_timeout_s and not self.busy:
            return not self._has_timed_out(self._transport, now - self._since)
        return True

    def _has_timed_out(self, transport: asyncio.Transport, seconds: float) -> bool:
        """Close the connection if its request has been incomplete for too long."""
        limits = self._shared.services.limits
        head_is_there = b"\r\n\r\n" in self._kept.data
        if seconds <= (limits.body_timeout_s if head_is_there else limits.header_timeout_s):
            return False
        if head_is_there:
            # The client may be gone, but if it still reads, it should learn of the timeout.
            body = b'{"error":"the body did not come in time"}'
            transport.write(response(408, body, self._shared.date, {"Connection": "close"}))
        transport.close()
        return True

    # --- requests -------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._aiohttp is not None:
            self._aiohttp.data_received(data)
            return
        if self._kept.data:
            data = self._kept.data + data
        if self._proxy is not None:
            self._read_proxy_header(self._proxy, data)
            return
        if self._waits:
            data, self._delayed = self._delayed + data, b""
            self._keep(data, self._turn_of)
            self._adapt_reading()
        elif self._authenticating is not None or not self._reading:
            self._keep(data)
        elif (identity := self._last.identity) is None or self._shared.has_proxies:
            # A proxy's connection carries requests of many clients, who do not wait for one
            # another.
            self._process(data)
        elif self._shared.services.turns.may_begin(identity.user):
            self._process(data, identity.user)
        else:
            # Without a look at what the user has sent.
            self._wait_for_turn(identity.user, data)

    def _read_proxy_header(self, reader: ProxyHeaderReader, data: bytes) -> None:
        assert self._transport is not None
        header = reader.read(data)
        if header is None:
            self._keep(data)
            return
        self._proxy = None
        self._keep(b"")
        if not isinstance(header, ProxyHeader):
            logger.warning("a proxy sent no PROXY header: %s", header)
            self._transport.close()
            return
        if header.address is not None:
            self._origin.passes_on(header.address)
        refusal = self._origin.count()
        if refusal is not None:
            self._refuse_connection(refusal)
        elif header.size < len(data):
            self._process(data[header.size :])

    def _process(self, data: bytes, turn_of: str | None = None) -> None:
        """Serve all complete requests in `data`, for as long as their users have time left.

        `turn_of` is the user whose turn it is; another one's requests may have to wait for theirs.
        """
        turns, last, pipeline = self._shared.services.turns, self._last, self._pipeline
        stranger = self._origin.stranger
        party = stranger if turn_of is None else turn_of
        outer = turns.begin(party)
        position, size = 0, len(data)
        try:
            while position < size:
                end = data.find(b"\r\n\r\n", position, position + HEAD_BYTES_MAX)
                if end < 0:
                    if pipeline.is_empty and not is_request(data, position):
                        self._refuse_connection("no HTTP request begins like this: TLS?", 400)
                        return
                    if size - position >= HEAD_BYTES_MAX or not may_be_plain(data, position):
                        self._hand_over_in_turn(data[position:], turn_of)
                        return
                    break
                head = last.next(data[position:end])
                if head is None or last.body_bytes > BODY_BYTES_MAX:
                    self._hand_over_in_turn(data[position:], turn_of)
                    return
                body_end = end + 4 + last.body_bytes
                if body_end > size:
                    break
                if pipeline.is_full:
                    self._keep(data[position:], party)
                    self._adapt_reading()
                    return
                identity = last.identity_now()
                if identity is None:
                    self._authenticate(data[position:])
                    return
                user = identity.user
                is_first = user == turn_of and not position
                if not is_first and (
                    not turns.may_go_on(user)
                    or not (user in (party, turn_of) or turns.may_begin(user))
                ):
                    party = user if party == stranger else party
                    self._wait_for_turn(user, data[position:])
                    return
                if user != party:
                    if party != stranger:
                        turns.end(party, outer)
                        outer = turns.begin(user)
                    party = user
                if not pipeline.serve(head, identity, data[end + 4 : body_end]):
                    rest = data[position:]
                    self._hand_over(rest, self._asker_of(rest))
                    return
                position = body_end
                if self._transport is None or self._transport.is_closing():
                    return
            if position < size or self._kept.data:
                self._keep(data[position:])
        finally:
            turns.end(party, outer)

    def _wait_for_turn(self, user: str, data: bytes) -> None:
        """Read no more until it is the turn of the user whose requests wait."""
        self._waits = True
        self._turn_of = user
        self._shared.services.turns.call_soon(user, self._take_turn)
        if self._kept.data or len(data) > _UNCOUNTED_BYTES:
            self._keep(data, user)
            self._adapt_reading()
        else:
            self._delayed = data

    def _take_turn(self) -> None:
        self._waits = False
        data, self._delayed = self._delayed, b""
        if not data:
            self._adapt_reading(self._turn_of)
        elif self._reading and self._transport is not None:
            self._process(data, self._turn_of)
        else:
            self._keep(data, self._turn_of)
            self._adapt_reading(self._turn_of)

    def _keep(self, data: bytes, holder: str | None = None) -> None:
        """Keep what cannot be served yet, at the expense of a user if it is known whose it is."""
        begins = data and not self._kept.data
        if not self._kept.replace(data, holder):
            self._refuse_connection("too many incomplete requests at once")
        elif begins:
            self._since = self._shared.time()

    def _authenticate(self, data: bytes) -> None:
        """Start verifying the credentials of the last head; continue with `data` afterwards."""
        self._keep(data)
        self._authenticating = self._shared.authentications.start(
            self._await_verdict(), self._authentication_failed
        )

    def _authentication_failed(self, _: Exception) -> None:
        self._authenticating = None
        self.abort()

    async def _await_verdict(self) -> None:
        identity = await self._last.authenticate(self._origin)
        self._authenticating = None
        data = self._kept.data
        if self._transport is None:
            return
        if identity is None:
            # The complete server answers with the reason.
            self._hand_over(data, self._asker_of(data))
        else:
            self._keep(b"")
            self._process(data)

    # --- answers --------------------------------------------------------------------------------

    def _has_answered(self) -> None:
        """Go on after the answer to a request."""
        if self._pipeline.is_empty:
            self._since = self._shared.time()
            if self._shared.closing and not self._waits and self._transport is not None:
                self._transport.close()
                return
        if not self._reading and not self._waits:
            self._adapt_reading()

    def _adapt_reading(self, turn_of: str | None = None) -> None:
        """Read only while the client reads its answers and not too many requests wait."""
        transport = self._transport
        if transport is None or transport.is_closing() or self._aiohttp is not None:
            return
        may_serve = self._pipeline.takes_more() and self._writable
        # Whoever waits for a turn sends no more, as a rule, and pausing costs two system calls.
        wanted = may_serve and not (self._waits and len(self._kept.data) > WAITING_BYTES_MAX)
        has_waited = turn_of is not None
        if not wanted:
            if self._reading:
                self._reading = False
                transport.pause_reading()
        elif not self._reading:
            self._reading = True
            transport.resume_reading()
            has_waited = True
        if may_serve and has_waited and not self._waits and self._authenticating is None:
            data = self._kept.data
            if data:
                self._keep(b"")
                self._process(data, turn_of)

    # --- the complete server --------------------------------------------------------------------

    def _hand_over_in_turn(self, data: bytes, turn_of: str | None) -> None:
        """Hand the connection over when it is the turn of whoever has sent this.

        This costs more than most requests do.
        """
        asker, turns = self._asker_of(data), self._shared.services.turns
        if (
            not self._pipeline.is_empty
            or asker in (self._origin.stranger, turn_of)
            or turns.may_begin(asker)
        ):
            outer = turns.begin(asker)
            try:
                self._hand_over(data, asker)
            finally:
                turns.end(asker, outer)
        else:
            self._wait_for_turn(asker, data)

    def _hand_over(self, data: bytes, asker: str) -> None:
        """Hand the connection over to aiohttp, once all earlier requests are answered."""
        transport = self._transport
        assert transport is not None
        if not self._pipeline.is_empty:
            # Rare: requests of different kinds in one pipeline.
            self._keep(data)
            self._reading = False
            transport.pause_reading()
            return
        self._keep(b"")
        if not self._reading:
            self._reading = True
            transport.resume_reading()
        # Before it begins: it may write enough at once to be told to pause.
        self._aiohttp = AiohttpConnection(self._shared, transport, self._known_askers(), asker)
        self._aiohttp.begin(data)
        if self._half_closed and not self._aiohttp.eof_received():
            transport.close()

    def _asker_of(self, data: bytes) -> str:
        """Return whose request begins with this data, or a stranger if that is not known."""
        return self._known_askers().of(data)

    def _known_askers(self) -> Askers:
        if self._askers is None:
            self._askers = Askers(self._shared.services.authenticator, self._origin.stranger)
        return self._askers

    def belongs_to(self, party: str) -> None:
        """Take note that all that comes from now on is of one party: it is a WebSocket."""
        if self._aiohttp is not None:
            self._aiohttp.belongs_to(party)
