"""A connection from the first request on that is not plain: aiohttp serves it."""

from __future__ import annotations

import asyncio

import msgspec

from gateway.http.plain.aiohttp_requests import AiohttpRequests
from gateway.http.plain.askers import Askers, begins_request
from gateway.http.plain.plain_request import response
from gateway.http.plain.shared_state import SharedState
from gateway.http.plain.stepped_input import SteppedInput
from gateway.http.requests.responses import too_large_head


class AiohttpConnection:
    """Passes a connection's bytes to aiohttp, in the turns of whoever has sent them."""

    __slots__ = (
        *("_askers", "_input", "_inner_transport", "_is_of_one", "_protocol", "_requests"),
        *("_shared", "_transport"),
    )

    def __init__(
        self, shared: SharedState, transport: asyncio.Transport, askers: Askers, asker: str
    ) -> None:
        """`asker` is whose request comes first."""
        self._shared = shared
        self._transport = transport
        self._askers = askers
        self._is_of_one = False
        services, protocol = shared.services, shared.accept()
        # The bound on the heads.
        self._requests = AiohttpRequests(
            protocol, services.limits.head_bytes_max, self._refuse_head
        )
        self._input = SteppedInput(protocol, transport, services.turns, asker, self._requests)
        self._protocol = protocol
        self._inner_transport = self._input.inner_transport()

    def begin(self, data: bytes) -> None:
        """Pass on what has come already. It may call back whoever has made this object."""
        remotes = self._shared.services.remotes
        address = remotes.get(self._transport)
        if address is not None:
            remotes[self._inner_transport] = address
        self._protocol.connection_made(self._inner_transport)
        self._input.data_received(data)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        stepped = self._input
        # Whose request begins with this data, if one does? What begins in an unusual way may be
        # somebody else's behind a proxy.
        if (
            stepped.is_idle
            and not self._is_of_one
            and (self._requests.is_between_requests or begins_request(data))
        ):
            stepped.party = self._askers.of(data)
        stepped.data_received(data)

    def eof_received(self) -> bool | None:
        """See asyncio.Protocol."""
        return self._input.eof_received()

    def pause_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        self._input.pause_writing()

    def resume_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        self._input.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        self._shared.services.remotes.pop(self._inner_transport, None)
        self._requests.connection_lost()
        self._input.connection_lost(exc)

    @property
    def awaits_client(self) -> bool:
        """Tell whether nothing can happen before the client sends more."""
        return self._input.is_idle and self._requests.awaits_client

    def belongs_to(self, party: str) -> None:
        """Take note that all that comes from now on is of one party: it is a WebSocket."""
        self._is_of_one = True
        self._input.party = party

    def _refuse_head(self, others_wait: bool) -> None:
        if others_wait:
            # The client would take the refusal for the answer to an earlier request.
            self._transport.close()
            return
        body = msgspec.json.encode(
            {"error": too_large_head(self._shared.services.limits.head_bytes_max)}
        )
        headers = {"Connection": "close"}
        self._transport.write(response(431, body, self._shared.date, headers))
        self._transport.close()
