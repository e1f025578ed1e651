"""The way of this broker to the active controller, whichever node that is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from broker_core import errors
from broker_core.protocol.schema import Api
from broker_core.server.cluster.controller_service import ControllerService
from broker_core.server.cluster.quorum_shell import QuorumShell
from broker_core.server.peer import Peer
from waylog.config import Endpoint

Body = dict[str, Any]

_RETRY_S: Final = 0.05


class ControllerChannel:
    """Sends requests to the active controller, and again while nobody is active."""

    def __init__(
        self, shell: QuorumShell, service: ControllerService, voters: dict[int, Endpoint], name: str
    ) -> None:
        self._shell = shell
        self._service = service
        self._voters = voters
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._peer: Peer | None = None
        self._peer_id: int | None = None
        self._closed = False

    def send(
        self,
        api: Api,
        body: Body,
        answered: Callable[[Body | None], None],
        *,
        timeout_s: float = 10.0,
        version: int | None = None,
    ) -> None:
        """Ask; `answered` gets None when there was no controller to answer in time."""
        deadline = self._loop.time() + timeout_s
        self._try(api, api.versions[1] if version is None else version, body, answered, deadline)

    async def call(self, api: Api, body: Body, *, timeout_s: float = 10.0) -> Body | None:
        """Ask, and wait for the answer."""
        future: asyncio.Future[Body | None] = self._loop.create_future()

        def answered(answer: Body | None) -> None:
            if not future.done():
                future.set_result(answer)

        self.send(api, body, answered, timeout_s=timeout_s)
        return await future

    def close(self) -> None:
        """Disconnect; what waits gets None."""
        self._closed = True
        if self._peer is not None:
            self._peer.close()

    def _try(
        self,
        api: Api,
        version: int,
        body: Body,
        answered: Callable[[Body | None], None],
        deadline: float,
    ) -> None:
        again = partial(self._try, api, version, body, answered, deadline)

        def check(answer: Body | None) -> None:
            if answer is not None and answer["error_code"] != errors.NotController.code:
                answered(answer)
            elif self._closed or self._loop.time() + _RETRY_S >= deadline:
                answered(None)
            else:
                self._loop.call_later(_RETRY_S, again)

        if self._closed:
            answered(None)
        elif self._shell.is_active and self._service.serves(api):
            self._service.perform(api, body, check)
        else:
            peer = self._leader()
            if peer is None:
                check(None)
            else:
                peer.send(api, version, body, check)

    def _leader(self) -> Peer | None:
        leader_id = self._shell.leader_id
        if leader_id is None:
            return None
        if leader_id != self._peer_id or self._peer is None:
            if self._peer is not None:
                self._peer.close()
            self._peer = Peer(self._voters[leader_id], self._name)
            self._peer_id = leader_id
        return self._peer
