"""TLS on connections that a server has accepted and counted already.

A server that is created with TLS (`ssl=` of create_server) learns of a connection only after its
handshake: a client that does not finish it holds files and memory that nobody counts. Here a
connection belongs to the server from accept on. TLS starts only when the ClientHello is complete,
because that is where the cost begins: some 100 bytes make the server compute a signature.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from waylog.network.tls.client_hello import ClientHello, ClientHelloTooLong

#: Seconds of the event loop that a turn of handshakes may take, and the handshakes in a turn.
_TURN_S: Final = 0.002
_TOGETHER_MAX: Final = 8


#: What a client has against our certificate, by the name of its alert (RFC 8446, section 6.2).
_REFUSED_CERTIFICATES: Final = {
    "CERTIFICATE_EXPIRED": "expired",
    "UNKNOWN_CA": "unknown CA",
    "CERTIFICATE_REVOKED": "revoked",
    "BAD_CERTIFICATE": "it is for another host, not valid yet, or damaged",
    "CERTIFICATE_UNKNOWN": "for a reason that the client does not tell",
    "UNSUPPORTED_CERTIFICATE": "of an unsupported kind",
}


def _told(error: ssl.SSLError) -> str:
    """Return why a handshake failed. An alert is what the client has sent, about the server."""
    reason = error.reason or str(error)
    refused = _REFUSED_CERTIFICATES.get(reason.partition("ALERT_")[2])
    if refused is not None:
        return f"the client does not accept this listener's certificate: {refused}"
    return f"its TLS handshake failed: {reason.replace('_', ' ').lower()}"


class PendingHandshake(Protocol):
    """The server's part of a connection that begins with TLS; one of its methods is called once."""

    def encrypted(self, transport: asyncio.Transport) -> asyncio.BaseProtocol:
        """Take over the connection; return its protocol, with `connection_made` already done."""
        ...

    def failed(self, reason: str | None) -> None:
        """Handle a connection that has ended or is ending; no reason means that the client left."""
        ...


class HandshakeScheduler:
    """Schedules handshakes: parties take turns, so a party with many waits longer than others.

    Together they get about half of the event loop's time: after each turn there is a pause as long
    as the turn. Only the answer to a ClientHello is measured, which is most of the work.
    """

    def __init__(self, timeout_s: float, *, shutdown_timeout_s: float | None = None) -> None:
        """A handshake may take `timeout_s` from `begin` on, waiting included."""
        self._loop = asyncio.get_running_loop()
        self._timeout_s = timeout_s
        self._shutdown_timeout_s = shutdown_timeout_s
        self._waiting: OrderedDict[str, OrderedDict[TlsHandshake, None]] = OrderedDict()
        # In the current turn: handshakes not answered yet, those answered, and their time.
        self._unanswered = 0
        self._answered = 0
        self._spent_s = 0.0
        self._resting = False

    def begin(
        self,
        plain: asyncio.Transport,
        context: ssl.SSLContext,
        party: Callable[[], str],
        newcomer: PendingHandshake,
    ) -> TlsHandshake:
        """Start TLS on an accepted connection; may be called within its `connection_made`.

        `party` is only called if the handshake has to wait.
        """
        return TlsHandshake(self, plain, context, party, newcomer, self._timeout_s)

    def ready(self, handshake: TlsHandshake) -> None:
        """Schedule a handshake whose ClientHello is complete."""
        if self._unanswered or self._resting:
            party = handshake.party
            self._waiting.setdefault(party, OrderedDict())[handshake] = None
        else:
            self._turn([handshake])

    def forget(self, handshake: TlsHandshake) -> None:
        """Remove a handshake that waited and is over."""
        waiting = self._waiting[handshake.party]
        del waiting[handshake]
        if not waiting:
            del self._waiting[handshake.party]

    def answered(self, spent_s: float) -> None:
        """Count a handshake of this turn whose ClientHello was answered, or never will be."""
        self._spent_s += spent_s
        self._answered += 1
        self._unanswered -= 1
        if not self._unanswered:
            self._resting = True
            self._loop.call_later(self._spent_s, self._go_on)

    def start_tls(
        self, plain: asyncio.Transport, context: ssl.SSLContext, protocol: asyncio.Protocol
    ) -> asyncio.Task[asyncio.Transport | None]:
        """Replace a transport's protocol by TLS; the task begins in the loop's next iteration."""
        return self._loop.create_task(
            self._loop.start_tls(
                plain,
                protocol,
                context,
                server_side=True,
                ssl_handshake_timeout=self._timeout_s,
                ssl_shutdown_timeout=self._shutdown_timeout_s,
            )
        )

    def _go_on(self) -> None:
        self._resting = False
        each_s = self._spent_s / self._answered
        together = _TOGETHER_MAX if each_s * _TOGETHER_MAX < _TURN_S else int(_TURN_S / each_s)
        next_ones: list[TlsHandshake] = []
        while self._waiting and len(next_ones) < max(together, 1):
            party, waiting = self._waiting.popitem(last=False)
            next_ones.append(waiting.popitem(last=False)[0])
            if waiting:
                self._waiting[party] = waiting
        if next_ones:
            self._turn(next_ones)

    def _turn(self, handshakes: list[TlsHandshake]) -> None:
        self._unanswered = len(handshakes)
        self._answered = 0
        self._spent_s = 0.0
        for each in handshakes:
            each.start()


