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
import string
from collections import deque
from typing import TYPE_CHECKING, Final, cast

import msgspec

from gateway.bodies.parsing import is_read_here
from gateway.formats import Context, Parsed
from gateway.http.ingest.ingest import admit, check_may_send
from gateway.http.plain.aiohttp_requests import AiohttpRequests
from gateway.http.plain.askers import Askers, begins_request
from gateway.http.plain.last_head import LastHead
from gateway.http.plain.plain_request import PlainRequest, response
from gateway.http.plain.request_head import HEAD_BYTES_MAX, RequestHead
from gateway.http.plain.stepped_input import WAITING_BYTES_MAX, SteppedInput
from gateway.http.requests.authentication import credentials_of, stranger_party
from gateway.http.requests.responses import Refused, too_large_head, unavailable
from gateway.limits.addresses import is_loopback
from gateway.limits.bounds import TOO_MUCH_UNDER_WAY
from gateway.limits.failed_logins import TooManyFailedLogins
from gateway.users.auth import AuthenticationUnavailable, Identity
from waylog.network.peer_parties import party_of
from waylog.network.proxy_protocol import ProxyHeader, ProxyHeaderReader
from waylog.observability.telemetry import now_ms

if TYPE_CHECKING:
    from gateway.http.plain.plain_server import PlainServer

logger = logging.getLogger(__name__)

#: Requests with a larger body go to aiohttp, where a budget limits them.
BODY_BYTES_MAX: Final = 32 * 1024
#: Requests of one connection that may wait for the log; at this number reading pauses, until half
#: of them are answered.
PIPELINED_MAX: Final = 64

_STARTS: Final = (b"GET /", b"POST /")
_LONGEST_START: Final = b"POST /"
#: What a request may begin with: a token (RFC 9110, section 5.6.2), or empty lines before it.
_BEGINNINGS: Final = frozenset(f"!#$%&'*+-.^_`|~{string.digits}{string.ascii_letters}\r\n".encode())

#: Bytes that may wait for their user's turn without being charged: a request is shorter.
_UNCOUNTED_BYTES: Final = 4 * 1024

_NOTHING: Final = Parsed()


def _may_begin(start: bytes) -> bool:
    """Tell whether a plain request may begin with these bytes."""
    return any(each[: len(start)] == start[: len(each)] for each in _STARTS)


