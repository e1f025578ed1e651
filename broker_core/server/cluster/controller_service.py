"""Answers requests of brokers on the active controller's node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from broker_core import errors
from broker_core.cluster.controller import Controller
from broker_core.protocol.definitions import (
    ALLOCATE_PRODUCER_IDS,
    ALTER_PARTITION,
    BROKER_HEARTBEAT,
    BROKER_REGISTRATION,
)
from broker_core.protocol.schema import AnyApi
from broker_core.server.cluster.quorum_node import QuorumNode

Body = dict[str, Any]
Reply = Callable[[Body], None]

_METHODS: Final[dict[int, Callable[[Controller, Body, float], Body]]] = {
    BROKER_REGISTRATION.key: lambda controller, body, now: controller.brokers.register(body, now),
    BROKER_HEARTBEAT.key: lambda controller, body, now: controller.brokers.heartbeat(body, now),
    ALTER_PARTITION.key: lambda controller, body, now: controller.partitions.alter(body),
    ALLOCATE_PRODUCER_IDS.key: lambda controller, body, now: controller.allocate_producer_ids(body),
}

NOT_CONTROLLER: Final[Body] = {"error_code": errors.NotController.code}


class ControllerService:
    """Runs the controller's methods, and replies when their decisions are committed."""

    def __init__(self, shell: QuorumNode) -> None:
        self._shell = shell
        self._now = asyncio.get_running_loop().time

    @staticmethod
    def serves(api: AnyApi) -> bool:
        """Tell whether brokers send this API to controllers."""
        return api.key in _METHODS

    def perform(self, api: AnyApi, body: Body, reply: Reply) -> None:
        """Answer a broker's request, with NotController if this node's is not active."""
        method = _METHODS[api.key]
        responses: list[Body] = []

        def action(controller: Controller) -> None:
            responses.append(method(controller, body, self._now()))

        def decided(is_committed: bool) -> None:
            reply(responses[0] if is_committed else NOT_CONTROLLER)

        try:
            self._shell.decide(action, decided)
        except errors.NotController:
            reply(NOT_CONTROLLER)
