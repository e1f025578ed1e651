"""Hands the bytes of a connection to aiohttp in steps, so that no turn of the event loop is long.

One read from a socket may bring thousands of requests, or tens of thousands of WebSocket frames: an
empty one has six bytes. aiohttp would parse them all at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any, Final, NoReturn, Protocol

from gateway.limits.turn_clock import TURN_S, PartyTurns

#: Bytes between two looks at the clock: some 700 of the smallest frames.
_STEP_BYTES: Final = 4 * 1024
#: Bytes that may wait before the socket is not read: most clients send no more before an answer.
WAITING_BYTES_MAX: Final = 8 * 1024
#: The same as _STEP_BYTES, while the bytes cost little, as those of a large body do.
_STEP_BYTES_MAX: Final = 32 * 1024
_LITTLE_S: Final = TURN_S / 10


class Watcher(Protocol):
    """Watches what the inner protocol makes of the bytes."""

    def passed_on(self, size: int) -> None:
        """Take note that the inner protocol has been passed so many bytes."""

    @property
    def owes_answers(self) -> bool:
        """Tell whether the inner protocol is about to answer, though no more bytes come."""


class SteppedInput(asyncio.Protocol):
    """Takes the place of aiohttp's protocol at the transport, and passes everything on to it.

    While aiohttp pauses reading, the bytes that are here already wait, too.
    """

    def __init__(
        self,
        inner: asyncio.Protocol,
        transport: asyncio.Transport,
        turns: PartyTurns,
        party: str,
        watcher: Watcher | None = None,
    ) -> None:
        self._inner = inner
        self._transport = transport
        self._turns = turns
        self._watcher = watcher
        #: Whose bytes come.
        self.party = party
        self._waiting = b""
        # The client has closed its side, and the inner protocol has not been told.
        self._has_ended = False
        self._step_bytes = _STEP_BYTES
        # What aiohttp wants, and what the transport does. The transport is not asked: uvloop's does
        # not read any more once the client has closed its side, and what has come is passed on.
        self._is_paused = False
        self._is_reading = True
        self._is_next = False

    def inner_transport(self) -> asyncio.Transport:
        """Return a transport for the inner protocol.

        It is not kept here: the two would refer to each other when the connection has gone, and its
        requests would take memory until the garbage collector comes.
        """
        return _InnerTransport(self._transport, self)

    @property
    def is_idle(self) -> bool:
        """Tell whether nothing waits to be passed on."""
        return not self._waiting

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._waiting = self._waiting + data if self._waiting else data
        if not self._is_next and self._turns.may_begin(self.party):
            self._work()
        else:
            self._read_less()
            self._step_soon()

    def eof_received(self) -> bool | None:
        """See asyncio.Protocol. The end comes after what waits."""
        if self._waiting:
            self._has_ended = True
            return True
        return self._end()

    def pause_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        self._waiting = b""
        self._inner.connection_lost(exc)

    def pause(self) -> None:
        """Pass nothing on until `resume`."""
        self._is_paused = True
        self._read(False)

    def resume(self) -> None:
        """Pass on what waits, then read again."""
        self._is_paused = False
        if not self._waiting:
            self._read(True)
        else:
            self._step_soon()

    def _step_soon(self) -> None:
        if not self._is_next:
            self._is_next = True
            self._turns.call_soon(self.party, self._step)

    def _step(self) -> None:
        self._is_next = False
        self._work()

    def _work(self) -> None:
        """Pass bytes on until the party has no time left in this turn."""
        party = self.party
        outer = self._turns.begin(party)
        try:
            self._pass_on(self._turns.left_s(party))
        finally:
            self._turns.end(party, outer)
        if self._transport.is_closing():
            return
        if self._waiting:
            self._read_less()
            if not self._is_paused:
                self._step_soon()
        elif self._has_ended:
            self._has_ended = False
            if not self._end():
                self._transport.close()
        elif not self._is_paused:
            self._read(True)

    def _end(self) -> bool:
        """Tell that the client has closed its side; return whether answers are still to come."""
        self._inner.eof_received()
        return self._watcher is not None and self._watcher.owes_answers

    def _pass_on(self, seconds: float) -> None:
        position, waiting = 0, self._waiting
        now = time.perf_counter()
        until = now + seconds
        while position < len(waiting) and not self._is_paused:
            part = waiting[position : position + self._step_bytes]
            self._inner.data_received(part)
            position += len(part)
            if self._watcher is not None:
                self._watcher.passed_on(len(part))
            began, now = now, time.perf_counter()
            self._step_bytes = (
                min(2 * self._step_bytes, _STEP_BYTES_MAX)
                if now - began < _LITTLE_S
                else _STEP_BYTES
            )
            if now > until:
                break
        self._waiting = waiting[position:]

    def _read_less(self) -> None:
        if len(self._waiting) > WAITING_BYTES_MAX:
            self._read(False)

    def _read(self, wanted: bool) -> None:
        if wanted == self._is_reading or self._transport.is_closing():
            return
        self._is_reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()


class _InnerTransport(asyncio.Transport):
    """The transport, but that pausing concerns what waits here as well."""

    def __init__(self, transport: asyncio.Transport, stepped: SteppedInput) -> None:
        super().__init__()
        self._transport = transport
        self._stepped = stepped

    @property
    def _sendfile_compatible(self) -> NoReturn:
        # loop.sendfile asks for this; then aiohttp writes a file itself, as it does with uvloop,
        # which has no sendfile for any transport.
        raise NotImplementedError

    def pause_reading(self) -> None:
        self._stepped.pause()

    def resume_reading(self) -> None:
        self._stepped.resume()

    def is_reading(self) -> bool:
        return self._transport.is_reading()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._transport.write(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self._transport.writelines(list_of_data)

    def write_eof(self) -> None:
        self._transport.write_eof()

    def can_write_eof(self) -> bool:
        return self._transport.can_write_eof()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._transport.get_write_buffer_limits()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._transport.get_protocol()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._transport.set_protocol(protocol)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()
