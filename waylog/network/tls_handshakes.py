"""TLS on connections that a server has accepted and counted already.

A server that is made with TLS (`ssl=` of create_server) hears of a connection when its handshake is
over: whoever does not end it, or says nothing at all, holds files and memory that nobody counts.
Here a connection belongs to the server from accept on. It costs no TLS before its ClientHello is
whole, which is where the work begins: one of some 100 bytes has a server sign.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from waylog.network.client_hello import ClientHello, ClientHelloTooLong

#: What handshakes may have of the event loop before everybody else has a turn, and how many.
_TURN_S: Final = 0.002
_TOGETHER_MAX: Final = 8


class Newcomer(Protocol):
    """A connection on which TLS begins, for the server that has it. One of both is called, once."""

    def encrypted(self, transport: asyncio.Transport) -> asyncio.BaseProtocol:
        """Take the connection; returns the protocol of all that comes, which has been made."""
        ...

    def failed(self, reason: str | None) -> None:
        """The connection is gone, or going; without a reason it was the client that left."""
        ...


class TlsHandshakes:
    """Begins handshakes, of which those of a party wait for each other more than others do.

    Together they have about half of the event loop's time: after a turn they rest for as long as it
    has taken. What is counted is the answer to a ClientHello, which is most of it.
    """

    def __init__(self, timeout_s: float, *, shutdown_timeout_s: float | None = None) -> None:
        """A handshake may take `timeout_s` from `begin` on, with all waiting."""
        self._loop = asyncio.get_running_loop()
        self._timeout_s = timeout_s
        self._shutdown_timeout_s = shutdown_timeout_s
        self._waiting: OrderedDict[str, OrderedDict[TlsHandshake, None]] = OrderedDict()
        # Of the turn that goes on: how many are not answered yet, how many were, what it took.
        self._unanswered = 0
        self._answered = 0
        self._spent_s = 0.0
        self._resting = False

    def begin(
        self,
        plain: asyncio.Transport,
        context: ssl.SSLContext,
        party: Callable[[], str],
        newcomer: Newcomer,
    ) -> TlsHandshake:
        """Have a connection that has been accepted begin with TLS; it may just be being made.

        `party` is asked for who takes turns, where there is somebody to wait for.
        """
        return TlsHandshake(self, plain, context, party, newcomer, self._timeout_s)

    def ready(self, handshake: TlsHandshake) -> None:
        """A ClientHello is there to be answered."""
        if self._unanswered or self._resting:
            party = handshake.party
            self._waiting.setdefault(party, OrderedDict())[handshake] = None
        else:
            self._turn([handshake])

    def forget(self, handshake: TlsHandshake) -> None:
        """A handshake that waited is over."""
        waiting = self._waiting[handshake.party]
        del waiting[handshake]
        if not waiting:
            del self._waiting[handshake.party]

    def answered(self, spent_s: float) -> None:
        """A ClientHello of this turn has been answered, or will never be."""
        self._spent_s += spent_s
        self._answered += 1
        self._unanswered -= 1
        if not self._unanswered:
            self._resting = True
            self._loop.call_later(self._spent_s, self._go_on)

    def start_tls(
        self, plain: asyncio.Transport, context: ssl.SSLContext, protocol: asyncio.Protocol
    ) -> asyncio.Task[asyncio.Transport | None]:
        """Put TLS in the place of the protocol of a transport, in the next turn of the loop."""
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
    """One connection from accept to the end of its handshake.

    It is the protocol of the plain transport, and stands in for that of TLS, which is not there
    yet: to abort it, or to pause it, which is to answer no ClientHello until it is resumed.
    """

    def __init__(
        self,
        turns: TlsHandshakes,
        plain: asyncio.Transport,
        context: ssl.SSLContext,
        party: Callable[[], str],
        newcomer: Newcomer,
        timeout_s: float,
    ) -> None:
        super().__init__()
        self._turns = turns
        self._plain = plain
        self._context = context
        self._party_of = party
        self._party: str | None = None
        self._newcomer: Newcomer | None = newcomer
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
        """With whom it takes turns."""
        if self._party is None:
            self._party = self._party_of()
        return self._party

    # ------------------------------------------------------------------------------- as a protocol

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._is_whole:
            self._hello.data += data  # read before the pause
            return
        try:
            self._is_whole = self._hello.add(data)
        except ClientHelloTooLong:
            self._give_up(f"its ClientHello is longer than {ClientHello.BYTES_MAX} bytes")
            return
        if self._is_whole:
            # Not before, in connection_made: uvloop, and asyncio before Python 3.11.3, forget that.
            self._plain.pause_reading()
            self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        if self._starting is not None:
            self._starting.cancel()  # nobody would tell it that there is no connection any more
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
        """Answer no ClientHello before `resume_reading`; one that waits for its turn waits on."""
        self._is_held = True

    def resume_reading(self) -> None:
        """See asyncio.ReadTransport."""
        self._is_held = False
        self._go_on()

    def close(self) -> None:
        """Close at once: nothing has been written."""
        self.abort()

    def abort(self) -> None:
        """See asyncio.WriteTransport."""
        self._plain.abort()

    # ------------------------------------------------------------------------------ the handshake

    def start(self) -> None:
        """It has its turn, and tells when it is over."""
        self._is_waiting = False
        self._starting = self._turns.start_tls(self._plain, self._context, self._early)
        self._starting.add_done_callback(self._has_ended)
        # Behind the first step of start_tls, which puts the protocol of TLS in our place, and
        # behind what that step has called soon: reading goes on in the same turn of the loop,
        # and what is read comes in a later one.
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
            what = (error.reason or str(error)).replace("_", " ").lower()
            self._reason = self._reason or f"its TLS handshake failed: {what}"
        except OSError:
            pass  # the client has gone
        finally:
            # Of a connection that was aborted meanwhile uvloop returns a transport all the same.
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
    """Keeps what a client sends together with the end of its handshake, before start_tls returns.

    That is a turn or two of the loop, and no more than one read of the socket each.
    """

    def __init__(self) -> None:
        self.data = b""
        self.lost = False
        #: The protocol that has taken its place: the event loop may have meant to tell this one.
        self.successor: asyncio.BaseProtocol | None = None

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if self.successor is not None:
            self.successor.connection_lost(exc)


def _give(transport: asyncio.Transport, protocol: asyncio.BaseProtocol, data: bytes) -> None:
    """Have a protocol take what was read before it was there."""
    if not hasattr(protocol, "get_buffer"):  # as event loops ask: uvloop's have no such base
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
