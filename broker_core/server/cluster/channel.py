"""Sends requests of this broker to the active controller, whichever node that is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic

from broker_core import errors
from broker_core.configuration.config import BrokerConfig
from broker_core.protocol.definitions import ENVELOPE
from broker_core.protocol.schema import Api, RequestBody, ResponseBody
from broker_core.security.tls import client_context
from broker_core.server.cluster.controller_service import ControllerService
from broker_core.server.cluster.quorum_node import QuorumNode
from broker_core.server.network.peer import Peer

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import EnvelopeRequest, EnvelopeResponse

_RETRY_S: Final = 0.05


class _Call(Generic[RequestBody, ResponseBody]):
    """One request, repeated until it is answered or its time is over."""

    def __init__(
        self,
        channel: ControllerChannel,
        api: Api[RequestBody, ResponseBody],
        version: int,
        body: RequestBody,
        answered: Callable[[ResponseBody | None], None],
        timeout_s: float,
    ) -> None:
        self._channel = channel
        self._request = api, version, body
        self._answered: Callable[[ResponseBody | None], None] | None = answered
        self._loop = asyncio.get_running_loop()
        # Also ends a call to a controller that hangs, and does not even refuse.
        self._timer = self._loop.call_later(timeout_s, self._finish, None)
        self._try()

    def _try(self) -> None:
        if self._channel.is_closed:
            self._finish(None)
        elif self._answered is not None:
            self._channel.attempt(*self._request, self._check)

    def _check(self, answer: ResponseBody | None) -> None:
        if answer is not None and answer["error_code"] != errors.NotController.code:
            self._finish(answer)
        elif self._channel.is_closed:
            self._finish(None)
        else:
            self._loop.call_later(_RETRY_S, self._try)

    def _finish(self, answer: ResponseBody | None) -> None:
        answered, self._answered = self._answered, None
        self._timer.cancel()
        if answered is not None:
            answered(answer)


class ControllerChannel:
    """Sends requests to the active controller; repeats them while no controller is active."""

    def __init__(
        self,
        shell: QuorumNode,
        service: ControllerService,
        config: BrokerConfig,
        open_envelope: Callable[[EnvelopeRequest, Callable[[EnvelopeResponse], None]], None],
    ) -> None:
        """`open_envelope` answers what is forwarded while this node's controller is active."""
        self._shell = shell
        self._service = service
        self._open_envelope: Callable[[Any, Callable[[Any], None]], None] = open_envelope
        self._voters = dict(config.quorum)
        self._name = f"broker-{config.node_id}"
        tls = config.controller_tls
        self._tls = None if tls is None else client_context(tls)
        self._login = config.controller_login
        self._loop = asyncio.get_running_loop()
        self._peer: Peer | None = None
        self._peer_id: int | None = None
        self._closed = False

    def send(
        self,
        api: Api[RequestBody, ResponseBody],
        body: RequestBody,
        answered: Callable[[ResponseBody | None], None],
        *,
        timeout_s: float = 10.0,
        version: int | None = None,
    ) -> None:
        """Send a request; `answered` gets None if no controller answers in time."""
        _Call(self, api, api.versions[1] if version is None else version, body, answered, timeout_s)

    async def call(
        self, api: Api[RequestBody, ResponseBody], body: RequestBody, *, timeout_s: float = 10.0
    ) -> ResponseBody | None:
        """Send a request and await the answer; None if no controller answers in time."""
        future: asyncio.Future[ResponseBody | None] = self._loop.create_future()

        def answered(answer: ResponseBody | None) -> None:
            if not future.done():
                future.set_result(answer)

        self.send(api, body, answered, timeout_s=timeout_s)
        return await future

    def close(self) -> None:
        """Disconnect; waiting requests get None."""
        self._closed = True
        if self._peer is not None:
            self._peer.close()

    @property
    def is_closed(self) -> bool:
        """Tell whether the channel sends no more requests."""
        return self._closed

    def attempt(
        self,
        api: Api[RequestBody, ResponseBody],
        version: int,
        body: RequestBody,
        answered: Callable[[ResponseBody | None], None],
    ) -> None:
        """Send a request once, to the controller that is known to be active."""
        if self._shell.is_active:
            if self._service.serves(api):
                self._service.perform(api, body, answered)
                return
            if api.key == ENVELOPE.key:
                self._open_envelope(body, answered)
                return
        peer = self._leader()
        if peer is None:
            answered(None)
        else:
            peer.send(api, version, body, answered)

    def _leader(self) -> Peer | None:
        leader_id = self._shell.leader_id
        if leader_id is None:
            return None
        if leader_id != self._peer_id or self._peer is None:
            if self._peer is not None:
                self._peer.close()
            endpoint = self._voters[leader_id]
            self._peer = Peer(endpoint, self._name, tls=self._tls, login=self._login)
            self._peer_id = leader_id
        return self._peer