class PlainConnection(asyncio.Protocol):
    """One connection, until it is handed over to aiohttp."""

    __slots__ = (
        "_address",
        "_aiohttp",
        "_askers",
        "_authenticating",
        "_counted",
        "_delayed",
        "_half_closed",
        "_holder",
        "_inner",
        "_inner_transport",
        "_is_full",
        "_is_of_one",
        "_last",
        "_party",
        "_pending",
        "_pool_party",
        "_proxy",
        "_reading",
        "_requests",
        "_since",
        "_stranger",
        "_transport",
        "_turn_of",
        "_waits",
        "_writable",
        "server",
    )

    def __init__(self, server: PlainServer) -> None:
        self.server = server
        self._transport: asyncio.Transport | None = None
        self._inner: SteppedInput | None = None
        self._inner_transport: asyncio.Transport | None = None
        # The party of the incomplete requests, that of what waits now, and that of a turn of the
        # loop for whoever has not signed in.
        self._address = self._party = self._holder = self._stranger = ""
        # None if this connection holds no place in the pool.
        self._pool_party: str | None = None
        self._counted = False
        self._proxy: ProxyHeaderReader | None = None
        # Bytes of an incomplete request, or of requests that wait.
        self._pending = b""
        self._last = LastHead(server.services)
        self._authenticating: asyncio.Task[None] | None = None
        self._requests: deque[PlainRequest] = deque()
        self._reading = True
        self._writable = True
        self._is_full = False
        # Whether requests wait for the turn of their user, which one, and those that are short:
        # they are not charged to anybody, which would take as long as to serve them.
        self._waits = False
        self._turn_of = ""
        self._delayed = b""
        # The bound on the heads that come to aiohttp.
        self._aiohttp: AiohttpRequests | None = None
        # The client sends no more.
        self._half_closed = False
        self._is_of_one = False
        self._askers: Askers | None = None
        # Loop time since which the connection is idle or its request is incomplete.
        self._since = 0.0

    # --- the connection -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        server = self.server
        self._transport = cast(asyncio.Transport, transport)
        self._since = server._loop.time()
        peer = transport.get_extra_info("peername")
        self._comes_from(peer[0] if isinstance(peer, tuple) and peer else "")
        self._pool_party = server.pool.enter(transport)
        if self._pool_party is None:
            server.services.metrics.connections_refused += 1
            self._refuse_connection(
                "too many connections" if server.pool.is_full else "too many connections of yours"
            )
            return
        if server.services.proxy_protocol and self._address in server.services.proxies:
            self._proxy = ProxyHeaderReader()
        elif not self._count():
            return
        server.connections.add(self)

    def _comes_from(self, address: str) -> None:
        self._address = address
        # The client behind a proxy on this machine is not known yet, so each connection counts
        # alone.
        self._party = f"{address} {id(self)}" if is_loopback(address) else party_of(address)
        self._holder = self._party
        self._stranger = stranger_party(address, self.server.services.proxies, self)

    def _count(self) -> bool:
        """Count the connection for its address. Return False if it has been refused."""
        if not self.server.addresses.connect(self._address):
            self.server.services.metrics.connections_refused += 1
            self._refuse_connection("too many connections from your address")
            return False
        self._counted = True
        return True

    def _refuse_connection(self, reason: str, status: int = 503) -> None:
        assert self._transport is not None
        headers = {"Connection": "close"}
        if status == 503:
            headers["Retry-After"] = "2"
        body = b'{"error":"%b"}' % reason.encode()
        self._transport.write(response(status, body, self.server.date, headers))
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        server = self.server
        server.lost(self)
        server.services.remotes.pop(self._transport, None)
        server.services.remotes.pop(self._inner_transport, None)
        self._keep(b"")
        self._delayed = b""
        if self._pool_party is not None:
            server.pool.leave(self._pool_party)
            self._pool_party = None
        if self._counted:
            server.addresses.disconnect(self._address)
        if self._authenticating is not None:
            self._authenticating.cancel()
        if self._aiohttp is not None:
            self._aiohttp.connection_lost()
        if self._inner is not None:
            self._inner.connection_lost(exc)
        # Objects that refer to each other stay until the garbage collector comes, which is rare.
        self._inner = self._inner_transport = self._aiohttp = None
        self._transport = None

    def eof_received(self) -> bool | None:
        self._half_closed = True
        self.server.has_half_closed(self)
        # A half-closed connection can still carry the answers.
        return self.busy if self._inner is None else self._inner.eof_received()

    def pause_writing(self) -> None:
        self._writable = False
        if self._inner is not None:
            self._inner.pause_writing()
        else:
            self._adapt_reading()

    def resume_writing(self) -> None:
        self._writable = True
        if self._inner is not None:
            self._inner.resume_writing()
        else:
            self._adapt_reading()

    @property
    def busy(self) -> bool:
        """Tell whether a request of this connection waits for its turn or its answer here."""
        return bool(self._requests or self._authenticating or self._waits)

    @property
    def _awaits_client(self) -> bool:
        """Tell whether nothing can happen before the client sends more."""
        if self._inner is None or self._aiohttp is None:
            return not self.busy
        return self._inner.is_idle and self._aiohttp.awaits_client

    def close_when_idle(self) -> None:
        """Close as soon as everything is answered, unless aiohttp has the connection."""
        if self._inner is None and not self.busy and self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._inner is None and self._transport is not None:
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
        if self._inner is not None:
            return True
        limits = self.server.services.limits
        if self._requests:
            oldest = self._requests[0]
            if oldest.started + self.server.services.append_timeout_s < now:
                oldest.late()
        elif not self.busy:
            head_is_there = b"\r\n\r\n" in self._pending
            if now - self._since > (
                limits.body_timeout_s if head_is_there else limits.header_timeout_s
            ):
                if head_is_there:
                    # The client may be gone, but if it still reads, it should learn of the timeout.
                    body = b'{"error":"the body did not come in time"}'
                    self._transport.write(
                        response(408, body, self.server.date, {"Connection": "close"})
                    )
                self._transport.close()
                return False
        return True

    # --- requests -------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._inner is not None:
            if self._inner.is_idle:
                self._identify(self._inner, data)
            self._inner.data_received(data)
            return
        if self._pending:
            data = self._pending + data
        if self._proxy is not None:
            self._read_proxy_header(data)
            return
        if self._waits:
            data, self._delayed = self._delayed + data, b""
            self._keep(data, self._turn_of)
            self._adapt_reading()
        elif self._authenticating is not None or not self._reading:
            self._keep(data)
        elif (user := self._user_without_turn()) is not None:
            self._wait_for_turn(user, data)
        else:
            self._process(data)

    def _user_without_turn(self) -> str | None:
        """Return the client's user if it has to wait, without a look at what it sends.

        A proxy's connection carries requests of many clients, who do not wait for one another.
        """
        identity, services = self._last.identity, self.server.services
        if identity is None or services.proxies or services.turns.may_begin(identity.user):
            return None
        return identity.user

    def _read_proxy_header(self, data: bytes) -> None:
        assert self._proxy is not None and self._transport is not None
        header = self._proxy.read(data)
        if header is None:
            self._keep(data)
            return
        self._proxy = None
        self._keep(b"")
        if isinstance(header, ProxyHeader):
            if header.address is not None:
                self._comes_from(header.address)
                self.server.services.remotes[self._transport] = header.address
            if self._count() and header.size < len(data):
                self._process(data[header.size :])
            return
        logger.warning("a proxy sent no PROXY header: %s", header)
        self._transport.close()

    def _process(self, data: bytes, turn_of: str | None = None) -> None:
        """Serve all complete requests in `data`, for as long as their users have time left.

        `turn_of` is the user whose turn it is; another one's requests may have to wait for theirs.
        """
        turns, last = self.server.services.turns, self._last
        party = self._stranger
        outer = turns.begin(party)
        position, size = 0, len(data)
        try:
            while position < size:
                end = data.find(b"\r\n\r\n", position, position + HEAD_BYTES_MAX)
                if end < 0:
                    if data[position] not in _BEGINNINGS and not self._requests:
                        self._refuse_connection("no HTTP request begins like this: TLS?", 400)
                        return
                    start = data[position : position + len(_LONGEST_START)]
                    if size - position >= HEAD_BYTES_MAX or not _may_begin(start):
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
                if len(self._requests) >= PIPELINED_MAX:
                    self._keep(data[position:], party)
                    self._adapt_reading()
                    return
                identity = last.identity_now()
                if identity is None:
                    self._authenticate(head, data[position:])
                    return
                user = identity.user
                if not turns.may_go_on(user) or not (
                    user in (party, turn_of) or turns.may_begin(user)
                ):
                    party = user if party == self._stranger else party
                    self._wait_for_turn(user, data[position:])
                    return
                if user != party:
                    if party != self._stranger:
                        turns.end(party, outer)
                        outer = turns.begin(user)
                    party = user
                if not self._serve(head, identity, data[end + 4 : body_end]):
                    rest = data[position:]
                    self._hand_over(rest, self._asker_of(rest))
                    return
                position = body_end
                if self._transport is None or self._transport.is_closing():
                    return
            self._keep(data[position:])
        finally:
            turns.end(party, outer)

    def _wait_for_turn(self, user: str, data: bytes) -> None:
        """Read no more until it is the turn of the user whose requests wait."""
        self._waits = True
        self._turn_of = user
        self.server.services.turns.call_soon(user, self._take_turn)
        if self._pending or len(data) > _UNCOUNTED_BYTES:
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
        server = self.server
        if holder is not None and holder != self._holder:
            server.partial.pass_on(self._holder, holder, len(self._pending))
            self._holder = holder
        more = len(data) - len(self._pending)
        if more > 0:
            if server.partial.is_pressed:
                self._ask_for_account()
            if not server.partial.take(self._holder, more):
                self._refuse_connection("too many incomplete requests at once")
                data, more = b"", -len(self._pending)
            elif not self._pending:
                self._since = server._loop.time()
        if more < 0:
            server.partial.give_back(self._holder, -more)
        self._pending = data
        if not data:
            self._holder = self._party

    def _ask_for_account(self) -> None:
        """Charge the buffered bytes of a local client to its account, not to this connection."""
        if self._transport is None or not self._holder.startswith(f"{self._address} "):
            return
        account = self.server.pool.party_of(self._transport)
        if account:
            self.server.partial.pass_on(self._holder, account, len(self._pending))
            self._holder = self._party = account

    def _authenticate(self, head: RequestHead, data: bytes) -> None:
        """Start verifying the credentials, and continue with `data` afterwards."""
        self._keep(data)
        self._authenticating = self.server.authentications.start(
            self._await_verdict(head), self._authentication_failed
        )

    def _authentication_failed(self, _: Exception) -> None:
        self._authenticating = None
        self.abort()

    async def _await_verdict(self, head: RequestHead) -> None:
        services = self.server.services
        credentials = credentials_of(head.headers, head.query, head.token)
        assert credentials is not None
        identity = None
        address = services.proxies.client(self._address, head.headers.get("X-Forwarded-For"))
        authenticator = services.authenticator
        try:
            if credentials.user is None:
                identity = await authenticator.authenticate_token(credentials.secret, address)
            else:
                identity = await authenticator.authenticate(
                    credentials.user, credentials.secret, address
                )
        except (AuthenticationUnavailable, TooManyFailedLogins):
            identity = None
        self._authenticating = None
        data = self._pending
        if self._transport is None:
            return
        if identity is None:
            # The complete server answers with the reason.
            self._hand_over(data, self._asker_of(data))
        else:
            self._keep(b"")
            self._process(data)

    def _serve(self, head: RequestHead, identity: Identity, body: bytes) -> bool:
        """Submit or refuse a request. Return False if parsing it here would take too long."""
        server = self.server
        if not is_loopback(self._address) or server.services.proxies:
            address = server.services.proxies.client(
                self._address, head.headers.get("X-Forwarded-For")
            )
            if not server.addresses.may_ask(address):
                self._refuse(head, unavailable("too many requests from your address"))
                return True
        context, plain = self._last.context_of(identity)
        received = now_ms()
        few = is_read_here(body)
        if plain is not None and not (few and server.services.submitter.is_sample()):
            records = plain.records(body, received)
            if records is not None:
                request = PlainRequest(self, head, identity, _NOTHING)
                if not request.begin(len(body), len(records)):
                    self._refuse(head, unavailable(TOO_MUCH_UNDER_WAY))
                    return True
                self._requests.append(request)
                request.submit_records(records, head.headers.get("traceparent"))
                return True
        if not few:
            return False
        context = Context(
            context.user,
            context.device,
            received,
            context.any_user,
            None,
            context.query,
            context.headers,
            context.content_type,
            context.encryption_key,
        )
        try:
            check_may_send(identity)
            parsed = head.format.parse(body, context)
            if parsed.refused is not None:
                raise Refused(413, parsed.refused)
            if parsed.malformed is not None:
                raise Refused(400, parsed.malformed)
            admit(parsed, identity, server.services.admission, head.format)
        except Refused as refusal:
            self._refuse(head, refusal)
            return True
        except Exception:
            # A bug in a parser must not make a phone repeat one message for ever.
            logger.exception("the parser of %s failed", head.format.name)
            self._refuse(head, Refused(500, "an error of the gateway; its log has the details"))
            return True
        request = PlainRequest(self, head, identity, parsed)
        if not request.begin(len(body), parsed.count):
            self._refuse(head, unavailable(TOO_MUCH_UNDER_WAY))
            return True
        self._requests.append(request)
        request.submit(head.headers.get("traceparent"))
        return True

    def _refuse(self, head: RequestHead, refusal: Refused) -> None:
        request = PlainRequest(self, head, Identity(""), _NOTHING)
        self._requests.append(request)
        request.refuse(refusal)

    # --- answers --------------------------------------------------------------------------------

    def answered(self, route: str, status: int) -> None:
        """Write the answer of a request, and those after it that are ready, in order."""
        self.server.services.metrics.request(route, status)
        requests, transport = self._requests, self._transport
        while requests and (answer := requests[0].answer) is not None:
            requests.popleft()
            if transport is not None:
                transport.write(answer)
        if transport is None:
            return
        if not requests:
            self._since = self.server._loop.time()
            if self.server.closing and not self._waits:
                transport.close()
                return
        if not self._reading and not self._waits:
            self._adapt_reading()

    def _adapt_reading(self, turn_of: str | None = None) -> None:
        """Read only while the client reads its answers and not too many requests wait."""
        transport = self._transport
        if transport is None or transport.is_closing() or self._inner is not None:
            return
        if len(self._requests) >= PIPELINED_MAX:
            self._is_full = True
        elif len(self._requests) <= PIPELINED_MAX // 2:
            self._is_full = False
        may_serve = self._writable and not self._is_full
        # Whoever waits for a turn sends no more, as a rule, and pausing costs two system calls.
        wanted = may_serve and not (self._waits and len(self._pending) > WAITING_BYTES_MAX)
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
            data = self._pending
            if data:
                self._keep(b"")
                self._process(data, turn_of)

    # --- the complete server --------------------------------------------------------------------

    def _hand_over_in_turn(self, data: bytes, turn_of: str | None) -> None:
        """Hand the connection over when it is the turn of whoever has sent this.

        This costs more than most requests do.
        """
        asker, turns = self._asker_of(data), self.server.services.turns
        if self._requests or asker in (self._stranger, turn_of) or turns.may_begin(asker):
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
        if self._requests:
            # Rare: requests of different kinds in one pipeline.
            self._keep(data)
            self._reading = False
            transport.pause_reading()
            return
        self._keep(b"")
        if not self._reading:
            self._reading = True
            transport.resume_reading()
        services = self.server.services
        protocol = self.server.accept()
        requests = AiohttpRequests(protocol, services.limits.head_bytes_max, self._refuse_head)
        self._aiohttp = requests
        inner = SteppedInput(protocol, transport, services.turns, asker, requests)
        self._inner = inner
        inner_transport = self._inner_transport = inner.inner_transport()
        address = services.remotes.get(transport)
        if address is not None:
            services.remotes[inner_transport] = address
        protocol.connection_made(inner_transport)
        inner.data_received(data)
        if self._half_closed and not inner.eof_received():
            transport.close()

    def _identify(self, inner: SteppedInput, data: bytes) -> None:
        """Take note whose request begins with this data, if one does."""
        if self._is_of_one:
            return
        # What begins in an unusual way may be somebody else's behind a proxy.
        is_between = self._aiohttp is not None and self._aiohttp.is_between_requests
        if is_between or begins_request(data):
            inner.party = self._asker_of(data)

    def _asker_of(self, data: bytes) -> str:
        """Return whose request begins with this data, or a stranger if that is not known."""
        if self._askers is None:
            self._askers = Askers(self.server.services.authenticator)
        return self._askers.of(data) or self._stranger

    def _refuse_head(self, others_wait: bool) -> None:
        assert self._transport is not None
        if others_wait:
            # The client would take the refusal for the answer to an earlier request.
            self._transport.close()
            return
        body = msgspec.json.encode(
            {"error": too_large_head(self.server.services.limits.head_bytes_max)}
        )
        headers = {"Connection": "close"}
        self._transport.write(response(431, body, self.server.date, headers))
        self._transport.close()

    def belongs_to(self, party: str) -> None:
        """Take note that all that comes from now on is of one party: it is a WebSocket."""
        self._is_of_one = True
        if self._inner is not None:
            self._inner.party = party