class TlsHandshake(asyncio.Transport, asyncio.Protocol):
    """A connection from accept to the end of its handshake.

    It is the protocol of the plain transport, and stands in for the TLS transport, which does not
    exist yet: it can be aborted, or paused, which delays the answer to the ClientHello.
    """

    def __init__(
        self,
        turns: HandshakeScheduler,
        plain: asyncio.Transport,
        context: ssl.SSLContext,
        party: Callable[[], str],
        newcomer: PendingHandshake,
        timeout_s: float,
    ) -> None:
        super().__init__()
        self._turns = turns
        self._plain = plain
        self._context = context
        self._party_of = party
        self._party: str | None = None
        self._newcomer: PendingHandshake | None = newcomer
        self._hello = ClientHello()
        self._is_whole = False
        self._is_held = False
        self._is_waiting = False
        self._reason: str | None = None
        self._early = _Early()
        self._starting: asyncio.Task[asyncio.Transport | None] | None = None
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(timeout_s, self._take_too_long)
        plain.set_protocol(self)

    @property
    def party(self) -> str:
        """The party with whose other handshakes this one takes turns."""
        if self._party is None:
            self._party = self._party_of()
        return self._party

    # ------------------------------------------------------------------------------- as a protocol

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._is_whole:
            self._hello.data += data  # was read before the pause
            return
        try:
            self._is_whole = self._hello.add(data)
        except ClientHelloTooLong:
            self._give_up(f"its ClientHello is longer than {ClientHello.BYTES_MAX} bytes")
            return
        if self._is_whole:
            # Not earlier, in connection_made: uvloop, and asyncio before 3.11.3, forget the pause.
            self._plain.pause_reading()
            self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        if self._starting is not None:
            self._starting.cancel()  # start_tls would not learn that the connection is gone
        else:
            self._end(self._reason)

    # ------------------------------------------------------------------------------ as a transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See asyncio.BaseTransport."""
        return self._plain.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """See asyncio.BaseTransport."""
        return self._plain.is_closing()

    def pause_reading(self) -> None:
        """Answer no ClientHello before `resume_reading`; one that is scheduled stays scheduled."""
        self._is_held = True

    def resume_reading(self) -> None:
        """See asyncio.ReadTransport."""
        self._is_held = False
        self._go_on()

    def close(self) -> None:
        """Close at once, since nothing has been written."""
        self.abort()

    def abort(self) -> None:
        """See asyncio.WriteTransport."""
        self._plain.abort()

    # ------------------------------------------------------------------------------ the handshake

    def start(self) -> None:
        """Start TLS, now that it is this handshake's turn."""
        self._is_waiting = False
        self._starting = self._turns.start_tls(self._plain, self._context, self._early)
        self._starting.add_done_callback(self._has_ended)
        # To run after the first step of start_tls, which makes TLS the protocol, and after the
        # callbacks which that step schedules: reading is resumed in the same iteration of the
        # loop, and new data arrives in a later one.
        self._loop.call_soon(self._loop.call_soon, self._give_hello)

    def _go_on(self) -> None:
        if (
            self._is_whole
            and not self._is_held
            and not self._is_waiting
            and self._starting is None
            and not self._plain.is_closing()
        ):
            self._is_waiting = True
            self._turns.ready(self)

    def _give_hello(self) -> None:
        data, self._hello = bytes(self._hello.data), ClientHello()
        began = time.perf_counter()
        try:
            _give(self._plain, self._plain.get_protocol(), data)
        finally:
            self._turns.answered(time.perf_counter() - began)

    def _has_ended(self, starting: asyncio.Task[asyncio.Transport | None]) -> None:
        encrypted: asyncio.Transport | None = None
        try:
            encrypted = None if starting.cancelled() else starting.result()
        except ssl.SSLError as error:
            self._reason = self._reason or _told(error)
        except OSError:
            pass  # the client has gone
        finally:
            # uvloop returns a transport even for a connection that was aborted meanwhile.
            if encrypted is None or self._early.lost or self._plain.is_closing():
                self._plain.abort()
                self._end(self._reason)
            else:
                self._hand_on(encrypted)

    def _hand_on(self, encrypted: asyncio.Transport) -> None:
        newcomer, early = self._newcomer, self._early
        assert newcomer is not None
        try:
            early.successor = protocol = newcomer.encrypted(encrypted)
        except BaseException:
            encrypted.abort()
            self._end(None)
            raise
        self._newcomer = None
        self._timer.cancel()
        encrypted.set_protocol(protocol)
        _give(encrypted, protocol, early.data)

    def _take_too_long(self) -> None:
        self._give_up(f"no TLS handshake within {self._timeout_s:g} s")

    def _give_up(self, reason: str) -> None:
        self._reason = reason
        self.abort()

    def _end(self, reason: str | None) -> None:
        newcomer, self._newcomer = self._newcomer, None
        self._timer.cancel()
        if self._is_waiting:
            self._is_waiting = False
            self._turns.forget(self)
        if newcomer is not None:
            newcomer.failed(reason)


class _Early(asyncio.Protocol):
    """Keeps what a client sends with the end of its handshake, before start_tls returns.

    That takes an iteration or two of the loop, with at most one read of the socket each.
    """

    def __init__(self) -> None:
        self.data = b""
        self.lost = False
        #: The protocol that has replaced this one: the loop may still call this one.
        self.successor: asyncio.BaseProtocol | None = None

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if self.successor is not None:
            self.successor.connection_lost(exc)


def _give(transport: asyncio.Transport, protocol: asyncio.BaseProtocol, data: bytes) -> None:
    """Pass a protocol the data that was read before it was set."""
    if not hasattr(protocol, "get_buffer"):  # uvloop's protocols have no common base class
        if data and not transport.is_closing():
            cast(asyncio.Protocol, protocol).data_received(data)
        return
    buffered = cast(asyncio.BufferedProtocol, protocol)
    while data and not transport.is_closing():
        buffer = memoryview(buffered.get_buffer(len(data)))
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        buffered.buffer_updated(size)
        data = data[size:]
